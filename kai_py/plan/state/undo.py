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

    __slots__ = ("_log", "_start", "kept")

    def __init__(self, log: list[Undo]) -> None:
        """Not kept yet; ``log``: the undos of changes so far, to which the work adds its own."""
        self._log, self._start = log, len(log)
        self.kept = False

    def undo(self) -> None:
        """Undo the work, which is also possible before the end of the block."""
        while len(self._log) > self._start:
            self._log.pop()()

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
