"""Can a node attach the volumes of a pod, beside those of the pods that it has?

The rule of kube-scheduler's NodeVolumeLimits plugin: of each driver that limits a node, the
distinct volumes of its pods, those that are attached without a pod, and those of the new one must
not be more than the limit; a volume that is attached already costs nothing. Volumes that a cycle
attaches count, those of pods that leave do not count later. What is still attached and belongs to a
pod that waits counts with that pod alone, so it may come back (kube-scheduler counts it twice).

Is a volume claim that only one pod at a time may use (ReadWriteOncePod) in use?

The rule of kube-scheduler's VolumeRestrictions plugin: while a pod on any node uses it, no other
pod fits anywhere.

Which of the volumes that somebody made beforehand do the unbound claims of a pod get?

Claims of a class without a provisioner that waits for its first consumer are bound to volumes that
can be reached from the pod's node: for each claim, the one that asks for least first, the smallest
volume that serves it (the rule of kube-scheduler's VolumeBinding plugin). A volume is chosen once.

On which nodes can the volumes be made that a pod's unbound claims ask for?

Where a driver tells how much storage it has left (``storageCapacity`` of its CSIDriver), a node
needs, for each claim by itself, an offer of the claim's class that reaches the node and is large
enough (the rule of kube-scheduler's VolumeBinding plugin). What a cycle has placed is not taken
off: an offer tells the largest volume, not what is left after one.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import reduce

import numpy as np

from kai_py.api.records.core import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
)
from kai_py.api.references import ClaimRef
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import AllocatedItems, ReplicaCache, Undo
from kai_py.policy.node_selector import matches_selector
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.volumes import (
    Attachment,
    AvailableVolume,
    VolumeRequest,
    VolumeToProvision,
)


class StorageCapacity:
    """The offers of drivers; a NodeLimit that nothing changes during a cycle."""

    reason = "did not have enough free storage"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nobody asked yet."""
        self._snapshot = snapshot
        self._nodes_by_volume: dict[VolumeToProvision, Bools] = {}

    def applies_to(self, shape: Shape) -> bool:
        """Whether a driver that tells what it has left makes volumes for its pods."""
        return bool(shape.volumes.to_provision)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) ``most`` where there is storage for a pod, else 0."""
        del capacity
        return np.where(self._nodes_with_storage(shape), max_replicas, 0).astype(np.int64)

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Nothing, where there is storage for the pod."""
        del capacity
        return _no_undo if self._nodes_with_storage(member.shape)[row] else None

    def release(self, member: Member, row: int) -> Undo:
        """Nothing."""
        del member, row
        return _no_undo

    def _nodes_with_storage(self, shape: Shape) -> Bools:
        return reduce(np.logical_and, map(self._nodes_for, shape.volumes.to_provision))

    def _nodes_for(self, volume: VolumeToProvision) -> Bools:
        """(nodes,) those that a volume can be made for; nodes x offers once per class and size."""
        known = self._nodes_by_volume.get(volume)
        if known is None:
            offers = (
                each.nodes
                for each in self._snapshot.storage_capacities
                if each.storage_class == volume.storage_class
                and each.max_volume_size >= volume.size
            )
            known = self._nodes_by_volume[volume] = _selected_nodes(offers, self._snapshot.nodes)
        return known


def _selected_nodes(selectors: Iterable[LabelSelector], nodes: NodeColumns) -> Bools:
    """(nodes,) those that any of them selects; segments by one label are looked up together."""
    reached = np.zeros(len(nodes), dtype=np.bool_)
    by_label: dict[str, dict[str, None]] = {}
    for each in selectors:
        if len(each.match_labels) == 1 and not each.match_expressions:
            (key, value), *_ = each.match_labels.items()
            by_label.setdefault(key, {})[value] = None
            continue
        equal = (
            SelectorRequirement(key=key, operator="In", values=(value,))
            for key, value in each.match_labels.items()
        )
        expressions = (*equal, *each.match_expressions)
        if not expressions:
            return np.ones(len(nodes), dtype=np.bool_)
        term = NodeSelectorTerm(match_expressions=expressions)
        reached |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    for key, values in by_label.items():
        any_of = SelectorRequirement(key=key, operator="In", values=tuple(values))
        term = NodeSelectorTerm(match_expressions=(any_of,))
        reached |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    return reached


class AssumedVolumes:
    """Volumes that a cycle has chosen; a NodeLimit."""

    reason = "didn't find available persistent volumes to bind"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nothing is chosen yet."""
        self._snapshot = snapshot
        self._assumed: dict[str, None] = {}
        self._assumed_by_pod: dict[str, tuple[tuple[ClaimRef, str], ...]] = {}
        self._rows: dict[str, Ints] = {}
        self._reachable: Mapping[int, list[AvailableVolume]] | None = None
        self._cache = ReplicaCache(
            len(snapshot.nodes), range(len(snapshot.nodes)), self._count_replicas
        )

    def assumed_for(self, pod_uid: str) -> tuple[tuple[ClaimRef, str], ...]:
        """The claims of a placed pod and the volume chosen for each."""
        return self._assumed_by_pod.get(pod_uid, ())

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods have such claims."""
        return bool(shape.volumes.volume_requests)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods that find volumes; not to be written to."""
        return self._cache.replicas(shape, capacity, max_replicas)

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Choose volumes for the claims of the pod; None where there are not enough."""
        del capacity
        picked = self._pick(row, member.shape.volumes.volume_requests, self._assumed)
        if picked is None:
            return None
        self._assumed.update(dict.fromkeys(picked))
        self._assumed_by_pod[member.pod.uid] = tuple(
            zip(member.unbound_volume_claims, picked, strict=True)
        )
        self._mark_changed(picked)

        def undo() -> None:
            for name in picked:
                del self._assumed[name]
            del self._assumed_by_pod[member.pod.uid]
            self._mark_changed(picked)

        return undo

    def release(self, member: Member, row: int) -> Undo:
        """Nothing: a claim keeps its volume when its pod leaves."""
        del member, row
        return _no_undo

    def _count_replicas(self, row: int, shape: Shape, capacity: Capacity, max_replicas: int) -> int:
        del capacity
        taken = dict(self._assumed)
        for pods in range(max_replicas):
            picked = self._pick(row, shape.volumes.volume_requests, taken)
            if picked is None:
                return pods
            taken.update(dict.fromkeys(picked))
        return max_replicas

    def _pick(
        self, row: int, claims: tuple[VolumeRequest, ...], assumed: Mapping[str, None]
    ) -> list[str] | None:
        reached = self._reachable_from(row)
        picked: list[str] = []
        for wish in claims:
            found = next(
                (
                    each.name
                    for each in reached
                    if each.name not in assumed and each.name not in picked and each.satisfies(wish)
                ),
                None,
            )
            if found is None:
                return None
            picked.append(found)
        return picked

    def _reachable_from(self, row: int) -> list[AvailableVolume]:
        """Volumes that can be reached from a node, the smallest first."""
        if self._reachable is None:
            reached: dict[int, list[AvailableVolume]] = {}
            nodes = self._snapshot.nodes
            everywhere = np.arange(len(nodes))
            for volume in self._snapshot.available_volumes:
                selector = volume.node_selector
                rows = np.flatnonzero(matches_selector(selector, nodes)) if selector else everywhere
                self._rows[volume.name] = rows
                for at in rows.tolist():
                    reached.setdefault(at, []).append(volume)
            self._reachable = reached
        return self._reachable.get(row, [])

    def _mark_changed(self, names: list[str]) -> None:
        for row in dict.fromkeys(row for name in names for row in self._rows[name].tolist()):
            self._cache.mark_changed(row)


class AttachedVolumes:
    """Volumes on nodes whose drivers limit them; a NodeLimit."""

    reason = "exceed max volume count"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the volumes of the pods on nodes."""
        rows = snapshot.nodes.positions
        self._limits = {
            rows[name]: limits for name, limits in snapshot.attach_limits.items() if name in rows
        }
        self._drivers = frozenset(name for limits in self._limits.values() for name in limits)
        self._allocated = AllocatedItems(_attached_by_row(snapshot, self._limits))
        self._cache = ReplicaCache(len(rows), self._limits, self._count_replicas)

    def applies_to(self, shape: Shape) -> bool:
        """Whether a driver of its pods' volumes limits any node."""
        return any(each.driver in self._drivers for each in shape.volumes.attachments)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods whose volumes can be attached; not to be written to."""
        return self._cache.replicas(shape, capacity, max_replicas)

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Attach the volumes of the pod; None where that is too many."""
        if row not in self._limits:
            return _no_undo
        if self._replicas_with(row, member.attachments, capacity, 1) < 1:
            return None
        return self._marking_changed(row, self._allocated.allocate(row, member.attachments))

    def release(self, member: Member, row: int) -> Undo:
        """Detach the volumes of the pod later, unless another pod uses them."""
        if row not in self._limits:
            return _no_undo
        return self._marking_changed(row, self._allocated.release(row, member.attachments))

    def _count_replicas(self, row: int, shape: Shape, capacity: Capacity, max_replicas: int) -> int:
        return self._replicas_with(row, shape.volumes.attachments, capacity, max_replicas)

    def _replicas_with(
        self, row: int, attachments: tuple[Attachment, ...], capacity: Capacity, max_replicas: int
    ) -> int:
        """How many pods with these volumes fit; volumes without a name are new for each of them."""
        held, fitting = self._allocated.on(row, capacity), max_replicas
        for driver, limit in self._limits[row].items():
            new = [each for each in attachments if each.driver == driver and each not in held]
            if not new:
                continue
            own = sum(not each.volume for each in new)
            left = limit - sum(each.driver == driver for each in held) - (len(new) - own)
            if left < 0:
                return 0
            fitting = min(fitting, left // own) if own else fitting
        return fitting

    def _marking_changed(self, row: int, undo: Undo) -> Undo:
        self._cache.mark_changed(row)

        def undo_and_mark() -> None:
            undo()
            self._cache.mark_changed(row)

        return undo_and_mark


def _attached_by_row(
    snapshot: Snapshot, limited: Collection[int]
) -> dict[int, list[tuple[Attachment, bool]]]:
    """What pods hold on the nodes with limits, and what else is attached to those."""
    held = {row: list(pods) for row, pods in snapshot.attached.items() if row in limited}
    rows = snapshot.nodes.positions
    attached = {rows[name]: each for name, each in snapshot.attachments.items() if name in rows}
    left = {row: each for row, each in attached.items() if row in limited}
    if left:
        awaited = _attached_by_pending(snapshot)
        for row, attachments in left.items():
            known = {each for each, _ in held.get(row, ())}
            lonely = [(a, False) for a in attachments if a not in known and a not in awaited]
            held.setdefault(row, []).extend(lonely)
    return held


def _attached_by_pending(snapshot: Snapshot) -> set[Attachment]:
    """Volumes of which a pod that waits is the only user."""
    waiting = (member for key in snapshot.pending for member in snapshot.gangs[key].pending)
    return {
        attachment
        for member in waiting
        if any(not each.volume for each in member.shape.volumes.attachments)
        for attachment in member.attachments
    }


def _no_undo() -> None:
    """Nothing was changed."""


ALL_NODES = 0


class ExclusiveVolumes:
    """Claims in use by the one pod that may; a NodeLimit, though the same on all nodes."""

    reason = "can't take the pod while another uses its ReadWriteOncePod volume claim"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the claims of the pods on nodes."""
        self._nodes = len(snapshot.nodes)
        self._allocated = AllocatedItems({ALL_NODES: snapshot.exclusive_claims})

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods use such a claim."""
        return bool(shape.volumes.exclusive_claims)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) 1 on all nodes while nobody uses the claims, else 0."""
        return np.full(
            self._nodes, min(max_replicas, 1) * self._is_free(shape, capacity), dtype=np.int64
        )

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Use the claims, if nobody does."""
        del row
        if not self._is_free(member.shape, capacity):
            return None
        return self._allocated.allocate(ALL_NODES, member.shape.volumes.exclusive_claims)

    def release(self, member: Member, row: int) -> Undo:
        """Leave the claims later."""
        del row
        return self._allocated.release(ALL_NODES, member.shape.volumes.exclusive_claims)

    def _is_free(self, shape: Shape, capacity: Capacity) -> bool:
        used = self._allocated.on(ALL_NODES, capacity)
        return not any(claim in used for claim in shape.volumes.exclusive_claims)
