"""``kai-py migrate --plan``: what becomes of each gang when kai_py takes over from KAI.

The cluster is read once, and one cycle is planned for it; nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kai_py.cli.output import print_table, say
from kai_py.plan.plan import Eviction, Plan
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("GANG", "QUEUE", "NOW", "HERE", "WHY")


class SwitchEffect(StrEnum):
    """What becomes of a gang."""

    RUNS = "runs"
    STARTS = "starts"
    WAITS = "waits"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class SwitchOutcome:
    """What becomes of a gang; ``bound`` of its ``pods`` are bound now."""

    gang: str
    queue: str
    bound: int
    pods: int
    outcome: SwitchEffect
    why: str


def gang_outcomes(snapshot: Snapshot, plan: Plan) -> Iterator[SwitchOutcome]:
    """One outcome per gang, by key. A gang of which pods are evicted counts as evicted."""
    evicted: dict[str, Eviction] = {}
    for eviction in plan.evictions:
        evicted.setdefault(eviction.gang, eviction)
    waiting = {each.gang: each.message for each in plan.unplaced}
    placed = {each.gang for each in plan.placements}
    nominated = {each.gang for each in plan.nominations}
    for key, gang in sorted(snapshot.gangs.items()):
        if key in evicted:
            yield _outcome(gang, SwitchEffect.EVICTED, evicted[key].reason)
        elif key in placed:
            yield _outcome(gang, SwitchEffect.STARTS, "")
        elif key in nominated:
            yield _outcome(gang, SwitchEffect.STARTS, "once its victims have ended")
        elif key in waiting:
            yield _outcome(gang, SwitchEffect.WAITS, waiting[key])
        else:
            yield _outcome(gang, SwitchEffect.RUNS, "")


def _outcome(gang: Gang, outcome: SwitchEffect, why: str) -> SwitchOutcome:
    return SwitchOutcome(gang.key, gang.queue, len(gang.bound), len(gang.members), outcome, why)


def print_outcomes(outcomes: Sequence[SwitchOutcome]) -> None:
    """Print the gangs that do not just go on, and how many there are of each outcome."""
    rows = [
        (
            each.gang,
            each.queue or "-",
            f"{each.bound}/{each.pods} bound",
            each.outcome.value,
            each.why,
        )
        for each in outcomes
        if each.outcome is not SwitchEffect.RUNS
    ]
    if rows:
        print_table(HEADINGS, rows)
    counts = [(sum(each.outcome is known for each in outcomes), known) for known in SwitchEffect]
    say(", ".join(f"{known.value}: {count}" for count, known in counts))
