"""``kai-py lint``: fields that the API would reject or drop in manifests, and their valid form."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct

from kai_py.api.texts import printable
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.input_files import files_in, name_of, text_of
from kai_py.cli.options import takes_groups
from kai_py.cli.output import OutputOptions, print_document
from kai_py.cli.sentences import say_sentence
from kai_py.lint.check import LintReport, lint_together
from kai_py.lint.manifest import Finding, Severity


class FileFindings(Struct, frozen=True):
    """The findings in one file."""

    file: str
    findings: Sequence[Finding]


@takes_groups
def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Manifests or directories; - reads standard input."),
    ],
    *,
    fix: Annotated[
        bool, typer.Option("--fix", help="Print the valid form; findings go to standard error.")
    ] = False,
    output: OutputOptions,
) -> None:
    """Check manifests: ``kai-py lint FILE...``, ``kai-py lint --fix FILE | kubectl apply -f -``.

    One line per finding: file:line: Kind/name: field: what happens and what to do. Exits with 1
    when something was found that the API rejects or drops; with --fix, when something is left of
    it that only you can decide. Hints do not count.
    """
    files = files_in(files)
    texts = [text_of(file) for file in files]
    if not any(map(str.strip, texts)):
        raise CommandError(f"{', '.join(map(name_of, files))}: there are no Kubernetes objects")
    lint_reports = lint_together(texts)
    reports = list(zip(map(name_of, files), lint_reports, strict=True))
    if fix and not output.is_text:
        raise CommandError("--fix cannot be combined with -o")
    answer = [FileFindings(name, report.findings) for name, report in reports]
    if not print_document(answer, output.form):
        for name, report in reports:
            _print_findings(name, report, fix=fix)
    if fix:
        corrected_texts = (report.corrected.strip("\n") for _, report in reports)
        corrected = "\n---\n".join(filter(None, corrected_texts))
        if sys.stdout.isatty():
            corrected = "\n".join(map(printable, corrected.split("\n")))
        typer.echo(corrected)
    unresolved = [
        found for _, report in reports for found in (report.unfixed if fix else report.errors)
    ]
    if unresolved:
        raise typer.Exit(ExitCode.FOUND)


def _print_findings(name: str, report: LintReport, *, fix: bool) -> None:
    for found in report.findings:
        mark = ""
        if found.severity is Severity.ERROR and found.fixed:
            mark = " [fixed]" if fix else " [--fix corrects this]"
        say_sentence(found.text(name) + mark, err=fix)
