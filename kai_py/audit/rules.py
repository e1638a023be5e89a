"""All rules of the auditor, and those on gangs and queues.

Each rule is linear in objects, allocated devices and volumes. Those here follow what the scheduler
itself counts: the gangs that grouping derives and the one accounting of pods and claims
(``kai_py.snapshot.accounting``).
"""

from collections.abc import Iterable, Mapping

import numpy as np

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.audit.claims import (
    pods_without_claims,
    reservations_without_pods,
    reservations_without_use,
)
from kai_py.audit.finding import AuditedCluster, AuditFinding, FindingKind, Steps
from kai_py.audit.nodes import (
    nodes_over_capacity,
    pods_without_nodes,
    shared_gpus_reserved,
)
from kai_py.audit.used_twice import devices_used_twice, host_ports_used_twice, volumes_used_twice
from kai_py.policy.queue_limits import display_unit
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.snapshot.tables.queue_tree import build_queue_table

TOLERANCE = 1e-6


def gangs_below_min_member(cluster: AuditedCluster) -> Steps:
    """Gangs of which some pods run, fewer than minMember, for longer than they may.

    A gang is in motion, and not reported, while a pod of it is created, bound, ends or terminates,
    while its framework creates pods only once others run, and once a pod of it has succeeded.
    """
    ended = _last_ends(cluster.pods)
    for gang in cluster.gangs:
        yield _gang_finding(gang) if _is_below(cluster, gang, ended) else None


def queues_over_max(cluster: AuditedCluster) -> Steps:
    """Queues to which more is allocated than their maximum allows, with all below them."""
    charged = {name for cost in cluster.queue_allocated.values() for name in cost}
    limited = {name for queue in cluster.queues for name in queue.max}
    resources = sorted(charged & limited)
    table, _ = build_queue_table(cluster.queues, resources)
    own = np.zeros((len(resources), len(table)))
    for queue, cost in cluster.queue_allocated.items():
        if queue in table.positions:
            own[:, table.positions[queue]] = [cost.get(name, 0.0) for name in resources]
    allocated = table.subtree_sums(own)
    over = allocated > table.max * (1 + TOLERANCE) + TOLERANCE
    for position, name in enumerate(table.names):
        rows = np.flatnonzero(over[:, position]).tolist()
        texts = [
            _amounts(
                resources[row], float(allocated[row, position]), float(table.max[row, position])
            )
            for row in rows
        ]
        yield _queue_finding(name, texts) if texts else None


def _last_ends(pods: Iterable[Pod]) -> Mapping[str, float]:
    """By the uid of an owner, when the last of its pods ended, as far as they say so."""
    last: dict[str, float] = {}
    for pod in pods:
        if not is_finished(pod):
            continue
        times = [c.last_transition_time for c in pod.status.conditions if c.last_transition_time]
        end = max((each.timestamp() for each in times), default=0.0)
        for owner in pod.metadata.owner_references:
            last[owner.uid] = max(last.get(owner.uid, 0.0), end)
    return last


def _is_below(cluster: AuditedCluster, gang: Gang, ended: Mapping[str, float]) -> bool:
    grace = gang.staleness_grace(cluster.staleness_grace)
    if not gang.bound or gang.is_satisfied or gang.succeeded or grace < 0:
        return False
    if gang.problem or gang.owner_unknown or gang.placeholders:
        return False
    if any(member.state is PodState.RELEASING for member in gang.members):
        return False
    since = max(
        *(max(m.created, m.bound_since) for m in gang.members), ended.get(gang.owner.uid, 0.0)
    )
    return cluster.is_settled(since + grace)


def _gang_finding(gang: Gang) -> AuditFinding:
    return AuditFinding(
        FindingKind.GANG_BELOW_MIN_MEMBER,
        (f"Gang {gang.key}",),
        f"gang {gang.key} runs below minMember: {len(gang.bound)} of its pods are bound, it needs "
        f"{gang.tree.min_pods()}; they keep capacity and cannot work",
    )


def _queue_finding(queue: str, texts: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.QUEUE_OVER_MAX,
        (f"Queue {queue}",),
        f"queue {queue} is over its maximum: {'; '.join(texts)}",
    )


def _amounts(resource: str, allocated: float, maximum: float) -> str:
    noun, unit = display_unit(resource)
    return f"{allocated / unit:g} {noun} are allocated, its maximum is {maximum / unit:g}"


RULES = (
    pods_without_claims,
    pods_without_nodes,
    devices_used_twice,
    gangs_below_min_member,
    queues_over_max,
    reservations_without_pods,
    reservations_without_use,
    nodes_over_capacity,
    host_ports_used_twice,
    shared_gpus_reserved,
    volumes_used_twice,
)


def audit_cluster(cluster: AuditedCluster) -> list[AuditFinding]:
    """What is wrong with the cluster, in order."""
    return sorted(found for rule in RULES for found in rule(cluster) if found is not None)
