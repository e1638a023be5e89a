"""Relevance of changes: whether a change of a watched object can change a plan.

Heartbeats of nodes, managed metadata, conditions of pods and groups and statuses of queues (which
we write ourselves) cannot. Any other change is relevant: a cycle too many costs a little, one too
few leaves a gang pending. A binding that shows what was assumed changes so little that others may
be awaited.
"""

import asyncio

from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.kai import KaiQueue
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import Unstructured, same_owner
from kai_py.snapshot.requests import resized_requests
from kai_py.watch.kinds import WatchedQueue

CONFIRMED_SECONDS = 1.0
"""The longest wait for a cycle after the watch showed a binding that was assumed."""


class CycleWake:
    """Wakes the loop that runs cycles; bindings that show as assumed are awaited for a while."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._event = asyncio.Event()
        self._awaited_until = 0.0
        """Loop time of the cycle that follows confirmed bindings."""

    def wake(self) -> None:
        """Start a cycle as soon as possible."""
        self._event.set()

    def wake_after(self, seconds: float) -> None:
        """Start a cycle in that many seconds at the latest."""
        asyncio.get_running_loop().call_later(seconds, self._event.set)

    def clear(self) -> None:
        """Forget what has happened: a cycle begins, which sees all of it."""
        self._event.clear()

    async def wait(self) -> None:
        """Wait until a cycle is to start."""
        await self._event.wait()

    def see(self, old: object | None, new: object | None, assumed_node: str) -> None:
        """Wake if a change can alter a plan; ``assumed_node``: of a pod, where it was assumed."""
        if self._event.is_set() or not affects_plan(old, new):
            return
        if not confirms_binding(old, new, assumed_node):
            self.wake()
        elif (now := asyncio.get_running_loop().time()) >= self._awaited_until:
            self._awaited_until = now + CONFIRMED_SECONDS
            self.wake_after(CONFIRMED_SECONDS)


def affects_plan(old: object | None, new: object | None) -> bool:
    """Whether the change from ``old`` to ``new`` (None: absent) can affect a plan."""
    match old, new:
        case Pod(), Pod():
            return _pod(old) != _pod(new)
        case Node(), Node():
            return _node(old) != _node(new)
        case ResourceClaim(), ResourceClaim():
            return _claim(old) != _claim(new)
        case (WatchedQueue() | KaiQueue(), WatchedQueue() | KaiQueue()):
            return _queue(old) != _queue(new)
        case Unstructured(), Unstructured(kind="ProvisioningRequest"):
            # Its conditions are part of the reason why its gang is pending.
            return old.content != new.content
    return not same_owner(old, new)


def confirms_binding(old: object | None, new: object | None, node: str) -> bool:
    """Whether the change only shows that a pod is on ``node``, where it was assumed to be.

    A binding also writes annotations and labels, and withdraws the nomination.
    """
    return (
        isinstance(old, Pod)
        and isinstance(new, Pod)
        and not old.spec.node_name
        and new.spec.node_name == node != ""
        and old.metadata.uid == new.metadata.uid
        and old.metadata.owner_references == new.metadata.owner_references
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and replace(old.spec, node_name=node) == new.spec
        and _pod_status(old) == _pod_status(new)
    )


def _pod(pod: Pod) -> tuple[object, ...]:
    nominated = pod.status.nominated_node_name
    return (_meta(pod.metadata), pod.spec, nominated, *_pod_status(pod))


def _pod_status(pod: Pod) -> tuple[object, ...]:
    return (
        pod.status.phase,
        pod.status.resource_claim_statuses,
        pod.status.extended_resource_claim_status,
        tuple(each.allocated_resources_status for each in pod.status.container_statuses),
        resized_requests(pod),
    )


def _node(node: Node) -> tuple[object, ...]:
    conditions = tuple((condition.type, condition.status) for condition in node.status.conditions)
    return (
        _meta(node.metadata),
        node.spec,
        node.status.allocatable,
        node.status.declared_features,
        node.status.node_info.boot_id,
        conditions,
    )


def _claim(claim: ResourceClaim) -> tuple[object, ...]:
    return (_meta(claim.metadata), claim.status.allocation, claim.status.reserved_for)


def _queue(queue: WatchedQueue | KaiQueue) -> tuple[object, ...]:
    spec = queue.spec if isinstance(queue, KaiQueue) else queue.queue.spec
    return (_meta(queue.metadata), spec)


def _meta(meta: ObjectMeta) -> tuple[object, ...]:
    return (
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp is None,
    )
