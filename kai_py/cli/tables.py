"""How do tables look? Like kubectl's: no lines, upper-case headings, whole words when piped."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 10_000


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under headings; the last column takes the room that is left."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(table)
