"""Which of the volumes that somebody made beforehand do the unbound claims of a pod get?

Claims of a class without a provisioner that waits for its first consumer are bound to volumes that
can be reached from the pod's node: for each claim, the one that asks for least first, the smallest
volume that serves it (the rule of kube-scheduler's VolumeBinding plugin). A volume is chosen once.
"""

from collections.abc import Mapping

import numpy as np

from kai_py.api.references import ClaimRef
from kai_py.plan.kept_copies import KeptCopies
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import Undo
from kai_py.policy.node_selector import matches_selector
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.unclaimed_volumes import UnclaimedVolume
from kai_py.snapshot.volume_needs import VolumeWish


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


def _nothing() -> None:
    """Nothing was changed."""
