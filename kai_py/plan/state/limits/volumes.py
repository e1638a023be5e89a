"""Volume limits: attachable volumes, ReadWriteOncePod claims, available volumes, storage capacity.

*Attached volumes* (kube-scheduler's NodeVolumeLimits): for each driver with a limit on a node, the
distinct volumes of its pods, those attached without a pod and those of the new pod must not exceed
the limit; a volume that is attached already costs nothing. Volumes attached in this cycle count;
those of terminating pods do not count in future idle capacity. A volume that is still attached and
whose only user is pending counts with that pod alone, so that the pod may come back (kube-scheduler
counts it twice).

*Exclusive volumes* (VolumeRestrictions): while a pod on any node uses a ReadWriteOncePod claim, no
other pod with that claim fits anywhere.

*Assumed volumes* (VolumeBinding): unbound claims of a class that waits for its first consumer, if
it has no provisioner or the claim has a selector, are bound to existing volumes that are reachable
from the pod's node: for each claim, the smallest request first, the smallest volume that satisfies
it. A volume is chosen once.

*Storage capacity* (VolumeBinding): where a driver reports its capacity (``storageCapacity`` of its
CSIDriver), a node needs, for each claim by itself, a capacity object of the claim's class that
covers the node and is large enough. What the cycle has placed is not subtracted: the object gives
the largest possible volume, not the remainder after one.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, reduce

import numpy as np

from kai_py.api.records.core import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
)
from kai_py.api.references import ClaimRef
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import AllocatedItems, ReplicaCache
from kai_py.plan.state.undo import Undo, no_undo
from kai_py.policy.node_filters import matches_selector
from kai_py.snapshot.available_volumes import AvailableVolume
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.volume_requirements import Attachment, VolumeRequest, VolumeToProvision


class StorageCapacity:
    """Storage capacity that drivers report; a NodeLimit that does not change during a cycle."""

    reason = "did not have enough free storage"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nothing is computed yet."""
        self._snapshot = snapshot
        self._nodes_by_volume: dict[VolumeToProvision, Bools] = {}

    def applies_to(self, shape: Shape) -> bool:
        """Whether a driver that reports its capacity provisions volumes for its pods."""
        return bool(shape.volumes.to_provision)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) ``max_replicas`` where there is storage for a pod, else 0."""
        del capacity
        return np.where(self._nodes_with_storage(shape), max_replicas, 0).astype(np.int64)

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Check the storage for the pod; allocates nothing."""
        del capacity
        return no_undo if self._nodes_with_storage(member.shape)[row] else None

    def release(self, member: Member, row: int) -> Undo:
        """Free nothing."""
        del member, row
        return no_undo

    def _nodes_with_storage(self, shape: Shape) -> Bools:
        return reduce(np.logical_and, map(self._nodes_for, shape.volumes.to_provision))

    def _nodes_for(self, volume: VolumeToProvision) -> Bools:
        """(nodes,) bool: the volume can be provisioned; nodes x offers once per class and size."""
        cached = self._nodes_by_volume.get(volume)
        if cached is None:
            selectors = (
                each.nodes
                for each in self._snapshot.storage_capacities
                if each.storage_class == volume.storage_class
                and each.max_volume_size >= volume.size
            )
            cached = self._nodes_by_volume[volume] = _selected_nodes(
                selectors, self._snapshot.nodes
            )
        return cached


def _selected_nodes(selectors: Iterable[LabelSelector], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: any selector matches; selectors of one label are looked up together."""
    selected = np.zeros(len(nodes), dtype=np.bool_)
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
        selected |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    for key, values in by_label.items():
        any_of = SelectorRequirement(key=key, operator="In", values=tuple(values))
        term = NodeSelectorTerm(match_expressions=(any_of,))
        selected |= matches_selector(NodeSelector(node_selector_terms=(term,)), nodes)
    return selected


class AssumedVolumes:
    """Existing volumes that the cycle has chosen for unbound claims; a NodeLimit."""

    reason = "didn't find available persistent volumes to bind"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nothing is chosen yet."""
        self._snapshot = snapshot
        self._assumed: dict[str, None] = {}
        self._assumed_by_pod: dict[str, tuple[tuple[ClaimRef, str], ...]] = {}
        self._rows: dict[str, Ints] = {}
        self._reachable: Mapping[int, list[AvailableVolume]] | None = None
        self._cache = ReplicaCache(len(snapshot.nodes), range(len(snapshot.nodes)))

    @property
    def by_pod(self) -> Mapping[str, tuple[tuple[ClaimRef, str], ...]]:
        """By uid of a placed pod, its claims, each with the volume chosen for it."""
        return self._assumed_by_pod

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods have unbound claims that existing volumes serve."""
        return bool(shape.volumes.volume_requests)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods for whose claims there are volumes; read-only."""
        return self._cache.replicas(shape, capacity, max_replicas, self._count_replicas)

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
        """Free nothing: a claim keeps its volume when its pod ends."""
        del member, row
        return no_undo

    def _count_replicas(self, row: int, shape: Shape, capacity: Capacity, max_replicas: int) -> int:
        del capacity
        assumed = dict(self._assumed)
        for pods in range(max_replicas):
            picked = self._pick(row, shape.volumes.volume_requests, assumed)
            if picked is None:
                return pods
            assumed.update(dict.fromkeys(picked))
        return max_replicas

    def _pick(
        self, row: int, claims: tuple[VolumeRequest, ...], assumed: Mapping[str, None]
    ) -> list[str] | None:
        reachable = self._reachable_from(row)
        picked: list[str] = []
        for request in claims:
            found = next(
                (
                    each.name
                    for each in reachable
                    if each.name not in assumed
                    and each.name not in picked
                    and each.satisfies(request)
                ),
                None,
            )
            if found is None:
                return None
            picked.append(found)
        return picked

    def _reachable_from(self, row: int) -> list[AvailableVolume]:
        """Available volumes that are reachable from a node, the smallest first."""
        if self._reachable is None:
            by_row: dict[int, list[AvailableVolume]] = {}
            nodes = self._snapshot.nodes
            everywhere = np.arange(len(nodes))
            for volume in self._snapshot.available_volumes:
                selector = volume.node_selector
                rows = np.flatnonzero(matches_selector(selector, nodes)) if selector else everywhere
                self._rows[volume.name] = rows
                for at in rows.tolist():
                    by_row.setdefault(at, []).append(volume)
            self._reachable = by_row
        return self._reachable.get(row, [])

    def _mark_changed(self, names: list[str]) -> None:
        for row in dict.fromkeys(row for name in names for row in self._rows[name].tolist()):
            self._cache.mark_changed(row)


class AttachedVolumes:
    """Volumes attached to nodes whose drivers limit them; a NodeLimit."""

    reason = "exceed max volume count"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the volumes of the pods on nodes, once any pod has volumes to attach."""
        self._snapshot = snapshot

    @cached_property
    def _limits(self) -> dict[int, Mapping[str, int]]:
        rows, limits = self._snapshot.nodes.positions, self._snapshot.attach_limits
        return {rows[name]: each for name, each in limits.items() if name in rows}

    @cached_property
    def _drivers(self) -> frozenset[str]:
        return frozenset(name for limits in self._limits.values() for name in limits)

    @cached_property
    def _allocated(self) -> AllocatedItems[Attachment]:
        return AllocatedItems(_attached_by_row(self._snapshot, self._limits))

    @cached_property
    def _cache(self) -> ReplicaCache:
        nodes = len(self._snapshot.nodes)
        return ReplicaCache(nodes, self._limits)

    def applies_to(self, shape: Shape) -> bool:
        """Whether a driver of its pods' volumes limits any node."""
        return any(each.driver in self._drivers for each in shape.volumes.attachments)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) pods whose volumes can be attached; read-only."""
        return self._cache.replicas(shape, capacity, max_replicas, self._count_replicas)

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Attach the volumes of the pod; None where they exceed a limit."""
        if row not in self._limits:
            return no_undo
        if self._replicas_with(row, member.attachments, capacity, 1) < 1:
            return None
        return self._marking_changed(row, self._allocated.allocate(row, member.attachments))

    def release(self, member: Member, row: int) -> Undo:
        """Detach the volumes of the pod, in future idle capacity, unless other pods use them."""
        if not member.attachments or row not in self._limits:
            return no_undo
        return self._marking_changed(row, self._allocated.release(row, member.attachments))

    def _count_replicas(self, row: int, shape: Shape, capacity: Capacity, max_replicas: int) -> int:
        return self._replicas_with(row, shape.volumes.attachments, capacity, max_replicas)

    def _replicas_with(
        self, row: int, attachments: tuple[Attachment, ...], capacity: Capacity, max_replicas: int
    ) -> int:
        """How many pods with these volumes fit; each has volumes without a name of its own."""
        attached, fitting = self._allocated.on(row, capacity), max_replicas
        for driver, limit in self._limits[row].items():
            new = [each for each in attachments if each.driver == driver and each not in attached]
            if not new:
                continue
            per_pod = sum(not each.volume for each in new)
            # Named volumes that are new are attached once for all pods, nameless ones once per pod.
            free = limit - sum(each.driver == driver for each in attached) - (len(new) - per_pod)
            if free < 0:
                return 0
            fitting = min(fitting, free // per_pod) if per_pod else fitting
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
    """Volumes of pods on the nodes with limits, and what else is attached to those nodes."""
    users = {row: list(pods) for row, pods in snapshot.attached.items() if row in limited}
    rows = snapshot.nodes.positions
    attached = {rows[name]: each for name, each in snapshot.attachments.items() if name in rows}
    limited_rows = {row: each for row, each in attached.items() if row in limited}
    if limited_rows:
        pending = _attached_by_pending(snapshot)
        for row, attachments in limited_rows.items():
            known = {each for each, _ in users.get(row, ())}
            without_pod = [(a, False) for a in attachments if a not in known and a not in pending]
            users.setdefault(row, []).extend(without_pod)
    return users


def _attached_by_pending(snapshot: Snapshot) -> set[Attachment]:
    """Volumes whose only user is a pending pod."""
    pending = (member for key in snapshot.pending for member in snapshot.gangs[key].pending)
    return {
        attachment
        for member in pending
        if any(not each.volume for each in member.shape.volumes.attachments)
        for attachment in member.attachments
    }


ALL_NODES = 0


class ExclusiveVolumes:
    """ReadWriteOncePod claims in use; a NodeLimit, though the same on all nodes."""

    reason = (
        "node has pod using PersistentVolumeClaim with the same name and "
        "ReadWriteOncePod access mode"
    )

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the claims of the pods on nodes."""
        self._nodes = len(snapshot.nodes)
        self._allocated = AllocatedItems({ALL_NODES: snapshot.exclusive_claims})

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods use such a claim."""
        return bool(shape.volumes.exclusive_claims)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) 1 on all nodes while no pod uses the claims, else 0."""
        return np.full(
            self._nodes, min(max_replicas, 1) * self._is_free(shape, capacity), dtype=np.int64
        )

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Use the claims if no other pod does."""
        del row
        if not self._is_free(member.shape, capacity):
            return None
        return self._allocated.allocate(ALL_NODES, member.shape.volumes.exclusive_claims)

    def release(self, member: Member, row: int) -> Undo:
        """Release the claims in future idle capacity."""
        del row
        return self._allocated.release(ALL_NODES, member.shape.volumes.exclusive_claims)

    def _is_free(self, shape: Shape, capacity: Capacity) -> bool:
        used = self._allocated.on(ALL_NODES, capacity)
        return not any(claim in used for claim in shape.volumes.exclusive_claims)
