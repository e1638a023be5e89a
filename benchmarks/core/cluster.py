"""A cluster in memory, under the scheduler's own planner with its default configuration."""

import gc
from collections.abc import Iterable

from msgspec import Struct

from benchmarks.core.objects import NOW
from kai_py.config import Configuration
from kai_py.plan.plan import Action, Plan
from kai_py.plan.state.eviction_history import EvictionHistory
from kai_py.planner import Planner
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.kinds import WATCHED, WatchedQueue
from kai_py.watch.mirror import FROZEN_AT_ONCE

PLURALS = {kind.name: kind.plural for kind in WATCHED}


class Cluster:
    """Objects as the watch would tell them, and cycles over them.

    ``actions``: those of a cycle; all when there are none.
    """

    actions: tuple[Action, ...] = ()

    def __init__(self, *objects: Iterable[Struct | WatchedQueue]) -> None:
        self.planner = Planner(Configuration())
        for listed in objects:
            self.tell(listed)

    def tell(self, objects: Iterable[Struct | WatchedQueue]) -> None:
        """Add objects; as in the scheduler's own process, no collection walks them again."""
        apply = self.planner.builder.apply
        for number, each in enumerate(objects, 1):
            kind = "queues" if isinstance(each, WatchedQueue) else PLURALS[type(each).__name__]
            apply(kind, None, each)
            if number % FROZEN_AT_ONCE == 0:
                gc.freeze()

    def change(self, old: Struct, new: Struct | None) -> None:
        """Replace an object, or with None delete it."""
        self.planner.builder.apply(PLURALS[type(old).__name__], old, new)

    def snapshot(self) -> Snapshot:
        """The cluster now."""
        return self.planner.freeze(NOW)

    def decide(self, snapshot: Snapshot) -> Plan:
        """One cycle."""
        return self.planner.decide(snapshot, self.actions or None)

    def forget(self) -> None:
        """Let the next cycle find nothing computed before, and no evictions of cycles before."""
        self.planner.reset()
        # They would protect the victims of the last run from being victims of the next.
        self.planner._memory.evictions = EvictionHistory()


def counts(plan: Plan) -> str:
    """How many pods a plan binds, nominates and evicts."""
    bound = sum(len(gang.pods) for gang in plan.placements)
    parts = (
        (bound, "bound"),
        (len(plan.nominations), "nominated"),
        (len(plan.evictions), "evicted"),
    )
    return ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"
