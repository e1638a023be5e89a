"""On which nodes can the volumes be made that a pod's unbound claims ask for?

Where a driver tells how much storage it has left (``storageCapacity`` of its CSIDriver), a node
needs, for each claim by itself, an offer of the claim's class that reaches the node and is large
enough (the rule of kube-scheduler's VolumeBinding plugin). What a cycle has placed is not taken
off: an offer tells the largest volume, not what is left after one.
"""

from collections.abc import Iterable
from functools import reduce

import numpy as np

from kai_py.api.records.core import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import Undo
from kai_py.policy.node_selector import matches_selector
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.volume_needs import VolumeToMake


class StorageCapacity:
    """The offers of drivers; a NodeLimit that nothing changes during a cycle."""

    reason = "did not have enough free storage"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nobody asked yet."""
        self._snapshot = snapshot
        self._reached: dict[VolumeToMake, Bools] = {}

    def concerns(self, shape: Shape) -> bool:
        """Whether a driver that tells what it has left makes volumes for its pods."""
        return bool(shape.volumes.made)

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) ``most`` where there is storage for a pod, else 0."""
        del room
        return np.where(self._enough(shape), most, 0).astype(np.int64)

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Nothing, where there is storage for the pod."""
        del room
        return _nothing if self._enough(member.shape)[row] else None

    def give_back(self, member: Member, row: int) -> Undo:
        """Nothing."""
        del member, row
        return _nothing

    def _enough(self, shape: Shape) -> Bools:
        return reduce(np.logical_and, map(self._reaching, shape.volumes.made))

    def _reaching(self, wanted: VolumeToMake) -> Bools:
        """(nodes,) those that a volume can be made for; nodes x offers once per class and size."""
        known = self._reached.get(wanted)
        if known is None:
            offers = (
                each.nodes
                for each in self._snapshot.storage_offers
                if each.storage_class == wanted.storage_class and each.largest >= wanted.size
            )
            known = self._reached[wanted] = _selected(offers, self._snapshot.nodes)
        return known


def _selected(selectors: Iterable[LabelSelector], nodes: NodeColumns) -> Bools:
    """(nodes,) those that any of them selects; segments by one label are looked up together."""
    reached = np.zeros(len(nodes), dtype=np.bool_)
    by_label: dict[str, dict[str, None]] = {}
    for each in selectors:
        if len(each.match_labels) == 1 and not each.match_expressions:
            (key, value), *_ = each.match_labels.items()
            by_label.setdefault(key, {})[value] = None
            continue
        equal = (
            Requirement(key=key, operator="In", values=(value,))
            for key, value in each.match_labels.items()
        )
        expressions = (*equal, *each.match_expressions)
        if not expressions:
            return np.ones(len(nodes), dtype=np.bool_)
        term = NodeSelectorTerm(match_expressions=expressions)
        reached |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    for key, values in by_label.items():
        any_of = Requirement(key=key, operator="In", values=tuple(values))
        term = NodeSelectorTerm(match_expressions=(any_of,))
        reached |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    return reached


def _nothing() -> None:
    """Nothing was changed."""
