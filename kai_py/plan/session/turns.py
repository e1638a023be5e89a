"""Turns: a failure while one gang is planned affects only that gang.

An action plans gang after gang, each in a turn of its own:

    if a turn raises an exception, its decisions are undone and the gang is set aside
    if the cycle exceeds its time limit, the turn that notices it is undone, the gangs that took the
        most time are set aside, and the cycle ends with what was decided before

What a cycle does between turns is divided into steps: one that fails is undone, and the cycle goes
on without it. An action that fails is run for each of its gangs alone; those for which it fails
again are set aside, unless it fails for all of them.

A gang that is set aside gets no turn until its backoff ends: ``FIRST_BACKOFF`` seconds the first
time, twice as long after each further failure. Its unschedulable reason says why. Other gangs are
not affected. The time is measured by the caller (``CycleWatch``), as this package has no clock;
without a watch a cycle has no limit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from traceback import format_exception
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct

from kai_py.api.times import backoff_seconds
from kai_py.dra.spending import Spending
from kai_py.plan.extensions import Extensions, action_key, failure_text, step_key
from kai_py.plan.observations import SetAside
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang

P = ParamSpec("P")
T = TypeVar("T")

FIRST_BACKOFF = 10.0
MAX_BACKOFF = 640.0
"""Seconds: the backoff after the first failure of a gang, and the longest."""

FORGET_AFTER = 3600.0
"""Seconds after the end of its backoff until the failures of a gang are forgotten."""

NOT_REACHED = Unschedulable(
    Stage.SEARCH_BUDGET, "the cycle was ended at its time limit before its turn came."
)
"""The reason of a gang that had no turn in a cycle that ended early."""


class CycleOverLimitError(Exception):
    """The cycle is over its time limit.

    ``longest``: the gangs and added actions that took the most time, by key, with their seconds.
    """

    def __init__(self, longest: Mapping[str, float], limit: float) -> None:
        """``limit`` in seconds."""
        super().__init__(f"the cycle is over its limit of {limit:g} s")
        self.longest, self.limit = longest, limit


class CycleWatch(Protocol):
    """Measures a cycle from outside."""

    def begin(self, gang: str) -> None:
        """The turn of ``gang`` (a key) begins; "": it has ended."""

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
    """The turns of one cycle.

    ``failed``: what was set aside in this cycle, by key; ``over``: whether the cycle must end.
    """

    statement: Statement
    watch: CycleWatch = field(default_factory=Unwatched)
    aside: Set[str] = frozenset()
    """The keys of the gangs that are set aside already."""
    spending: Spending = field(default_factory=Spending)
    """The budget of device searches, per gang and per cycle."""
    failed: dict[str, SetAside] = field(default_factory=dict)
    over: bool = False
    extensions: Extensions = field(default_factory=Extensions)

    @property
    def excluded(self) -> bool:
        """Whether there is any gang that may have no turn in this cycle."""
        return bool(self.over or self.failed or self.aside)

    def may_plan(self, gang: Gang) -> bool:
        """Whether the gang may have a turn in this cycle."""
        return not (self.over or gang.key in self.failed or gang.key in self.aside)

    def eligible(self, gangs: Iterable[Gang]) -> Iterator[Gang]:
        """The gangs that may have a turn, each checked when it comes up."""
        return filter(self.may_plan, gangs)

    def of(self, gang: Gang) -> "Turn":
        """The turn of a gang: a block that, if it fails, is undone and sets the gang aside."""
        return Turn(self, gang.key)

    def of_action(self, name: str) -> "Turn":
        """The turn of an added action; it is set aside if it fails."""
        return Turn(self, action_key(name))

    def may_run(self, action: str) -> bool:
        """Whether an added action may have its turn in this cycle."""
        return not self.over and self.extensions.may_run(action_key(action))

    def step(self, name: str, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of a part of the cycle; None if it fails, which undoes its decisions."""
        trial = self.statement.trial()
        try:
            return run(*args, **kwargs)
        except Exception as error:
            trial.undo()
            self.fail_turn(step_key(name), error)
            return None

    def attempt(
        self, run: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> Exception | None:
        """Run it; the error if it fails, and is undone."""
        trial = self.statement.trial()
        try:
            run(*args, **kwargs)
        except Exception as error:
            trial.undo()
            return error
        return None

    def fail(self, gang: Gang, error: Exception) -> None:
        """Set the gang aside for an error; or, for a cycle over its limit, the gangs it names."""
        self.fail_turn(gang.key, error)

    def fail_turn(self, key: str, error: Exception) -> None:
        """Set a gang, an added action or a step aside, by its key; as ``fail``."""
        if isinstance(error, CycleOverLimitError):
            self.over = True
            ended = f"a cycle that was ended after {error.limit:g} s"
            for longest, seconds in error.longest.items():
                self._set_aside(longest, f"it took {seconds:.1f} s of {ended}", "")
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
        """Begin nothing yet."""
        self._turns, self._key = turns, key
        self._trial = turns.statement.trial()

    def __enter__(self) -> None:
        """Begin the turn."""
        self._turns.watch.begin(self._key)
        self._turns.spending.begin(self._key)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        """End the turn; an exception is not passed on."""
        self._turns.watch.begin("")
        if error is None:
            return False
        self._trial.undo()
        if not isinstance(error, Exception):
            return False
        self._turns.fail_turn(self._key, error)
        return True


class TurnBackoff(Struct, frozen=True):
    """A gang that is set aside: how often it failed, and until when (seconds since the epoch)."""

    failures: int
    until: float
    reason: Unschedulable


def backoff_after(failed: SetAside, failures: int, now: float) -> TurnBackoff:
    """The backoff of a gang that failed, for the ``failures``-th time."""
    seconds = backoff_seconds(failures, FIRST_BACKOFF, MAX_BACKOFF)
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
