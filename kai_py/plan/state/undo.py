"""The undo of one change of the state: what a change returns, and a trial calls to take it back."""

from collections.abc import Callable, Sequence

Undo = Callable[[], None]


def no_undo() -> None:
    """Undo nothing, where nothing was changed."""


def undo_all(steps: Sequence[Undo]) -> Undo:
    """The undo of changes that were made in this order."""

    def undo() -> None:
        for step in reversed(steps):
            step()

    return undo


class Trial:
    """A block of work that is undone at its end unless ``keep`` was called."""

    def __init__(self, undo: Undo) -> None:
        """Not kept yet; ``undo`` may also be called before the end."""
        self.kept = False
        self.undo = undo

    def keep(self) -> None:
        """Keep the work when the block ends."""
        self.kept = True

    def __enter__(self) -> "Trial":
        """Begin the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the block, and undo its work unless it is kept."""
        if not self.kept:
            self.undo()
