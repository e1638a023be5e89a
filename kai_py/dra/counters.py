"""Shared counters that partitions draw on (KEP-4815), and compatibility groups (KEP-5963).

Counters of all pools of a node view are numbered, so that what is left is one list of integers:

    left[c] = value of c - sum of what allocated devices draw on c

kube-scheduler rejects every partition of a pool in which any counter is overdrawn; that affects
unrelated GPUs and is done for ``AllocationStrategy.FIRST_FIT`` only. Devices on one counter set
must have a compatibility group in common, and those without groups only share it with each other.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kai_py.dra.device_state import PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.rows import UNGROUPED, Consumption, CounterID

CounterDraw = tuple[tuple[int, int], ...]
"""(number of a counter, nano-units) pairs."""

CounterSetID = tuple[int, str]
"""Position of the pool in the view, and name of the counter set."""


class CounterLayout(Struct, frozen=True, eq=False):
    """The counters of a node view, numbered."""

    values: tuple[int, ...]
    draws: tuple[CounterDraw, ...]
    """Per device of the view."""
    numbers: Mapping[tuple[int, CounterID], int]
    """Number of a counter, by position of its pool and its id."""
    by_pool: tuple[Mapping[CounterID, int], ...]
    """By position of the pool: the number of each counter."""
    has_groups: bool
    """Whether any device names compatibility groups."""


def layout_counters(view: NodeDevices) -> CounterLayout:
    """Number the counters of ``view``."""
    numbers: dict[tuple[int, CounterID], int] = {}
    by_pool: list[dict[CounterID, int]] = []
    values: list[int] = []
    for position, pool in enumerate(view.pools):
        by_pool.append({})
        for counter, value in pool.counters.items():
            numbers[position, counter] = by_pool[position][counter] = len(values)
            values.append(value)
    draws = tuple(
        tuple(
            (numbers[pool, (consumption.counter_set, name)], amount)
            for consumption in row.consumes
            for name, amount in consumption.counters
            if (pool, (consumption.counter_set, name)) in numbers
        )
        for row, pool in zip(view.rows, view.pool_of_row, strict=True)
    )
    grouped = any(c.groups != UNGROUPED for row in view.rows for c in row.consumes)
    return CounterLayout(tuple(values), draws, numbers, tuple(by_pool), grouped)


def counters_left(
    layout: CounterLayout, view: NodeDevices, usage: Mapping[PoolID, PoolUsage]
) -> list[int]:
    """What is left of each counter, in nano-units; negative where it is overdrawn."""
    left = list(layout.values)
    for position, pool in enumerate(view.pools):
        pool_usage = usage.get(pool.id)
        if pool_usage is None:
            continue
        numbers = layout.by_pool[position]
        for counter, amount in pool_usage.counters.items():
            number = numbers.get(counter)
            if number is not None:
                left[number] -= amount
    return left


def overdrawn_pools(layout: CounterLayout, left: list[int]) -> frozenset[int]:
    """Positions of pools with a counter below zero."""
    return frozenset(pool for (pool, _), number in layout.numbers.items() if left[number] < 0)


def groups_in_use(
    view: NodeDevices, usage: Mapping[PoolID, PoolUsage]
) -> dict[CounterSetID, frozenset[str]]:
    """The groups that the allocated devices of each counter set have in common.

    None where another scheduler, or a changed slice, brought incompatible ones together.
    """
    common: dict[CounterSetID, frozenset[str]] = {}
    for position, pool in enumerate(view.pools):
        pool_usage = usage.get(pool.id)
        if pool_usage is None:
            continue
        for allocation in pool_usage.devices.values():
            for consumption in allocation.consumes:
                key = (position, consumption.counter_set)
                common[key] = common.get(key, consumption.groups) & consumption.groups
    return common


def groups_with_device(
    pool: int, consumes: Iterable[Consumption], common: Mapping[CounterSetID, frozenset[str]]
) -> dict[CounterSetID, frozenset[str]] | None:
    """The changed groups when a device joins, None when it must not."""
    changed = {}
    for consumption in consumes:
        key = (pool, consumption.counter_set)
        changed[key] = common.get(key, consumption.groups) & consumption.groups
        if not changed[key]:
            return None
    return changed
