"""Tables like kubectl's: no lines, upper-case headings, nothing truncated.

On a terminal the last column is wrapped where it is wide enough for that; otherwise the terminal
breaks the line.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

COLUMN_GAP = "   "
MIN_COLUMNS = 30
"""Least width of the last column to wrap text in."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under headings; the last column takes the remaining width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    bold = width is not None and shows_styles()
    for number, line in enumerate(table_lines(headings, list(rows), width=width)):
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
    text_width = None if width is None or width - indent < MIN_COLUMNS else width - indent
    for row in (headings, *rows):
        before = "".join(
            cell + " " * (column - cell_len(cell)) + COLUMN_GAP
            for cell, column in zip(row[:-1], widths[:-1], strict=True)
        )
        folded = textwrap.wrap(row[-1], text_width) if text_width else [row[-1]]
        yield (before + "".join(folded[:1])).rstrip()
        for rest in folded[1:]:
            yield " " * indent + rest
