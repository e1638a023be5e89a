"""How many pods empty nodes hold, for explanations and for the demand of queues.

It is computed for two sets of nodes: those that admit a shape now (``StaticFits``), and those that
*eventually* do, once cordons, unreadiness and other passing states have ended. For the latter
``EmptyNodes`` remembers the totals.
"""

from dataclasses import dataclass, field

import numpy as np

from kai_py.api.bounded import remember
from kai_py.policy.fit import matches_own_selectors, replicas_that_fit
from kai_py.policy.node_filters import constraints_of, eventually_tolerated, matches_selector
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

FIRST_NODES = 512
MANY_NODES = 4 * FIRST_NODES
ADMITTED_KEPT = 64
MOST_PODS = 1 << 20
"""More pods than one node holds: keeps sums over nodes within int64."""


def eventually_admitted(shape: Shape, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: its selector, affinity, lasting taints and volumes admit the node."""
    mask = matches_own_selectors(shape, nodes) & eventually_tolerated(shape.tolerations, nodes)
    for selector in shape.volume_selectors:
        mask = mask & matches_selector(selector, nodes)
    return mask


def replicas_on_empty(
    shape: Shape, nodes: NodeColumns, resources: ResourceIndex, admitted: Bools
) -> Ints:
    """(nodes,) int64: how many pods of ``shape`` each ``admitted`` node holds by resources.

    At most ``MOST_PODS`` each.
    """
    whole = nodes.allocatable
    fit = replicas_that_fit(shape, resources, whole, admitted, whole)
    return np.minimum(fit, MOST_PODS)


@dataclass
class EmptyNodes:
    """How many pods of a shape empty nodes hold by resources; counted once while they are the same.

    All nodes that eventually admit the shape count. Of many nodes the first ones are counted first,
    as a rule they suffice.
    """

    _generation: int = -1
    _totals: dict[int, int] = field(default_factory=dict)
    _first: NodeColumns | None = None
    _first_totals: dict[int, int] = field(default_factory=dict)
    _admitted: dict[bytes, Bools] = field(default_factory=dict)

    def total(self, snapshot: Snapshot, shape: Shape) -> int:
        """How many pods of ``shape`` all nodes together hold."""
        self._refresh(snapshot.nodes)
        known = self._totals.get(shape.number)
        if known is None:
            nodes = snapshot.nodes
            fit = replicas_on_empty(shape, nodes, snapshot.resources, self._admits(shape, nodes))
            known = self._totals[shape.number] = int(fit.sum())
        return known

    def hold(self, snapshot: Snapshot, shape: Shape, count: int) -> bool:
        """Whether all nodes together hold ``count`` pods of ``shape``."""
        self._refresh(snapshot.nodes)
        if self._first is None or shape.number in self._totals:
            return self.total(snapshot, shape) >= count
        found = self._first_totals.get(shape.number)
        if found is None:
            admitted = eventually_admitted(shape, self._first)
            fit = replicas_on_empty(shape, self._first, snapshot.resources, admitted)
            found = self._first_totals[shape.number] = int(fit.sum())
        return found >= count or self.total(snapshot, shape) >= count

    def first(self, snapshot: Snapshot) -> NodeColumns | None:
        """The first of many nodes; None if there are few."""
        self._refresh(snapshot.nodes)
        return self._first

    def _admits(self, shape: Shape, nodes: NodeColumns) -> Bools:
        key = constraints_of(shape).key
        known = self._admitted.get(key)
        if known is None:
            known = eventually_admitted(shape, nodes)
            remember(self._admitted, key, known, ADMITTED_KEPT)
        return known

    def _refresh(self, nodes: NodeColumns) -> None:
        if nodes.generation == self._generation:
            return
        self._generation = nodes.generation
        self._totals, self._first_totals, self._admitted = {}, {}, {}
        self._first = nodes.first(FIRST_NODES) if len(nodes) >= MANY_NODES else None
