"""GPU weight: the part of a physical GPU that a device takes, in the same way for every vendor.

    whole GPU                      1
    MIG partition ``Ng.*``         N of the compute slices of its GPU
    partition that draws counters  the largest part that it draws of a counter of the set; counters
                                   numbered alike (``memory-slice-0``, …) are one; over all its sets
    other partition                its largest part of the capacity of all partitions of its GPU
    share of a device              the largest part that it consumes of a capacity, times the device
    channels, daemons, NICs        nothing

So the partitions, or the shares, that fill a GPU count as one GPU together. A share of a device
that names no capacity, or consumes nothing of any, may use all of it and counts as the device.
Whole GPUs of a node are counted once, whatever partitions of them are listed beside them.

Sources: NVIDIA's MIG user guide (compute slices), KEP-4815 (counters), KEP-5075 (capacity), the
attributes of ROCm/k8s-gpu-dra-driver (``pciBusID`` is the GPU's for all of its partitions).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from kai_py.api.quantity import QuantityError, parse_quantity, ratio
from kai_py.api.records.resource import DeviceRequestAllocationResult
from kai_py.dra.capacity import ConsumedCapacity, consumed_capacity
from kai_py.dra.identity import AllocationError, PoolID
from kai_py.dra.inventory import Inventory
from kai_py.dra.rows import Consumption, CounterID, DeviceRow, ParsedSlice
from kai_py.snapshot.accounting import MAX_MIG_SLICES, MIG_SLICES_PER_GPU

_PROFILE = re.compile(r"^(\d+)g\.")
_NUMBER = re.compile(r"[-_]?\d+$")
_NO_GPU_TYPES = frozenset({"channel", "daemon", "nic"})
_PARENTS = ("parentUUID", "resource.kubernetes.io/pciBusID", "pciAddr")
FOUR_SLICE_PRODUCTS = ("A30", "RTX PRO 6000")
"""NVIDIA's GPUs with four compute slices; all others with MIG have seven."""


class PoolWeights(Struct, frozen=True):
    """The GPUs that each device of a pool counts as, and that the pool adds to each node.

    ``rows``, ``by_device``: by name of a device; ``by_node``: by name of a node.
    """

    rows: Mapping[str, DeviceRow]
    by_device: Mapping[str, float]
    by_node: Mapping[str, float]


class GpuWeights(Struct):
    """The weights of an inventory's devices, computed once per version of a pool."""

    inventory: Inventory
    _pools: dict[PoolID, PoolWeights] = field(default_factory=dict)

    def of(self, row: DeviceRow) -> float:
        """The weight of a device that is allocated whole, if it is of a driver of GPUs."""
        return self.of_pool(row.id.pool_id).by_device.get(row.id.device, 1.0)

    def of_pool(self, pool: PoolID) -> PoolWeights:
        """The weights of a pool."""
        rows, known = self.inventory.devices(pool), self._pools.get(pool)
        if known is None or known.rows is not rows:
            known = self._pools[pool] = _pool_weights(rows, self.inventory.pool_slices(pool))
        return known

    def forget(self, pools: Iterable[PoolID]) -> None:
        """Drop what is known of pools that no slice publishes any more."""
        listed = frozenset(pools)
        self._pools = {pool: known for pool, known in self._pools.items() if pool in listed}


def share_of(row: DeviceRow, result: DeviceRequestAllocationResult) -> float:
    """The part of a device that an allocation takes: all of it, unless it consumes capacity."""
    try:
        amounts = {n: parse_quantity(value).nano for n, value in result.consumed_capacity.items()}
    except QuantityError:
        return 1.0
    return _largest_part(row, tuple(amounts.items())) if row.shareable else 1.0


def requested_share(row: DeviceRow, requested: Mapping[str, int]) -> float:
    """The part of a device that a request takes; ``requested``: nano-units by capacity."""
    if not row.shareable:
        return 1.0
    try:
        consumed = consumed_capacity(row.capacities, requested, fractional=True)
    except AllocationError:
        return 1.0
    return 1.0 if consumed is None else _largest_part(row, consumed)


def _largest_part(row: DeviceRow, consumed: ConsumedCapacity) -> float:
    values = {capacity.name: capacity.value for capacity in row.capacities}
    parts = [ratio(amount, values[name]) for name, amount in consumed if values.get(name, 0) > 0]
    return min(max(parts, default=0.0), 1.0) or 1.0


def _pool_weights(rows: Mapping[str, DeviceRow], slices: Sequence[ParsedSlice]) -> PoolWeights:
    counters: dict[CounterID, int] = {}
    for parsed in slices:
        counters.update(parsed.counters)
    totals = _counter_totals(counters)
    siblings: dict[str, list[DeviceRow]] = {}
    for row in rows.values():
        parent = _parent_without_counters(row)
        if parent:
            siblings.setdefault(parent, []).append(row)
    weights: dict[str, float] = {}
    for name, row in rows.items():
        if row.text("type") in _NO_GPU_TYPES:
            weights[name] = 0.0
        elif _PROFILE.match(row.text("profile")):
            weights[name] = _mig_part(row)
        elif row.consumes:
            weights[name] = sum(_part_of_set(each, totals) for each in row.consumes)
        else:
            weights[name] = _part_of_siblings(row, siblings.get(_parent_without_counters(row), ()))
    return PoolWeights(rows, weights, _gpus_by_node(rows, weights))


def _mig_part(row: DeviceRow) -> float:
    profile = _PROFILE.match(row.text("profile"))
    slices = min(int(profile.group(1)), MAX_MIG_SLICES) if profile else MAX_MIG_SLICES
    is_small = any(name in row.text("productName") for name in FOUR_SLICE_PRODUCTS)
    return slices / (4.0 if is_small else MIG_SLICES_PER_GPU)


def _counter_totals(counters: Mapping[CounterID, int]) -> dict[CounterID, int]:
    """Values by set and name without its number."""
    totals: dict[CounterID, int] = {}
    for (counter_set, name), value in counters.items():
        key = counter_set, _NUMBER.sub("", name)
        totals[key] = totals.get(key, 0) + max(value, 0)
    return totals


def _part_of_set(draw: Consumption, totals: Mapping[CounterID, int]) -> float:
    drawn: dict[str, int] = {}
    for name, amount in draw.counters:
        key = _NUMBER.sub("", name)
        drawn[key] = drawn.get(key, 0) + max(amount, 0)
    parts = [
        ratio(amount, total)
        for name, amount in drawn.items()
        if (total := totals.get((draw.counter_set, name), 0)) > 0
    ]
    return min(max(parts, default=0.0), 1.0) or 1.0


def _parent_without_counters(row: DeviceRow) -> str:
    """The GPU of a partition that draws on no counters; "" for whole GPUs."""
    if row.consumes or not (row.text("parentUUID") or row.text("type").endswith("partition")):
        return ""
    return next((text for name in _PARENTS if (text := row.text(name))), "")


def _part_of_siblings(row: DeviceRow, siblings: Sequence[DeviceRow]) -> float:
    if not siblings:
        return 1.0
    totals: dict[str, int] = {}
    for each in siblings:
        for capacity in each.capacities:
            totals[capacity.name] = totals.get(capacity.name, 0) + max(capacity.value, 0)
    parts = [
        ratio(each.value, totals[each.name]) for each in row.capacities if totals[each.name] > 0
    ]
    return max(parts, default=0.0) or 1.0 / len(siblings)


def _gpus_by_node(
    rows: Mapping[str, DeviceRow], weights: Mapping[str, float]
) -> Mapping[str, float]:
    """Whole GPUs, and partitions of those that are not listed whole; "" for no single node."""
    whole = {uuid for row in rows.values() if (uuid := row.text("uuid"))}
    by_set: dict[tuple[str, str], float] = {}
    gpus: dict[str, float] = {}
    for name, row in rows.items():
        node = row.reach.node_name
        if row.consumes:
            for draw in row.consumes:
                part = weights[name] / len(row.consumes)
                by_set[node, draw.counter_set] = by_set.get((node, draw.counter_set), 0.0) + part
        elif row.text("parentUUID") not in whole:
            gpus[node] = gpus.get(node, 0.0) + weights[name]
    for (node, _), total in by_set.items():
        gpus[node] = gpus.get(node, 0.0) + min(total, 1.0)
    return gpus
