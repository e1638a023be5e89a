"""Do the counters that a partition draws on still hold enough (KEP 4815)?

Counters of all pools of a node view are numbered, so that what is left is one list of integers:

    left[c] = value of c - sum of what held devices draw on c

Upstream refuses every partition of a pool in which any counter is overdrawn; that concerns other
GPUs too and is kept for ``Choice.FIRST_FIT`` only. Compatibility groups (KEP 5963): devices on one
counter set must have a group in common, and those without groups keep to themselves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kai_py.dra.device_state import PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.rows import Consumption, CounterID

CounterDraw = tuple[tuple[int, int], ...]
"""(number of a counter, nano-units) pairs."""

CounterSetID = tuple[int, str]
"""Position of the pool in the view, and counter set."""


@dataclass(frozen=True, slots=True, eq=False)
class CounterLayout:
    """The counters of a node view, numbered."""

    values: tuple[int, ...]
    draws: tuple[CounterDraw, ...]
    """Per device of the view."""
    numbers: Mapping[tuple[int, CounterID], int]
    """(position of the pool, counter) to its number."""
    by_pool: tuple[Mapping[CounterID, int], ...]
    """The same for each pool of the view."""
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
    grouped = any(c.groups for row in view.rows for c in row.consumes)
    return CounterLayout(tuple(values), draws, numbers, tuple(by_pool), grouped)


def counters_left(
    layout: CounterLayout, view: NodeDevices, usage: Mapping[PoolID, PoolUsage]
) -> list[int]:
    """Return what is left of each counter; negative where it is overdrawn."""
    left = list(layout.values)
    for position, pool in enumerate(view.pools):
        held = usage.get(pool.id)
        if held is None:
            continue
        numbers = layout.by_pool[position]
        for counter, amount in held.counters.items():
            number = numbers.get(counter)
            if number is not None:
                left[number] -= amount
    return left


def overdrawn_pools(layout: CounterLayout, left: list[int]) -> frozenset[int]:
    """Return the positions of pools with a counter below zero."""
    return frozenset(pool for (pool, _), number in layout.numbers.items() if left[number] < 0)


def groups_in_use(
    view: NodeDevices, usage: Mapping[PoolID, PoolUsage]
) -> dict[CounterSetID, frozenset[str]]:
    """Return the groups that the held devices of each counter set have in common."""
    common: dict[CounterSetID, frozenset[str]] = {}
    for position, pool in enumerate(view.pools):
        held = usage.get(pool.id)
        if held is None:
            continue
        for holding in held.devices.values():
            for consumption in holding.consumes:
                key = (position, consumption.counter_set)
                common[key] = common.get(key, consumption.groups) & consumption.groups
    return common


def groups_with_device(
    pool: int, consumes: Iterable[Consumption], common: Mapping[CounterSetID, frozenset[str]]
) -> dict[CounterSetID, frozenset[str]] | None:
    """Return the changed groups when a device joins, None when it must not."""
    changed = {}
    for consumption in consumes:
        key = (pool, consumption.counter_set)
        before = common.get(key)
        after = consumption.groups if before is None else before & consumption.groups
        if before is not None and not after and (before or consumption.groups):
            return None
        changed[key] = after
    return changed
