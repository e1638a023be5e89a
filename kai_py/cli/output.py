"""The output of commands: documents, tables, progress, and errors for unknown names.

A command prints its answer as JSON, YAML or names, the formats of kubectl's ``-o`` (``--json`` is
short for JSON), or else as a table.

Tables are like kubectl's: no lines, upper-case headings, nothing truncated. On a terminal the last
column is wrapped if it is wide enough for that. Otherwise it is printed below the others, on lines
of its own, and so are other columns that do not fit, with their headings, unless they are empty.
Words are not broken.

The progress of long work goes to stderr if that is a terminal. An unknown name in a filter is an
error, not an empty table.
"""

import enum
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import yaml
from msgspec import Struct
from rich.cells import cell_len

from kai_py.api.problems import nearest_path
from kai_py.api.texts import UNPRINTABLE, printable, printable_json
from kai_py.cli.errors import CommandError
from kai_py.cli.sentences import folded, terminal_width

COLUMN_GAP = "   "
MIN_COLUMNS = 34
"""Least width of the last column to wrap text in."""


class Output(enum.StrEnum):
    """The form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    """A table with more columns, if there are any."""
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """Only the names, one in a line."""


class OutputOptions(Struct, frozen=True):
    """The options that choose the form of the answer."""

    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE
    json: Annotated[bool, typer.Option("--json", help="Same as -o json.")] = False

    @property
    def form(self) -> Output:
        """The form that was chosen."""
        return Output.JSON if self.json else self.output

    @property
    def is_text(self) -> bool:
        """Whether the answer is for people."""
        return self.form in (Output.TABLE, Output.WIDE)


ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        "--html",
        metavar="FILE",
        help="Also write a report with plots: one HTML page that needs no network.",
    ),
]


def print_document(answer: object, form: Output, *, names: Iterable[str] | None = None) -> bool:
    """Print ``answer`` as JSON, YAML or names if one of them is requested; returns whether it was.

    Raises CommandError for names where the answer has none.
    """
    if form is Output.NAME:
        if names is None:
            raise CommandError("-o name: this command lists no named objects")
        for name in names:
            say(name)
        return True
    if form is Output.JSON:
        document = msgspec.json.format(msgspec.json.encode(answer), indent=2)
        typer.echo(printable_json(document.decode()))
    elif form is Output.YAML:
        typer.echo(_yaml(answer), nl=False)
    else:
        return False
    return True


def say(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error with ``err``; line breaks in it are escaped."""
    typer.echo(printable(text), err=err)


def _yaml(answer: object) -> str:
    document = msgspec.json.decode(msgspec.json.encode(answer))  # opaque parameters are JSON
    text = msgspec.yaml.encode(document).decode()
    if not any(map(UNPRINTABLE.search, text.split("\n"))):
        return text
    escaped: str = yaml.safe_dump(document, sort_keys=False, width=math.inf)
    return escaped


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under headings; the last column takes the remaining width.

    Nothing is printed without rows.
    """
    width = terminal_width(sys.stdout)
    rows = [tuple(map(printable, row)) for row in rows]
    if not rows:
        return
    bold = width is not None and shows_styles()
    for number, line in enumerate(table_lines(headings, rows, width=width)):
        print(f"\x1b[1m{line}\x1b[0m" if number == 0 and bold else line)


def shows_styles() -> bool:
    """Whether a terminal shows bold text: not with ``NO_COLOR``, nor on a dumb one."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None
) -> Iterator[str]:
    """The lines of a table, its headings first; ``width`` is None where lines are not wrapped."""
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    indent = sum(widths[:-1]) + len(COLUMN_GAP) * (len(widths) - 1)
    if width is not None and width - indent < min(MIN_COLUMNS, widths[-1]):
        yield from _narrow_lines(headings, rows, widths, width)
        return
    text_width = None if width is None else width - indent
    for row in (headings, *rows):
        before = "".join(
            cell + " " * (column - cell_len(cell)) + COLUMN_GAP
            for cell, column in zip(row[:-1], widths[:-1], strict=True)
        )
        last = folded(row[-1], text_width) if text_width else [row[-1]]
        yield (before + "".join(last[:1])).rstrip()
        for rest in last[1:]:
            yield " " * indent + rest


def _narrow_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], width: int
) -> Iterator[str]:
    """The lines of a table that is too wide to have all columns side by side.

    As many of the first columns as fit are; the others are below them with their headings, and a
    last column of sentences is below these, all indented.
    """
    has_sentences = widths[-1] > MIN_COLUMNS
    labelled = len(widths) - has_sentences
    kept = _columns_that_fit(widths[:labelled], width)
    for row in (headings, *rows):
        cells = zip(row[:kept], widths[:kept], strict=True)
        line = COLUMN_GAP.join(cell + " " * (column - cell_len(cell)) for cell, column in cells)
        yield line.rstrip()
        if row is headings:
            continue
        below = zip(headings[kept:labelled], row[kept:labelled], strict=True)
        labelled_cells = [f"{name} {cell}" for name, cell in below if cell not in ("", "-")]
        lines = [", ".join(labelled_cells), *(row[-1:] if has_sentences else ())]
        for text in lines:
            yield from folded(text, width, first=COLUMN_GAP, rest=COLUMN_GAP)


def _columns_that_fit(widths: Sequence[int], width: int) -> int:
    """How many columns fit side by side; one at least."""
    total = 0
    for number, column in enumerate(widths):
        total += column + (len(COLUMN_GAP) if number else 0)
        if number and total > width:
            return number
    return len(widths)


def write_report(file: Path, page: str) -> None:
    """Write a page; raises CommandError where that is not possible."""
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write texts by their paths below ``directory``; raises CommandError."""
    try:
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from error


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a bar during the block; yields a function that takes the amount done.

    Without a ``total`` the bar only moves. It is removed at the end of the block.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - takes long to import, and pipes have no bar
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(file=sys.stderr)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def check_known(option: str, value: str, names: Iterable[str], *, hint: str) -> None:
    """Raise CommandError unless ``value`` is empty or one of ``names``."""
    known = sorted(set(names))
    if value and value not in known:
        raise not_found(f"{option} {value}", value, known, hint=hint)


def not_found(what: str, value: str, names: Iterable[str], *, hint: str) -> CommandError:
    """The error for a name that does not resolve; it suggests the nearest one, or says ``hint``."""
    nearest = nearest_path(value, list(names))
    return CommandError(f"{what}: not found", hint=f"did you mean {nearest}?" if nearest else hint)
