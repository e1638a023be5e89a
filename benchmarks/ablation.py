"""What each shortcut of a cycle is worth: ``python -m benchmarks.ablation``.

Both versions alternate in one process, so that a busy machine slows both; of each the fastest run
counts. The plans must be the same, byte for byte. ``docs/cycle.md`` has the table.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest.mock import patch

from benchmarks.core.cluster import Cluster
from benchmarks.core.scenarios import SCENARIOS, Scenario
from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.plan import Plan
from kai_py.plan.victims import count
from kai_py.plan.victims.batch import VictimBatch
from kai_py.plan.victims.selection import VictimSelection
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.mirror import freeze_memory

RUNS = 7
Version = Callable[[], AbstractContextManager[None]]

ROWS = (
    "allocate",
    "gangs",
    "full-cycle",
    "many-queues",
    "singles-1000-1k",
    "reclaim-large",
    "reclaim-many-200",
    "preempt-nodes",
)


@contextmanager
def _one_by_one() -> Iterator[None]:
    with patch.object(EquivalentGangs, "place_batch", lambda _: False):
        yield


@contextmanager
def _victims_one_by_one() -> Iterator[None]:
    with patch.object(VictimBatch, "run", lambda *_: None):
        yield


@contextmanager
def _counted_one_by_one() -> Iterator[None]:
    """As if every single candidate could be enough, and every one could stay."""
    with (
        patch.object(count.CapacityCount, "missing", 0),
        patch.object(count, "MANY_NODES", 1 << 40),
        patch.object(VictimSelection, "must_leave", lambda *_: set()),
    ):
        yield


SHORTCUTS: dict[str, Version] = {
    "batches of equal gangs": _one_by_one,
    "batches of equal preemptors": _victims_one_by_one,
    "candidates counted together": _counted_one_by_one,
}


def main() -> None:
    """Print a table: seconds with everything, and the factor without each shortcut."""
    print("| row | with all |" + "".join(f" without {name} |" for name in SHORTCUTS))
    print("| --- | ---: |" + " ---: |" * len(SHORTCUTS))
    for scenario in SCENARIOS:
        if scenario.name in ROWS:
            _print_row(scenario)


def _print_row(scenario: Scenario) -> None:
    cluster = scenario.build(1)
    snapshot = cluster.snapshot()
    versions: list[Version] = [nullcontext, *SHORTCUTS.values()]
    best, plans = [float("inf")] * len(versions), list[str]()
    for run in range(RUNS):
        for at, version in enumerate(versions):
            with version():
                seconds, plan = _timed(cluster, snapshot)
            best[at] = min(best[at], seconds)
            if not run:
                plans.append(repr(plan))
    factors = [
        f" ×{seconds / best[0]:.1f}{'' if plan == plans[0] else ', another plan'} |"
        for seconds, plan in zip(best[1:], plans[1:], strict=True)
    ]
    print(f"| {scenario.name} | {best[0] * 1e3:.1f} ms |" + "".join(factors), flush=True)


def _timed(cluster: Cluster, snapshot: Snapshot) -> tuple[float, Plan]:
    freeze_memory()
    cluster.forget()
    began = time.process_time()
    plan = cluster.decide(snapshot)
    return time.process_time() - began, plan


if __name__ == "__main__":
    main()
