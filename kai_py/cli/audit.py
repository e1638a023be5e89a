"""``kai-py audit``: searches a cluster, or files, for states that must never occur.

Exit code 0 when nothing is found, 1 with the list, 2 when something could not be read, so that
silence about the rest would say nothing. A live cluster is read a second time where anything was
found: only what both readings show counts, since lists of several kinds are not one instant.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kai_py.audit.documents import Document, decode_objects, observed_cluster
from kai_py.audit.finding import AuditFinding
from kai_py.audit.rules import audit_cluster
from kai_py.cli.connection import ClusterOptions
from kai_py.cli.errors import ExitCode
from kai_py.cli.input_files import paths_of, read_objects
from kai_py.cli.options import LATEST_TIME, takes_groups
from kai_py.cli.output import OutputOptions, print_document, print_table, progress, say
from kai_py.cli.reading import read_now
from kai_py.config import Configuration
from kai_py.simulate.files.object_files import RejectedObject, files_below

LONGEST_WAIT = 3600.0
HEADINGS = ("KIND", "OBJECT", "FINDING")


class Report(NamedTuple):
    """What an audit says, as ``-o json`` prints it."""

    findings: Sequence[AuditFinding]
    objects: int
    rejected: Sequence[RejectedObject]


@takes_groups
def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Objects instead of a cluster: kubectl's lists, YAML streams, directories, a file "
            "of `kai-py snapshot`; - is standard input.",
        ),
    ] = None,
    *,
    cluster: ClusterOptions,
    now: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=LATEST_TIME,
            help="When the files were written, seconds since 1970; by default their own time.",
        ),
    ] = None,
    again_after: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=LONGEST_WAIT,
            help="Seconds until a cluster is read again to confirm findings; 0: read it once.",
        ),
    ] = 5.0,
    output: OutputOptions,
) -> None:
    """Look for lost claims, devices used twice, broken gangs, limits and capacity exceeded."""
    configuration = cluster.configuration()
    if files:
        report = _audit_files(paths_of(files), configuration, now)
    else:
        report = _audit_cluster(cluster, configuration, again_after)
    if not print_document(report._asdict(), output.form):
        _print_table(report)
    if report.findings:
        raise typer.Exit(ExitCode.FOUND)
    if report.rejected:
        raise typer.Exit(ExitCode.USAGE)


def _audit_files(files: Sequence[Path], configuration: Configuration, now: float | None) -> Report:
    with progress("reading"):
        given = read_objects(files)
        written = max(map(_written, files_below(files)), default=0.0)
    report = _audit(given.documents, configuration, written if now is None else now)
    return report._replace(rejected=[*given.rejected, *report.rejected])


def _written(file: Path) -> float:
    """When a file was written, seconds since the epoch; now for what is piped in."""
    return file.stat().st_mtime if file.is_file() else time.time()


def _audit_cluster(
    cluster: ClusterOptions, configuration: Configuration, again_after: float
) -> Report:
    def read() -> Report:
        documents = asyncio.run(read_now(cluster.kubeconfig, cluster.context))
        return _audit(documents, configuration, time.time())

    first = read()
    if not first.findings or not again_after:
        return first
    with progress(f"reading again after {again_after:g} s"):
        time.sleep(again_after)
        second = read()
    before = {finding.identity for finding in first.findings}
    confirmed = [finding for finding in second.findings if finding.identity in before]
    return second._replace(findings=confirmed)


def _audit(documents: Sequence[Document], configuration: Configuration, now: float) -> Report:
    with progress("auditing"):
        decoded = decode_objects(documents)
        findings = audit_cluster(observed_cluster(decoded, configuration, now))
    rejected = [RejectedObject(name, problem) for name, problem in decoded.problems]
    return Report(findings, len(documents), rejected)


def _print_table(report: Report) -> None:
    for each in report.rejected:
        say(f"kai-py: {each.object}: {each.problem}", err=True)
    if report.findings:
        rows = [(each.kind.value, each.objects[0], each.message) for each in report.findings]
        print_table(HEADINGS, rows)
        return
    unread = f"; {len(report.rejected)} could not be read" if report.rejected else ""
    say(f"nothing found in {report.objects} objects{unread}")
