"""Turns: what goes wrong while one gang is planned stays with that gang.

An action plans gang after gang, each in a turn of its own:

    an exception in a turn undoes what the turn decided, and sets the gang aside
    a cycle over its time limit ends in the turn that notices it: that turn is undone, the gang that
        took the most time is set aside, and the cycle keeps what was decided before

A gang that is set aside has no turn until its backoff ends, ``FIRST_BACKOFF`` seconds the first
time and twice as long after each further failure; the other gangs go on. It says why in its
unschedulable reason. The time is measured outside (``CycleWatch``): this package has no clock, and
without a watch a cycle has no limit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Protocol

from kai_py.dra.spending import Spending
from kai_py.plan.extensions import Extensions, action_key, failure_text
from kai_py.plan.observations import SetAside
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang

FIRST_BACKOFF = 10.0
MAX_BACKOFF = 640.0
"""Seconds, after the first failure of a gang and at most."""

FORGET_AFTER = 3600.0
"""Seconds after its backoff has ended without a failure in which a gang counts as new."""

NOT_REACHED = Unschedulable(
    Stage.SEARCH_BUDGET, "the cycle was ended at its time limit before its turn came."
)
"""The reason of a gang that had no turn in a cycle that ended early."""


class CycleOverLimitError(Exception):
    """The cycle is over its time limit; ``gang``: the key of the one that took the most time."""

    def __init__(self, gang: str, limit: float) -> None:
        """``limit`` in seconds."""
        super().__init__(f"the cycle is over its limit of {limit:g} s")
        self.gang, self.limit = gang, limit


class CycleWatch(Protocol):
    """Measures a cycle from outside."""

    def begin(self, gang: str) -> None:
        """The turn of a gang begins; its key, or "" where it has ended."""

    def poll(self) -> None:
        """Called wherever a search spends from a budget.

        :raises CycleOverLimitError: the cycle is over its limit.
        """


class Unwatched:
    """A cycle without a limit, as in simulations and tests."""

    def begin(self, gang: str) -> None:
        """Nothing is measured."""

    def poll(self) -> None:
        """Never over a limit."""


@dataclass
class Turns:
    """The turns of one cycle. ``failed``: what was set aside in it, by key; ``over``: it ended."""

    statement: Statement
    watch: CycleWatch = field(default_factory=Unwatched)
    aside: Set[str] = frozenset()
    """The keys of the gangs that are set aside already."""
    spending: Spending = field(default_factory=Spending)
    """What searches for devices may spend, some of it for each gang."""
    failed: dict[str, SetAside] = field(default_factory=dict)
    over: bool = False
    extensions: Extensions = field(default_factory=Extensions)

    def may_plan(self, gang: Gang) -> bool:
        """Whether the gang may have a turn in this cycle."""
        return not (self.over or gang.key in self.failed or gang.key in self.aside)

    def able(self, gangs: Iterable[Gang]) -> Iterator[Gang]:
        """Those of ``gangs`` that may have a turn when they come up."""
        return filter(self.may_plan, gangs)

    def of(self, gang: Gang) -> "Turn":
        """The turn of a gang: a block in which whatever fails is undone, and sets it aside."""
        return Turn(self, gang.key)

    def of_action(self, name: str) -> "Turn":
        """The turn of an added action; it is set aside if it fails."""
        return Turn(self, action_key(name))

    def may_run(self, action: str) -> bool:
        """Whether an added action may have its turn in this cycle."""
        return not self.over and self.extensions.may_run(action_key(action))

    def fail(self, gang: Gang, error: Exception) -> None:
        """Set the gang aside for an error; where the cycle is over, the one that took the most."""
        self.fail_turn(gang.key, error)

    def fail_turn(self, key: str, error: Exception) -> None:
        """The same for a gang, or an added action, by its key."""
        if isinstance(error, CycleOverLimitError):
            self.over = True
            message = f"it took the most time of a cycle that was ended after {error.limit:g} s"
            self._set_aside(error.gang, message, "")
        elif _is_gang(key):
            trace = "".join(format_exception(error))
            self._set_aside(key, f"planning it failed ({failure_text(error)})", trace)
        else:
            self.extensions.fail(key, error)

    def _set_aside(self, key: str, message: str, error: str) -> None:
        if _is_gang(key):
            self.failed.setdefault(key, SetAside(key, message, error))
        elif key:
            self.extensions.set_aside(key, f"{key}: {message}")


def _is_gang(key: str) -> bool:
    """Keys of gangs name a namespace."""
    return "/" in key


class Turn:
    """A block of work for one gang, or of one added action; see ``Turns.of``."""

    def __init__(self, turns: Turns, key: str) -> None:
        """Nothing is begun yet."""
        self._turns, self._key = turns, key
        self._trial = turns.statement.trial()

    def __enter__(self) -> None:
        """Begin the turn."""
        self._turns.watch.begin(self._key)
        self._turns.spending.begin(self._key)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        """End the turn; an error is kept here."""
        self._turns.watch.begin("")
        if error is None:
            return False
        self._trial.__exit__()
        if not isinstance(error, Exception):
            return False
        self._turns.fail_turn(self._key, error)
        return True


@dataclass(frozen=True, slots=True)
class TurnBackoff:
    """A gang that is set aside: how often it failed, and until when (seconds since the epoch)."""

    failures: int
    until: float
    reason: Unschedulable


def backoff_after(failed: SetAside, failures: int, now: float) -> TurnBackoff:
    """The backoff of a gang that failed, for the ``failures``-th time."""
    # An exponent beyond the limit is of no use, and a float has none above 1023.
    seconds = min(FIRST_BACKOFF * 2.0 ** min(failures - 1, 16), MAX_BACKOFF)
    stage = Stage.SCHEDULER_ERROR if failed.error else Stage.SEARCH_BUDGET
    message = f"{failed.message}; it is set aside and tried again after {seconds:g} s."
    return TurnBackoff(failures, now + seconds, Unschedulable(stage, message))


def updated_backoffs(
    known: Mapping[str, TurnBackoff],
    failed: Mapping[str, SetAside],
    gangs: Collection[str],
    now: float,
) -> dict[str, TurnBackoff]:
    """The backoffs after a cycle in which gangs ``failed``; only those of ``gangs`` are kept."""
    kept = {
        key: each for key, each in known.items() if key in gangs and now < each.until + FORGET_AFTER
    }
    for key, each in failed.items():
        if key in gangs:
            before = kept[key].failures if key in kept else 0
            kept[key] = backoff_after(each, before + 1, now)
    return kept
