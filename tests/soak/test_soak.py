"""Nothing in the scheduler's process grows with the number of pods that ever were."""

import gc
import os
import sys
from pathlib import Path

import pytest

from kai_py.api.records import interning
from kai_py.dra import cluster_allocator, cluster_devices, device_kinds, spending
from kai_py.dra.selectors import masks, table
from kai_py.grouping import grouper
from kai_py.observe import share_history
from kai_py.policy import fit, runtime_history
from kai_py.snapshot import pod_selection, shape
from tests.soak import cluster as churn
from tests.soak.cluster import ChurningCluster
from tests.soak.containers import caches, unbounded_caches

BOUNDS = (
    (interning, "MAX_INTERNED"),
    (shape, "RECENT_SHAPES"),
    (pod_selection, "MAX_INDEXED_LABELS"),
    (share_history, "MAX_SAMPLES"),
    (fit, "STATIC_FITS_KEPT"),
    (runtime_history, "MAX_KINDS"),
    (cluster_allocator, "QUERY_CACHE_SIZE"),
    (device_kinds, "SELECTIONS_KEPT"),
    (spending, "MAX_TEXTS"),
    (table, "MAX_COLUMNS"),
    (masks, "MAX_MASKS"),
    (cluster_devices, "MAX_CHANGES"),
    (grouper, "CACHE_LIMIT"),
    (churn, "KEPT_DECISIONS"),
)
"""The bounds of caches, which the test makes small so that they are reached."""

WITHOUT_OUTSIDE_KEYS = {
    "_grouping",
    "_names",
    "_parser",
    "_shipped",
    "_shape",
    "_table",
    "_types",
    "device_environment",
    "parse_type",
    "shipped_rules",
}
"""Their arguments are types, or constants of the package."""

SOAK_PODS = int(os.environ.get("SOAK_PODS", "1000000"))


def high_water(soaked: ChurningCluster, gangs: range) -> dict[str, int]:
    """The largest sizes while ``gangs`` live; caches are dropped now and then."""
    highest: dict[str, int] = {}
    for first in gangs[::10]:
        soaked.live_through(range(first, first + 10))
        for path, size in soaked.sizes().items():
            highest[path] = max(size, highest.get(path, 0))
    return highest


def grown(before: dict[str, int], after: dict[str, int], slack: int) -> dict[str, tuple[int, int]]:
    return {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > 1.25 * before.get(path, 0) + slack
    }


def allocated_blocks() -> int:
    """Blocks of memory in use once the functions that remember have forgotten."""
    for function in caches():
        function.cache_clear()
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.slow
def test_no_container_grows_with_the_pods_that_ever_were(monkeypatch):
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, 16)
    monkeypatch.setattr(cluster_allocator, "MAX_CACHED", 500)
    soaked = ChurningCluster()
    soaked.live_through(range(20))
    before, blocks = high_water(soaked, range(20, 120)), allocated_blocks()
    after = high_water(soaked, range(120, 220))
    assert soaked.lives == 2640
    assert grown(before, after, slack=15) == {}
    # What no container shows: closures, weak references, what extensions hold.
    assert allocated_blocks() < 1.02 * blocks


def test_a_function_that_remembers_forgets_as_well():
    assert {name.rpartition(".")[2] for name in unbounded_caches()} <= WITHOUT_OUTSIDE_KEYS


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_memory_is_flat_over_a_million_pods():
    """Resident memory at the end is within a tenth of that after a fifth, when caches are full."""
    soaked = ChurningCluster()
    gangs = SOAK_PODS // (churn.PODS_PER_GANG + churn.ODD_PODS)
    soaked.live_through(range(gangs // 5))
    before = _resident_mib()
    soaked.live_through(range(gangs // 5, gangs))
    after = _resident_mib()
    print(f"{soaked.lives} pods: {before:.0f} MiB after a fifth, {after:.0f} MiB at the end")
    assert after < 1.1 * before


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(each for each in status.splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
