"""Index of shared GPUs: the reservation pods of each, and the pods that share it.

Maintained from mirror events, O(shared GPUs of the pod) each. What a pod on a node shares is noted
when it is first seen there and kept until it ends: its labels are its tenant's, and a pod that lost
its label would go on using a GPU that counts as free.
"""

import asyncio
from collections.abc import Iterator
from weakref import WeakValueDictionary

from kai_py.api.gpu_reservation import GpuGroup, is_live, reserved_group
from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import shared_groups


class SharedGpuGroups:
    """Reservation pods and sharing pods by GPU, each by uid."""

    def __init__(self) -> None:
        self._reservations: dict[GpuGroup, dict[str, Pod]] = {}
        self._sharers: dict[GpuGroup, dict[str, Pod]] = {}
        self._groups_of: dict[str, tuple[GpuGroup, ...]] = {}
        self._changes: WeakValueDictionary[GpuGroup, asyncio.Event] = WeakValueDictionary()

    def apply(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod in the mirror; None stands for absent."""
        changed = new if new is not None else old
        if changed is None:
            return
        reserved = reserved_group(changed)
        if reserved is not None:
            _put(self._reservations, reserved, changed.metadata.uid, new)
            self._notify(reserved)
        else:
            self._apply_sharer(changed, present=new is not None)

    def reservations(self, gpu: GpuGroup) -> tuple[Pod, ...]:
        """The reservation pods of a GPU, terminating and finished ones too."""
        return tuple(self._reservations.get(gpu, {}).values())

    def sharers(self, gpu: GpuGroup) -> tuple[Pod, ...]:
        """The unfinished pods on the node that share a GPU."""
        return tuple(self._sharers.get(gpu, {}).values())

    def reserved(self) -> tuple[GpuGroup, ...]:
        """The GPUs with reservation pods, in order."""
        return tuple(sorted(self._reservations))

    def shared(self) -> tuple[GpuGroup, ...]:
        """The GPUs that pods share, in order."""
        return tuple(sorted(self._sharers))

    def reservations_on(self, node: str) -> Iterator[tuple[GpuGroup, Pod]]:
        """The live reservation pods of a node."""
        for gpu, pods in self._reservations.items():
            if gpu.node == node:
                yield from ((gpu, pod) for pod in pods.values() if is_live(pod))

    def change_of(self, gpu: GpuGroup) -> asyncio.Event:
        """An event that is set when the mirror shows a change of a reservation pod of ``gpu``.

        Clear it before looking: what changes afterwards sets it again.
        """
        return self._changes.setdefault(gpu, asyncio.Event())

    def _notify(self, gpu: GpuGroup) -> None:
        if (changed := self._changes.get(gpu)) is not None:
            changed.set()

    def _apply_sharer(self, pod: Pod, *, present: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        known = self._groups_of.get(uid, ())
        if not present or not node or is_finished(pod):
            for gpu in self._groups_of.pop(uid, ()):
                _put(self._sharers, gpu, uid, None)
            return
        groups = tuple(dict.fromkeys((*known, *shared_groups(pod))))
        if groups:
            self._groups_of[uid] = groups
        for gpu in groups:
            _put(self._sharers, gpu, uid, pod)


def _put(table: dict[GpuGroup, dict[str, Pod]], gpu: GpuGroup, uid: str, pod: Pod | None) -> None:
    if pod is not None:
        table.setdefault(gpu, {})[uid] = pod
        return
    pods = table.get(gpu, {})
    pods.pop(uid, None)
    if not pods:
        table.pop(gpu, None)
