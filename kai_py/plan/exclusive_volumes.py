"""Is a volume claim that only one pod at a time may use (ReadWriteOncePod) in use?

The rule of kube-scheduler's VolumeRestrictions plugin: while a pod on any node uses it, no other
pod fits anywhere.
"""

import numpy as np

from kai_py.plan.held_items import HeldItems
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

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
