"""What is a row of the table, and what is measured by it?"""

from collections.abc import Callable
from dataclasses import dataclass

OUT_OF_TIME = "not measured: out of time"
"""The outcome of rows that the time for all of them was not enough for."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one run found. ``seconds``: the median; ``peak_mb``: resident memory of the process.

    ``outcome`` says what came of it, so that a fast wrong answer shows. ``peer``: the figure of
    others when it was measured in the same run.
    """

    seconds: float | None
    outcome: str
    peak_mb: float | None = None
    peer: str = ""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A row to measure: ``run`` takes as long as it takes, in a process of its own.

    ``peer``: the figure of others for the same problem. ``aim``: what we want to reach.
    """

    part: str
    name: str
    title: str
    run: Callable[[], Measured]
    peer: str = ""
    aim: str = ""

    @property
    def key(self) -> str:
        """Unique among all rows."""
        return f"{self.part}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured row, as kept in JSON; ``load``: the load average of ``machine`` before it."""

    part: str
    name: str
    title: str
    seconds: float | None
    peak_mb: float | None
    outcome: str
    peer: str
    aim: str
    commit: str
    load: float
    date: str
    machine: str
