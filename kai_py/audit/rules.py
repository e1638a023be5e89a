"""All rules of the auditor. Each is linear in objects, allocated devices and volumes."""

from kai_py.audit.claims import (
    pods_without_claims,
    reservations_without_pods,
    reservations_without_use,
)
from kai_py.audit.finding import AuditedCluster, AuditFinding
from kai_py.audit.gangs import gangs_below_min_member, queues_over_max
from kai_py.audit.nodes import (
    nodes_over_capacity,
    pods_without_nodes,
    shared_gpus_reserved,
)
from kai_py.audit.used_twice import devices_used_twice, host_ports_used_twice, volumes_used_twice

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
