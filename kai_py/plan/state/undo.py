"""The undo of one change of the state: what a change returns, and a trial calls to take it back."""

from collections.abc import Callable

Undo = Callable[[], None]


def no_undo() -> None:
    """Undo nothing, where nothing was changed."""
