"""Can a node attach the volumes of a pod, beside those of the pods that it has?

The rule of kube-scheduler's NodeVolumeLimits plugin: of each driver that limits a node, the
distinct volumes of its pods, those that are attached without a pod, and those of the new one must
not be more than the limit; a volume that is attached already costs nothing. Volumes that a cycle
attaches count, those of pods that leave do not count later. What is still attached and belongs to a
pod that waits counts with that pod alone, so it may come back (kube-scheduler counts it twice).
"""

from collections.abc import Collection

from kai_py.plan.held_items import HeldItems
from kai_py.plan.kept_copies import KeptCopies
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.volume_needs import Attachment


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
