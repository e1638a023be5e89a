"""Resource pools that one node can use: their status, and the physical devices in them.

A pool is the slices of its newest generation. It is

    incomplete   while fewer slices exist anywhere than the pool says it has,
    invalid      when a device or counter set occurs twice, or a device draws on an unknown
                 counter, also where the fault is in a slice for another node,
    obsolete     for a node that only sees an older generation; then it is left out.

Order: pools by driver and name, those with binding conditions after all others; slices by name;
devices as listed.

A physical device is the partitions of a pool that draw on one counter set. It is exhausted when no
partition of it finds the counters it draws on: then it does not matter which of its partitions are
allocated. Devices with shareable partitions, or with partitions on several counter sets, never
count as exhausted, nor do overdrawn ones.

Complexity: O(devices) once per pool; equal physical devices share their results.
Source: KEP-4381, KEP-4815, KEP-5007; reference allocator of Kubernetes 1.37.
"""

import enum
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import msgspec
from msgspec import Struct, field

from kai_py.api.records.node import Node
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import CounterID, DeviceRow, ParsedSlice

Draw = tuple[tuple[str, int], ...]
"""(counter, nano-units) pairs."""

DEVICE_CACHE_SIZE = 4096
ALLOCATION_CACHE_SIZE = 100_000


class PhysicalDevice(Struct, frozen=True, eq=False):
    """Partitions that draw on one counter set, by position in it."""

    values: Draw
    draws: tuple[Draw, ...]
    _exhausted: dict[tuple[int, ...], bool] = msgspec.field(default_factory=dict)
    """By the positions of the allocated partitions."""

    def is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        """Whether nothing more can be taken while the partitions at ``allocated`` are."""
        cached = self._exhausted.get(allocated)
        if cached is None:
            if len(self._exhausted) >= ALLOCATION_CACHE_SIZE:
                self._exhausted.clear()
            cached = self._exhausted[allocated] = self._is_exhausted(allocated)
        return cached

    def _is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        left = dict(self.values)
        for position in allocated:
            for name, amount in self.draws[position]:
                left[name] = left.get(name, 0) - amount
        if min(left.values(), default=0) < 0:
            return False
        return not any(
            all(left.get(name, 0) >= amount for name, amount in draw) for draw in self.draws
        )


class PhysicalDevices(Struct, frozen=True, eq=False):
    """The physical devices of a pool by partition; None for a device that is no partition."""

    by_partition: tuple[PhysicalDevice | None, ...]
    positions: tuple[int, ...]
    """For each device, its position among the partitions of its physical device."""
    first_partitions: tuple[int, ...]
    """For each device, the first partition of its physical device."""


def physical_devices(rows: Sequence[DeviceRow], counters: dict[CounterID, int]) -> PhysicalDevices:
    """Group the devices of a pool by counter set; ``counters`` are the sets' values."""
    members: dict[str, list[int]] = {}
    excluded: dict[str, None] = {}
    for number, row in enumerate(rows):
        for consumption in row.consumes:
            members.setdefault(consumption.counter_set, []).append(number)
            if len(row.consumes) > 1 or row.shareable:
                excluded[consumption.counter_set] = None
    values: dict[str, list[tuple[str, int]]] = {}
    for (counter_set, name), value in counters.items():
        values.setdefault(counter_set, []).append((name, value))
    devices: list[PhysicalDevice | None] = [None] * len(rows)
    positions, firsts = [0] * len(rows), [0] * len(rows)
    for counter_set, numbers in members.items():
        if counter_set in excluded:
            continue
        draws = tuple(rows[number].consumes[0].counters for number in numbers)
        device = _physical_device(tuple(values.get(counter_set, ())), draws)
        for position, number in enumerate(numbers):
            devices[number], positions[number], firsts[number] = device, position, numbers[0]
    return PhysicalDevices(tuple(devices), tuple(positions), tuple(firsts))


@lru_cache(maxsize=DEVICE_CACHE_SIZE)
def _physical_device(values: Draw, draws: tuple[Draw, ...]) -> PhysicalDevice:
    return PhysicalDevice(values, draws)


class PoolStatus(enum.Enum):
    """Whether devices of a pool may be allocated."""

    READY = "ready"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class Pool(Struct, frozen=True, eq=False, dict=True):
    """A pool as one node sees it."""

    id: PoolID
    rows: tuple[DeviceRow, ...]
    counters: dict[CounterID, int] = field(default_factory=dict)
    """The values of the counter sets when nothing is allocated, in nano-units."""
    status: PoolStatus = PoolStatus.READY
    detail: str = ""
    """Why the pool is not ready, for people."""
    has_binding_conditions: bool = False

    @cached_property
    def positions(self) -> dict[str, int]:
        """Position of each device among ``rows``, by name."""
        return {row.id.device: number for number, row in enumerate(self.rows)}

    @cached_property
    def physical_devices(self) -> PhysicalDevices:
        """The physical devices of which the devices of ``rows`` are partitions."""
        return physical_devices(self.rows, self.counters)


def gather_pools(
    node: Node,
    slices_by_pool: Iterable[tuple[PoolID, Sequence[ParsedSlice]]],
    features: Features,
    strategy: AllocationStrategy,
) -> tuple[Pool, ...]:
    """The pools that ``node`` sees, in the order in which they are searched.

    ``slices_by_pool``: as ``Inventory.pool_slices`` gives them.
    """
    pools = []
    for pool_id, slices in slices_by_pool:
        readable = [parsed for parsed in slices if _is_readable(parsed, features)]
        pool = _pool(
            pool_id,
            node,
            readable,
            _counted_slices(slices, features),
            features=features,
            strategy=strategy,
        )
        if pool is not None:
            pools.append(pool)
    return tuple(sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.id)))


def pool_fault(slices: Sequence[ParsedSlice], features: Features) -> str:
    """Why no node can use the pool of ``slices`` (all of one pool); "" if nodes can."""
    newest = _newest(_counted_slices(slices, features))
    if not newest:
        return ""
    pool = newest[0].slice.spec.pool
    expected, counters = pool.resource_slice_count, features.partitionable_devices
    status, detail = _pool_status(newest, newest, expected, counters=counters)
    if status is PoolStatus.READY:
        return ""
    if status is PoolStatus.INCOMPLETE:
        detail = f"spec.pool.resourceSliceCount: there are {detail}"
    return f"pool {pool.name} is {status.value}, its devices are not used: {detail}"


def _counted_slices(slices: Sequence[ParsedSlice], features: Features) -> list[ParsedSlice]:
    """Slices that count towards completeness; unsupported compatibility groups don't."""
    return [parsed for parsed in slices if features.compatibility_groups or not parsed.has_groups]


def _is_readable(parsed: ParsedSlice, features: Features) -> bool:
    spec = parsed.slice.spec
    if parsed.has_groups and not features.compatibility_groups:
        return False
    partitioned = spec.per_device_node_selection or bool(spec.shared_counters)
    return features.partitionable_devices or not partitioned


def _pool(
    pool_id: PoolID,
    node: Node,
    readable: Sequence[ParsedSlice],
    all_slices: Sequence[ParsedSlice],
    *,
    features: Features,
    strategy: AllocationStrategy,
) -> Pool | None:
    visible = _newest(parsed for parsed in readable if parsed.visible_from(node))
    if not visible:
        return None
    generation = visible[0].slice.spec.pool.generation
    expected = visible[0].slice.spec.pool.resource_slice_count
    complete = visible
    if len(visible) != expected:
        if any(parsed.slice.spec.pool.generation > generation for parsed in all_slices):
            return None
        complete = [p for p in all_slices if p.slice.spec.pool.generation == generation]
    status, detail = _pool_status(
        visible, complete, expected, counters=features.partitionable_devices
    )
    return Pool(
        id=pool_id,
        rows=tuple(row for parsed in visible for row in _devices(parsed, strategy)),
        counters={key: value for p in complete for key, value in p.counters.items()},
        status=status,
        detail=detail,
        has_binding_conditions=status is PoolStatus.READY
        and any(parsed.has_binding_conditions for parsed in visible),
    )


def _devices(parsed: ParsedSlice, strategy: AllocationStrategy) -> tuple[DeviceRow, ...]:
    """The devices of a slice.

    First fit skips those in one slice with counters, as Kubernetes 1.37 does; drivers for 1.34
    published such slices.
    """
    if strategy is AllocationStrategy.FIRST_FIT and parsed.slice.spec.shared_counters:
        return ()
    return parsed.rows


def _newest(slices: Iterable[ParsedSlice]) -> list[ParsedSlice]:
    newest: list[ParsedSlice] = []
    for parsed in slices:
        generation = parsed.slice.spec.pool.generation
        if newest and generation > newest[0].slice.spec.pool.generation:
            newest = []
        if not newest or generation == newest[0].slice.spec.pool.generation:
            newest.append(parsed)
    return newest


def _pool_status(
    visible: Sequence[ParsedSlice],
    complete: Sequence[ParsedSlice],
    expected: int,
    *,
    counters: bool,
) -> tuple[PoolStatus, str]:
    if len(complete) != expected:
        return PoolStatus.INCOMPLETE, f"{len(complete)} of {expected} slices"
    fault = next((parsed.problem for parsed in complete if parsed.problem), "")
    fault = fault or _repeated_device(visible) or (_counter_fault(complete) if counters else "")
    return (PoolStatus.INVALID, fault) if fault else (PoolStatus.READY, "")


def _repeated_device(slices: Sequence[ParsedSlice]) -> str:
    names: set[str] = set()
    for parsed in slices:
        for row in parsed.rows:
            if row.id.device in names:
                return f"device {row.id} is listed twice"
            names.add(row.id.device)
    return ""


def _counter_fault(slices: Sequence[ParsedSlice]) -> str:
    names: set[str] = set()
    known: set[CounterID] = set()
    for parsed in slices:
        for counter_set in parsed.slice.spec.shared_counters:
            if counter_set.name in names:
                return f"counter set {counter_set.name} is listed twice"
            names.add(counter_set.name)
        known |= parsed.counters.keys()
    for parsed in slices:
        for row in parsed.rows:
            fault = _unknown_counter(row, names, known)
            if fault:
                return fault
    return ""


def _unknown_counter(row: DeviceRow, names: set[str], known: set[CounterID]) -> str:
    for consumption in row.consumes:
        if consumption.counter_set not in names:
            return f"device {row.id} draws on unknown counter set {consumption.counter_set}"
        for counter, _ in consumption.counters:
            if (consumption.counter_set, counter) not in known:
                return f"device {row.id} draws on unknown counter {counter}"
    return ""
