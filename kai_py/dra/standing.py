"""Who holds the devices that one node sees, in positions of the node's view instead of names.

Nodes whose views are alike and whose standing is equal have the same answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.dra.counters import (
    CounterLayout,
    CounterSetID,
    counters_left,
    groups_in_use,
    overdrawn_pools,
)
from kai_py.dra.features import Choice
from kai_py.dra.holdings import NOTHING, Holding, PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeView


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What is held before a search begins; never changed."""

    holdings: tuple[Holding, ...]
    """Per device of the view."""
    left: tuple[int, ...]
    """Per counter what is left of it, in nano-units; negative where it is overdrawn."""
    groups: Mapping[CounterSetID, frozenset[str]] = field(default_factory=dict)
    overdrawn: frozenset[int] = frozenset()
    """Positions of pools whose partitions are refused because some counter is overdrawn."""


def standing_of(
    view: NodeView, layout: CounterLayout, usage: Mapping[PoolID, PoolUsage], choice: Choice
) -> Standing:
    """Look up what is held of the devices and counters of ``view``."""
    holdings = [NOTHING] * len(view.rows)
    for pool, positions in zip(view.pools, view.positions, strict=True):
        held = usage.get(pool.id)
        for name, holding in held.holdings.items() if held is not None else ():
            if name in positions:
                holdings[positions[name]] = holding
    left = counters_left(layout, view, usage)
    return Standing(
        holdings=tuple(holdings),
        left=tuple(left),
        groups=groups_in_use(view, usage) if layout.grouped else {},
        overdrawn=overdrawn_pools(layout, left) if choice is Choice.FIRST_FIT else frozenset(),
    )
