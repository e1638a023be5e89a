"""``kai-py replay``: the plan for a recorded cluster.

With ``--diff`` the plans of two configurations are compared, with ``--against`` the plan printed by
another version: exit code 0 when they are the same, 1 when they differ.

A cluster is recorded by KAI-Scheduler, as a zip (``kai_archive``), or by ``kai-py snapshot``, as a
list of the objects that the scheduler watches, owners of pods among them. Objects that cannot be
read are left out and named.
"""

import difflib
import zipfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from kai_py.api.texts import printable
from kai_py.audit.documents import decode_objects, object_name
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.input_files import text_of
from kai_py.cli.kai_archive import Archive, ArchiveError, read_archive
from kai_py.cli.options import LATEST_TIME, takes_groups
from kai_py.cli.output import (
    Output,
    OutputOptions,
    ReportFile,
    print_document,
    progress,
    say,
    write_report,
)
from kai_py.cli.sentences import say_lines
from kai_py.observe.plan_text import describe_plan
from kai_py.plan.plan import Plan
from kai_py.simulate.files.complete_objects import owner_uids
from kai_py.simulate.files.objects import SERVICE_ACCOUNT, ObjectsError, load_objects


def read_recorded(path: Path) -> Archive:
    """Read either kind of file; raises ArchiveError."""
    # The archive's reader also reports a missing file.
    if not path.is_file() or zipfile.is_zipfile(path):
        return read_archive(path)
    try:
        documents = load_objects(path)
    except ObjectsError as error:
        raise ArchiveError(str(error)) from error
    objects, owners = decode_objects(documents), owner_uids(documents)
    for document in chain.from_iterable(objects.owners.values()):
        # Only explanations of absent pods need ServiceAccounts.
        if document["metadata"]["uid"] not in owners and document["kind"] != SERVICE_ACCOUNT:
            problem = f"{document['apiVersion']} is not supported"
            objects.problems.append((object_name(document), problem))
    return Archive(objects)


CycleTime = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=LATEST_TIME,
        help="Time of the cycle, seconds since 1970; by default that of the file.",
    ),
]


@takes_groups
def command(
    archive: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A file of `kai-py snapshot`, or KAI's GET /get-snapshot.",
        ),
    ],
    *,
    config: ConfigFile = None,
    diff: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="Show the difference to the plan under this configuration."
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="Show the difference to a plan printed before."),
    ] = None,
    now: CycleTime = None,
    report_file: ReportFile = None,
    output: OutputOptions,
) -> None:
    """Print the plan of one cycle on a snapshot; nothing is read from or written to a cluster."""
    configuration_from(config)
    if against is not None and (diff is not None or output.form is not Output.TABLE):
        raise CommandError("--against cannot be combined with --diff or -o")
    try:
        recorded = read_recorded(archive)
    except ArchiveError as error:
        raise CommandError(str(error)) from error
    plan = _plan(recorded, config, now)
    for name, problem in recorded.objects.problems:
        say(f"kai-py: {name} is ignored: {problem}", err=True)
    if against is not None:
        names = (str(against), "this version")
        if _print_differences(text_of(str(against)), describe_plan(plan), names):
            raise typer.Exit(ExitCode.FOUND)
        return
    name = str(config) if config is not None else "defaults"
    if diff is None:
        _write_page(report_file, {name: plan}, title=archive.name)
        if not print_document(plan, output.form):
            say_lines(describe_plan(plan))
        return
    other = _plan(recorded, diff, now)
    _write_page(report_file, {name: plan, str(diff): other}, title=archive.name)
    if not print_document({"plan": plan, "other": other}, output.form):
        _print_differences(describe_plan(plan), describe_plan(other), (name, str(diff)))
    if plan != other:
        raise typer.Exit(ExitCode.FOUND)


def _plan(found: Archive, config: Path | None, now: float | None) -> Plan:
    configuration = configuration_from(config)
    if config is None and found.scheduler_name:
        configuration = configuration.model_copy(update={"scheduler_name": found.scheduler_name})
    with progress("planning"):
        planner = found.planner(configuration)
        return planner.decide(planner.freeze(found.taken_at if now is None else now))


def _write_page(file: Path | None, plans: Mapping[str, Plan], *, title: str) -> None:
    """Write the page of these plans, by the names of their configurations, if one is asked for."""
    if file is not None:
        # Its charts take long to import, and few ask for it.
        from kai_py.report.decisions_page import plan_page  # noqa: PLC0415

        write_report(file, plan_page(plans, title=title))


def _print_differences(before: str, after: str, names: tuple[str, str]) -> bool:
    """Print how two printed plans differ; returns whether they do."""
    difference = difflib.unified_diff(
        before.splitlines(), after.splitlines(), *names, n=0, lineterm=""
    )
    lines = [printable(line) for line in difference if not line.startswith("@@")]
    typer.echo("\n".join(lines) or "the plans are the same")
    return bool(lines)
