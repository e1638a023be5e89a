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

from kai_py.api.records.core import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from kai_py.api.references import ClaimRef
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import HeldItems, KeptCopies, Undo
from kai_py.policy.node_selector import matches_selector
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.unclaimed_volumes import UnclaimedVolume
from kai_py.snapshot.volume_needs import Attachment, VolumeToMake, VolumeWish


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


class ChosenVolumes:
    """Volumes that a cycle has chosen; a NodeLimit."""

    reason = "didn't find available persistent volumes to bind"

    def __init__(self, snapshot: Snapshot) -> None:
        """Nothing is chosen yet."""
        self._snapshot = snapshot
        self._taken: dict[str, None] = {}
        self._chosen: dict[str, tuple[tuple[ClaimRef, str], ...]] = {}
        self._rows: dict[str, Ints] = {}
        self._reached: Mapping[int, list[UnclaimedVolume]] | None = None
        self._kept = KeptCopies(len(snapshot.nodes), range(len(snapshot.nodes)), self._copies)

    def of(self, pod_uid: str) -> tuple[tuple[ClaimRef, str], ...]:
        """The claims of a placed pod and the volume chosen for each."""
        return self._chosen.get(pod_uid, ())

    def concerns(self, shape: Shape) -> bool:
        """Whether its pods have such claims."""
        return bool(shape.volumes.wishes)

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) pods that find volumes; not to be written to."""
        return self._kept.of(shape, room, most)

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Choose volumes for the claims of the pod; None where there are not enough."""
        del room
        picked = self._pick(row, member.shape.volumes.wishes, self._taken)
        if picked is None:
            return None
        self._taken.update(dict.fromkeys(picked))
        self._chosen[member.pod.uid] = tuple(zip(member.unbound, picked, strict=True))
        self._note(picked)

        def undo() -> None:
            for name in picked:
                del self._taken[name]
            del self._chosen[member.pod.uid]
            self._note(picked)

        return undo

    def give_back(self, member: Member, row: int) -> Undo:
        """Nothing: a claim keeps its volume when its pod leaves."""
        del member, row
        return _nothing

    def _copies(self, row: int, shape: Shape, room: Room, most: int) -> int:
        del room
        taken = dict(self._taken)
        for pods in range(most):
            picked = self._pick(row, shape.volumes.wishes, taken)
            if picked is None:
                return pods
            taken.update(dict.fromkeys(picked))
        return most

    def _pick(
        self, row: int, wishes: tuple[VolumeWish, ...], taken: Mapping[str, None]
    ) -> list[str] | None:
        reached = self._reached_from(row)
        picked: list[str] = []
        for wish in wishes:
            found = next(
                (
                    each.name
                    for each in reached
                    if each.name not in taken and each.name not in picked and each.serves(wish)
                ),
                None,
            )
            if found is None:
                return None
            picked.append(found)
        return picked

    def _reached_from(self, row: int) -> list[UnclaimedVolume]:
        """Volumes that can be reached from a node, the smallest first."""
        if self._reached is None:
            reached: dict[int, list[UnclaimedVolume]] = {}
            nodes = self._snapshot.nodes
            everywhere = np.arange(len(nodes))
            for volume in self._snapshot.unclaimed_volumes:
                selector = volume.reached_from
                rows = np.flatnonzero(matches_selector(selector, nodes)) if selector else everywhere
                self._rows[volume.name] = rows
                for at in rows.tolist():
                    reached.setdefault(at, []).append(volume)
            self._reached = reached
        return self._reached.get(row, [])

    def _note(self, names: list[str]) -> None:
        for row in dict.fromkeys(row for name in names for row in self._rows[name].tolist()):
            self._kept.changed(row)


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
        self._held = HeldItems(_held(snapshot, self._limits))
        self._kept = KeptCopies(len(rows), self._limits, self._copies)

    def concerns(self, shape: Shape) -> bool:
        """Whether a driver of its pods' volumes limits any node."""
        return any(each.driver in self._drivers for each in shape.volumes.attachments)

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) pods whose volumes can be attached; not to be written to."""
        return self._kept.of(shape, room, most)

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Attach the volumes of the pod; None where that is too many."""
        if row not in self._limits:
            return _nothing
        if self._fit(row, member.attachments, room, 1) < 1:
            return None
        return self._changing(row, self._held.hold(row, member.attachments))

    def give_back(self, member: Member, row: int) -> Undo:
        """Detach the volumes of the pod later, unless another pod uses them."""
        if row not in self._limits:
            return _nothing
        return self._changing(row, self._held.release(row, member.attachments))

    def _copies(self, row: int, shape: Shape, room: Room, most: int) -> int:
        return self._fit(row, shape.volumes.attachments, room, most)

    def _fit(self, row: int, wanted: tuple[Attachment, ...], room: Room, most: int) -> int:
        """How many pods with these volumes fit; volumes without a name are new for each of them."""
        held, fitting = self._held.on(row, room), most
        for driver, limit in self._limits[row].items():
            new = [each for each in wanted if each.driver == driver and each not in held]
            if not new:
                continue
            own = sum(not each.volume for each in new)
            left = limit - sum(each.driver == driver for each in held) - (len(new) - own)
            if left < 0:
                return 0
            fitting = min(fitting, left // own) if own else fitting
        return fitting

    def _changing(self, row: int, undo: Undo) -> Undo:
        self._kept.changed(row)

        def undone() -> None:
            undo()
            self._kept.changed(row)

        return undone


def _held(snapshot: Snapshot, limited: Collection[int]) -> dict[int, list[tuple[Attachment, bool]]]:
    """What pods hold on the nodes with limits, and what else is attached to those."""
    held = {row: list(pods) for row, pods in snapshot.attached.items() if row in limited}
    rows = snapshot.nodes.positions
    attached = {rows[name]: each for name, each in snapshot.attachments.items() if name in rows}
    left = {row: each for row, each in attached.items() if row in limited}
    if left:
        awaited = _own_of_waiting(snapshot)
        for row, attachments in left.items():
            known = {each for each, _ in held.get(row, ())}
            lonely = [(a, False) for a in attachments if a not in known and a not in awaited]
            held.setdefault(row, []).extend(lonely)
    return held


def _own_of_waiting(snapshot: Snapshot) -> set[Attachment]:
    """Volumes of which a pod that waits is the only user."""
    waiting = (member for key in snapshot.pending for member in snapshot.gangs[key].pending)
    return {
        attachment
        for member in waiting
        if any(not each.volume for each in member.shape.volumes.attachments)
        for attachment in member.attachments
    }


def _nothing() -> None:
    """Nothing was changed."""


EVERYWHERE = 0


class ExclusiveVolumes:
    """Claims in use by the one pod that may; a NodeLimit, though the same on all nodes."""

    reason = "can't take the pod while another uses its ReadWriteOncePod volume claim"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the claims of the pods on nodes."""
        self._nodes = len(snapshot.nodes)
        self._held = HeldItems({EVERYWHERE: snapshot.exclusive_claims})

    def concerns(self, shape: Shape) -> bool:
        """Whether its pods use such a claim."""
        return bool(shape.volumes.exclusive)

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) 1 on all nodes while nobody uses the claims, else 0."""
        return np.full(self._nodes, min(most, 1) * self._is_free(shape, room), dtype=np.int64)

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Use the claims, if nobody does."""
        del row
        if not self._is_free(member.shape, room):
            return None
        return self._held.hold(EVERYWHERE, member.shape.volumes.exclusive)

    def give_back(self, member: Member, row: int) -> Undo:
        """Leave the claims later."""
        del row
        return self._held.release(EVERYWHERE, member.shape.volumes.exclusive)

    def _is_free(self, shape: Shape, room: Room) -> bool:
        used = self._held.on(EVERYWHERE, room)
        return not any(claim in used for claim in shape.volumes.exclusive)
