"""Reservation pods of shared GPUs: made before pods are bound, deleted after the last, and indexed.

    reserve   create the pod, unless there is one; wait until it reports the UUID of its GPU
    release   delete it, once a list of the pods of its node proves that none shares the GPU

A create is idempotent, for the name follows from node and group. A reservation pod that the node
refused (phase Failed) is deleted, and the attempt ends; the next one creates another. Two
reservation pods with one UUID mean that the device plugin shares GPUs itself (time-slicing
replicas): none of them is used then, as whole GPUs would be shared as well.

The index has the reservation pods of each shared GPU, and the pods that share it. It is maintained
from mirror events, O(shared GPUs of the pod) each. What a pod on a node shares is noted when it is
first seen there and kept until it ends: its labels are its tenant's, and a pod that lost its label
would go on using a GPU that counts as free.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec import Struct

from kai_py.api.gpu_reservation import (
    RESERVED_GPU,
    VISIBLE_GPUS,
    GpuGroup,
    ReservationTemplate,
    is_live,
    reservation_pod,
    reserved_group,
    unmarked_container,
)
from kai_py.api.gpu_share import RESERVATION, shared_gpu_metadata, shared_gpus
from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.commit.api_access import ApiAccess, FindPod, is_gone
from kai_py.commit.retry import retry_transient
from kai_py.grouping.admitted import shared_groups
from kai_py.plan.plan import Placement
from kai_py.watch.errors import AlreadyExists, ApiError, Conflict


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


class GpuReservationError(Exception):
    """A shared GPU can't be handed to a pod; the text says why and what to do."""


class GpuDelivery(Struct, frozen=True):
    """How shared GPUs reach containers. ``timeout``: seconds for a reservation pod to start.

    ``device_prefix`` is put before each UUID. Without ``template`` no GPU can be reserved.
    """

    template: ReservationTemplate | None = None
    device_prefix: str = ""
    timeout: float = 40.0


class GpuReservations(Struct, frozen=True, kw_only=True):
    """Reservation pods for the pods of transactions."""

    access: ApiAccess
    groups: SharedGpuGroups
    find_pod: FindPod
    delivery: GpuDelivery

    async def visible_gpus(self, placement: Placement) -> str:
        """Reserve the GPUs of a placement; returns the environment value that names them.

        Raises GpuReservationError.
        """
        self._check_container(placement.pod)
        gpus = [GpuGroup(placement.node, gpu.group) for gpu in sorted(placement.gpus)]
        # Wait for all of them, so that none makes a pod after a failure was reported.
        found = await asyncio.gather(*map(self._reserve, gpus), return_exceptions=True)
        failures = [each for each in found if isinstance(each, BaseException)]
        if failures:
            raise failures[0]
        uuids = [each for each in found if isinstance(each, str)]
        if len(set(uuids)) < len(uuids):
            raise GpuReservationError(_shared_by_plugin(placement.node, uuids[0]))
        return ",".join(f"{self.delivery.device_prefix}{uuid}" for uuid in uuids)

    def _check_container(self, ref: PodRef) -> None:
        pod = self.find_pod(ref)
        if pod is None:
            raise GpuReservationError(f"pod {ref} no longer exists")
        if problem := unmarked_container(pod):
            raise GpuReservationError(f"pod {ref}: {problem}")

    async def _reserve(self, gpu: GpuGroup) -> str:
        """The UUID of the GPU that is reserved for ``gpu``."""
        changed = self.groups.change_of(gpu)
        try:
            async with asyncio.timeout(self.delivery.timeout):
                changed.clear()
                while not (uuid := self._reserved_uuid(gpu)):
                    if not any(map(is_live, self.groups.reservations(gpu))):
                        await self._create(gpu)
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise GpuReservationError(
                f"{gpu}: reservation pod {RESERVATION}/{gpu.reservation} did not report a GPU "
                f"within {self.delivery.timeout:g} s"
            ) from None
        except ApiError as error:
            raise GpuReservationError(f"{gpu}: {error}") from error
        self._check_unique(gpu, uuid)
        return uuid

    def _reserved_uuid(self, gpu: GpuGroup) -> str:
        for pod in self.groups.reservations(gpu):
            if is_finished(pod):
                raise GpuReservationError(
                    f"{gpu}: node {gpu.node} refused reservation pod "
                    f"{RESERVATION}/{pod.metadata.name}"
                )
        live = [pod for pod in self.groups.reservations(gpu) if is_live(pod)]
        return next(
            (uuid for pod in live if (uuid := pod.metadata.annotations.get(RESERVED_GPU, ""))), ""
        )

    def _check_unique(self, gpu: GpuGroup, uuid: str) -> None:
        for other, pod in self.groups.reservations_on(gpu.node):
            if other != gpu and pod.metadata.annotations.get(RESERVED_GPU) == uuid:
                raise GpuReservationError(_shared_by_plugin(gpu.node, uuid))

    async def _create(self, gpu: GpuGroup) -> None:
        template = self.delivery.template
        if template is None:
            raise GpuReservationError(
                f"{gpu}: no reservation pod can be made: the configuration names no image "
                "(gpuSharing.image)"
            )
        # If it exists already, an earlier attempt made it; the watch shows it.
        with suppress(AlreadyExists):
            await retry_transient(
                lambda: self.access.call(
                    lambda: self.access.client.create(
                        self.access.pods, reservation_pod(gpu, template), namespace=RESERVATION
                    )
                ),
                self.access.retry,
            )

    async def release(self, gpu: GpuGroup, pod: PodRef) -> str:
        """Delete a reservation pod; returns why it is kept, "" when it is being deleted."""
        try:
            # Not by label: a tenant may have removed the label of a pod that uses the GPU.
            on_node = await self.access.call(
                lambda: self.access.client.list(
                    self.access.pods, field_selector=f"spec.nodeName={gpu.node}"
                )
            )
            for each in on_node.items:
                if not is_finished(each) and gpu in shared_groups(each):
                    return f"pod {PodRef.of(each.metadata)} shares the GPU"
            await retry_transient(
                lambda: self.access.call(
                    lambda: self.access.client.delete(
                        self.access.pods, pod.name, namespace=pod.namespace, uid=pod.uid
                    )
                ),
                self.access.retry,
            )
        except Conflict:
            return ""  # another pod has its name by now
        except ApiError as error:
            return "" if is_gone(error, pod.name) else str(error)
        return ""


def has_shared_gpus(pod: Pod) -> bool:
    """Whether an attempt wrote GPUs of a device plugin on the pod."""
    return bool(shared_gpus(pod)) or VISIBLE_GPUS in pod.metadata.annotations


async def remove_shared_gpus(access: ApiAccess, pod: Pod) -> str:
    """Remove what ``has_shared_gpus`` found; returns why that failed, else ""."""
    ref, (labels, annotations) = PodRef.of(pod.metadata), shared_gpu_metadata(shared_gpus(pod))
    body = {
        "metadata": {
            "uid": ref.uid,
            "labels": dict.fromkeys(labels),
            "annotations": dict.fromkeys((*annotations, VISIBLE_GPUS)),
        }
    }
    try:
        await retry_transient(
            lambda: access.patch_pod(ref, body),
            access.retry,
        )
    except ApiError as error:
        return f"pod {ref}: {error}"
    return ""


def _shared_by_plugin(node: str, uuid: str) -> str:
    return (
        f"node {node}: {uuid} was given to two reservation pods, so the device plugin of the node "
        "shares GPUs itself (time-slicing or MPS replicas); request its replicas instead"
    )
