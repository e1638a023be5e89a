"""What a read of the API proves about a pod, before anything that it may use is taken from it.

A claim is released, a device freed and a pod evicted only on a read made after the decision. Such
a read proves one of three states; every failure of it, whatever the error, proves nothing:
``UNKNOWN`` is a state of its own, and never a reason to release or evict. A 404 proves that the pod
is gone only if it is about this pod: a proxy without a route, or a server that doesn't serve the
path, answers 404 as well. ``BOUND`` and ``GONE`` are final, so a later look can only turn
``WAITING`` into them.

A binding that was sent before may still arrive: its answer was lost, or the process that sent it
has ended. So ``WAITING`` proves nothing by itself. Every binding names the version of the pod that
it was made for, and ``fence_pod`` gives a waiting pod a new one, after which the server refuses all
that are under way.
"""

import asyncio
from enum import StrEnum

from msgspec import Struct

from kai_py.api.pod_phases import is_finished
from kai_py.api.queue import WITHDRAWN_BINDINGS
from kai_py.api.records.core import Pod
from kai_py.api.references import GroupRef, PodRef
from kai_py.commit.api_access import ApiAccess, is_gone
from kai_py.commit.retry import RetryPolicy, retry_transient
from kai_py.snapshot.pod_claims import pod_group_of
from kai_py.watch.errors import ApiError, is_absent


class ReadState(StrEnum):
    """What a read proves about a pod, or about the pods of a group together."""

    WAITING = "waiting"
    """The pod exists and is on no node."""
    BOUND = "bound"
    """The pod is on a node and has not finished; it may be terminating."""
    GONE = "gone"
    """The pod has finished, or was deleted, perhaps recreated with the same name."""
    UNKNOWN = "unknown"
    """The API gave no usable answer."""


class PodReading(Struct, frozen=True):
    """A state, the pod as read (None if there was none), and why nothing is known."""

    state: ReadState
    pod: Pod | None = None
    problem: str = ""

    @property
    def proves_unused(self) -> bool:
        """Whether no live pod on a node is behind it: what it reserves may be released.

        For a waiting pod, or a group, this holds only if ``fence_pod`` made the reading.
        """
        return self.state in (ReadState.WAITING, ReadState.GONE)


async def read_pod_state(access: ApiAccess, pod: PodRef) -> PodReading:
    """Read a pod, repeating transient failures; never raises ApiError."""
    try:
        seen = await access.read_pod(pod)
    except ApiError as error:
        if is_absent(error, pod.name):
            return PodReading(ReadState.GONE)
        return PodReading(ReadState.UNKNOWN, problem=str(error))
    return PodReading(state_of(seen, pod.uid), seen)


async def fence_pod(access: ApiAccess, pod: PodRef) -> PodReading:
    """Read a pod; one that waits can't be bound any more by what was sent before.

    Costs a write of the pod if it waits; never raises ApiError.
    """
    reading = await read_pod_state(access, pod)
    if reading.state is not ReadState.WAITING or reading.pod is None:
        return reading
    mark = {WITHDRAWN_BINDINGS: reading.pod.metadata.resource_version}
    body = {"metadata": {"uid": pod.uid, "annotations": mark}}
    try:
        seen = await retry_transient(
            lambda: access.patch_pod(pod, body),
            access.retry,
        )
    except ApiError as error:
        if is_gone(error, pod.name):
            return PodReading(ReadState.GONE)
        return PodReading(ReadState.UNKNOWN, problem=str(error))
    return PodReading(state_of(seen, pod.uid), seen)


def state_of(seen: Pod, uid: str) -> ReadState:
    """The state of the pod with ``uid``, as the pod read under its name proves it."""
    if seen.metadata.uid != uid or is_finished(seen):
        return ReadState.GONE
    return ReadState.BOUND if seen.spec.node_name else ReadState.WAITING


async def fence_group(access: ApiAccess, group: GroupRef) -> PodReading:
    """Fence the pods of a PodGroup: BOUND if any of them is; costs a list of its namespace."""
    try:
        listed = await access.call(
            lambda: access.client.list(access.pods, namespace=group.namespace)
        )
    except ApiError as error:
        return PodReading(ReadState.UNKNOWN, problem=str(error))
    members = [pod for pod in listed.items if pod_group_of(pod) == (group.namespace, group.name)]
    waiting = []
    for pod in members:
        state = state_of(pod, pod.metadata.uid)
        if state is ReadState.BOUND:
            return PodReading(state, pod)
        if state is ReadState.WAITING:
            waiting.append(PodRef.of(pod.metadata))
    readings = await asyncio.gather(*(fence_pod(access, pod) for pod in waiting))
    return next(
        (reading for reading in readings if not reading.proves_unused),
        PodReading(ReadState.WAITING),
    )


async def fence_until_known(access: ApiAccess, pod: PodRef, pause: RetryPolicy) -> PodReading:
    """Fence a pod until an answer proves its state, however long that takes.

    Ends with the first usable answer, or with the process; ``pause`` bounds how often it asks.
    """
    failures = 0
    while (reading := await fence_pod(access, pod)).state is ReadState.UNKNOWN:
        failures += 1
        await asyncio.sleep(pause.delay(failures))
    return reading
