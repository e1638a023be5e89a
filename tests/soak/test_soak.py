"""Nothing in the scheduler's process grows with the number of pods that ever were."""

import gc
import importlib
import os
import pkgutil
import subprocess
import sys

import msgspec
import pytest

import kai_py
from kai_py.api.records import interning
from kai_py.dra import cluster_allocator, cluster_devices, device_kinds, spending
from kai_py.dra.selectors import masks, table
from kai_py.grouping import grouper
from kai_py.observe import kept_history
from kai_py.policy import fit, runtime_history
from kai_py.snapshot import selection_index, shape
from tests.soak import cluster as churn
from tests.soak.cluster import GANGS_AT_ONCE, ChurningCluster
from tests.soak.containers import caches, unbounded_caches
from tests.soak.run import Sample

BOUNDS = (
    (interning, "MAX_INTERNED"),
    (shape, "RECENT_SHAPES"),
    (selection_index, "MAX_INDEXED_LABELS"),
    (kept_history, "MAX_SAMPLES"),
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
    "_queue_schema",
    "_schemas",
    "_served_versions",
    "_shipped",
    "_shape",
    "_table",
    "device_environment",
    "grouping",
    "parse_type",
    "shipped_rules",
    "shipped_table",
    "types_of",
}
"""Their arguments are types, or constants of the package."""

SOAK_PODS = int(os.environ.get("SOAK_PODS", "1000000"))


def high_water(soaked: ChurningCluster, gangs: range) -> dict[str, int]:
    """The largest sizes while ``gangs`` live; caches are dropped now and then."""
    sizes: dict[str, int] = {}
    for first in gangs[::GANGS_AT_ONCE]:
        soaked.live_through(range(first, first + GANGS_AT_ONCE))
        for path, size in soaked.sizes().items():
            sizes[path] = max(size, sizes.get(path, 0))
    return sizes


def grown(
    before: dict[str, int], after: dict[str, int], slack: int, factor: float = 1.25
) -> dict[str, tuple[int, int]]:
    return {
        path: (before.get(path, 0), size)
        for path, size in after.items()
        if size > factor * before.get(path, 0) + slack
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
    soaked.live_through(range(16))
    before, blocks = high_water(soaked, range(16, 112)), allocated_blocks()
    after = high_water(soaked, range(112, 208))
    assert soaked.lives > 2500
    assert soaked.allocated > 800
    assert soaked.evicted > 80
    assert grown(before, after, slack=10) == {}
    # What no container shows: closures, weak references, what extensions hold.
    assert allocated_blocks() < 1.02 * blocks


def test_a_function_that_remembers_forgets_as_well():
    # All modules, whatever other tests have imported.
    for module in pkgutil.walk_packages(kai_py.__path__, "kai_py."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    assert {name.rpartition(".")[2] for name in unbounded_caches()} <= WITHOUT_OUTSIDE_KEYS


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_memory_is_flat_over_a_million_pods():
    """Every cache is full before half of them have lived: the slowest after 410,000."""
    command = [sys.executable, "-m", "tests.soak.run", str(SOAK_PODS), "--sizes"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    samples = [msgspec.json.decode(line, type=Sample) for line in output.splitlines()]
    half = len(samples) // 2
    before, after = samples[:half], samples[half:]
    print(before[-1], after[-1], sep="\n")
    assert after[-1].evicted > before[-1].evicted > 0
    assert max(each.resident for each in after) < 1.1 * max(each.resident for each in before)
    # Caches that are emptied when they are full are seen at any size.
    assert grown(highest(before), highest(after), slack=100, factor=1.5) == {}


def highest(samples: list[Sample]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for sample in samples:
        for path, size in sample.sizes.items():
            sizes[path] = max(size, sizes.get(path, 0))
    return sizes
