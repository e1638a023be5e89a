"""Progress bar for long work, on stderr if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a bar during the block; yields a function that takes the amount done.

    Without a ``total`` the bar only moves. It is removed at the end of the block.
    """
    console = Console(file=sys.stderr)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
