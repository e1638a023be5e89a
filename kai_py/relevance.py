"""Relevance of changes: whether a change of a watched object can change a plan.

Heartbeats of nodes, managed metadata, conditions of pods and statuses of queues (which we write
ourselves) cannot. Any other change is relevant: a cycle too many costs a little, one too few leaves
a gang pending.
"""

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.kai import KaiPodGroup, KaiQueue
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import same_owner
from kai_py.watch.kinds import WatchedQueue


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
        case KaiPodGroup(), KaiPodGroup():
            return _pod_group(old) != _pod_group(new)
    return not same_owner(old, new)


def _pod(pod: Pod) -> tuple[object, ...]:
    return (
        _meta(pod.metadata),
        pod.spec,
        pod.status.phase,
        pod.status.nominated_node_name,
        pod.status.resource_claim_statuses,
        pod.status.extended_resource_claim_status,
        tuple(each.allocated_resources_status for each in pod.status.container_statuses),
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


def _pod_group(group: KaiPodGroup) -> tuple[object, ...]:
    pools = tuple(condition.node_pool for condition in group.status.scheduling_conditions)
    return (_meta(group.metadata), group.spec, pools)


def _meta(meta: ObjectMeta) -> tuple[object, ...]:
    return (
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp is None,
    )
