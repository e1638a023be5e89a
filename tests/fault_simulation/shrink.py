"""Makes a failing schedule smaller: fewer faults, less load, as long as it still fails.

Delta debugging (Zeller and Hildebrandt 2002): parts of the list are left out, first halves, then
smaller ones, until no single element can go.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tests.fault_simulation.schedule import HOUR, Schedule
from tests.fault_simulation.simulation import Outcome, simulate

Element = TypeVar("Element")


def shrink(schedule: Schedule, report: Callable[[str], None], attempts: int = 300) -> Schedule:
    """The smallest schedule found within so many runs that fails in the same way."""
    budget = [attempts]
    first = simulate(schedule)
    kind = _kind(first)
    schedule = _cut_short(schedule, first)

    def fails(candidate: Schedule) -> bool:
        if budget[0] <= 0:
            return False
        budget[0] -= 1
        return _kind(simulate(candidate)) == kind

    if not kind or not fails(schedule):
        return schedule
    before = None
    while before != schedule:
        before = schedule
        for field in ("faults", "load"):
            kept = _minimise(
                getattr(schedule, field),
                lambda part, name=field, now=schedule: fails(
                    msgspec.structs.replace(now, **{name: tuple(part)})
                ),
            )
            schedule = msgspec.structs.replace(schedule, **{field: tuple(kept)})
            report(f"{len(schedule.faults)} faults, {len(schedule.load)} Jobs")
        for settings in _simpler(schedule):
            candidate = msgspec.structs.replace(schedule, settings=settings)
            if fails(candidate):
                schedule = candidate
    return schedule


def _kind(outcome: Outcome) -> str:
    """What is wrong, without the names of the objects."""
    if not outcome.findings:
        return ""
    words = outcome.findings[0].split()
    return " ".join(word for word in words if not any(c.isdigit() for c in word))


def _cut_short(schedule: Schedule, outcome: Outcome) -> Schedule:
    """Without what comes after the failure."""
    hours = min(schedule.settings.hours, outcome.at / HOUR)
    return Schedule(
        msgspec.structs.replace(schedule.settings, hours=hours),
        tuple(work for work in schedule.load if work.at <= outcome.at),
        tuple(fault for fault in schedule.faults if fault.at <= outcome.at),
    )


def _minimise(
    elements: Sequence[Element], fails: Callable[[Sequence[Element]], bool]
) -> Sequence[Element]:
    size = len(elements) // 2 or 1
    while elements and size:
        for start in range(0, len(elements), size):
            rest = [*elements[:start], *elements[start + size :]]
            if len(rest) < len(elements) and fails(rest):
                elements = rest
                break
        else:
            size //= 2
    return elements


def _simpler(schedule: Schedule):
    settings = schedule.settings
    if settings.replicas > 1:
        yield msgspec.structs.replace(settings, replicas=1)
    if settings.shuffled:
        yield msgspec.structs.replace(settings, shuffled=False)
