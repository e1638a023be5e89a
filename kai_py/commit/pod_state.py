"""What a read of the API proves about a pod, before anything that it may use is taken from it.

A claim is released, a device freed and a pod evicted only on a read made after the decision. Such
a read proves one of three states; every failure of it, whatever the error, proves nothing:
``UNKNOWN`` is a state of its own, and never a reason to release or evict. A 404 proves that the pod
is gone only if it is about this pod: a proxy without a route, or a server that doesn't serve the
path, answers 404 as well. ``BOUND`` and ``GONE`` are final, so a later look can only turn
``WAITING`` into them.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from kai_py.api.records.core import Pod
from kai_py.api.references import GroupRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.retry import RetryPolicy
from kai_py.snapshot.assumptions import FINISHED_PHASES
from kai_py.snapshot.tables.claims import pod_group_of
from kai_py.watch.errors import ApiError, is_absent


class ReadState(StrEnum):
    """What a read proves about a pod, or about the pods of a group together."""

    WAITING = "waiting"
    """It exists and is on no node."""
    BOUND = "bound"
    """It is on a node and has not finished; a terminating pod counts too."""
    GONE = "gone"
    """It has finished, was deleted or was recreated under its name."""
    UNKNOWN = "unknown"
    """The API gave no usable answer."""


@dataclass(frozen=True, slots=True)
class PodReading:
    """A state, the pod as read (None if there was none), and why nothing is known."""

    state: ReadState
    pod: Pod | None = None
    problem: str = ""

    @property
    def proves_unused(self) -> bool:
        """Whether no live pod on a node is behind it: what it reserves may be released."""
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


def state_of(seen: Pod, uid: str) -> ReadState:
    """The state of the pod with ``uid``, as the pod read under its name proves it."""
    if seen.metadata.uid != uid or seen.status.phase in FINISHED_PHASES:
        return ReadState.GONE
    return ReadState.BOUND if seen.spec.node_name else ReadState.WAITING


async def read_group_state(access: ApiAccess, group: GroupRef) -> PodReading:
    """Read the pods of a PodGroup: BOUND if any of them is; costs a list of its namespace."""
    try:
        listed = await access.call(
            lambda: access.client.list(access.pods, namespace=group.namespace)
        )
    except ApiError as error:
        return PodReading(ReadState.UNKNOWN, problem=str(error))
    for pod in listed.items:
        is_member = pod_group_of(pod) == (group.namespace, group.name)
        if is_member and state_of(pod, pod.metadata.uid) is ReadState.BOUND:
            return PodReading(ReadState.BOUND, pod)
    return PodReading(ReadState.WAITING)


async def wait_until_known(access: ApiAccess, pod: PodRef, pause: RetryPolicy) -> PodReading:
    """Read a pod until an answer proves its state, however long that takes.

    Ends with the first usable answer, or with the process; ``pause`` bounds how often it asks.
    """
    failures = 0
    while (reading := await read_pod_state(access, pod)).state is ReadState.UNKNOWN:
        failures += 1
        await asyncio.sleep(pause.delay(failures))
    return reading
