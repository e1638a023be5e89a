"""What may the scheduler do in a cluster? No more than it does.

It reads what ``watch.kinds`` mirrors and the owners that grouping has rules for, so the rules for
reading are derived from there; owners that it may not read end the walk from their pods. What
``commit`` writes is listed here, with the reason. A test on a real API server runs the scheduler
with exactly these permissions and finds none missing.
"""

from collections import defaultdict
from typing import Any

from kai_py.api.queue import GROUP as QUEUE_GROUP
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.watch.kinds import WATCHED

Rule = dict[str, Any]
READ = ("get", "list", "watch")


def cluster_rules() -> list[Rule]:
    """The rules of the ClusterRole."""
    return [*_reads(), *_writes()]


def lease_rules() -> list[Rule]:
    """The rules of the Role in the namespace of the lease: one replica schedules at a time."""
    return [_rule("coordination.k8s.io", ("leases",), ("create", "get", "patch"))]


def _reads() -> list[Rule]:
    plurals: dict[str, list[str]] = defaultdict(list)
    for kind in WATCHED:
        plurals[kind.group].append(kind.plural)
    for owner in RuleTable(shipped_rules()).kinds():
        plural = f"{owner.kind.lower()}s"
        if plural not in plurals[owner.group]:
            plurals[owner.group].append(plural)
    return [_rule(group, sorted(plurals[group]), READ) for group in sorted(plurals)]


def _writes() -> list[Rule]:
    return [
        # Bindings; evictions for preemption and reclaim, which honour disruption budgets.
        _rule("", ("pods/binding", "pods/eviction"), ("create",)),
        # Why a pod waits, which node it is nominated for, why it had to go.
        _rule("", ("pods/status",), ("patch",)),
        # The group of pods that share a GPU, written before they are bound; our scheduling gate.
        _rule("", ("pods",), ("patch",)),
        # The node for which a volume is to be provisioned.
        _rule("", ("persistentvolumeclaims",), ("patch",)),
        # Claims for extended resources, on nodes without a device plugin for them.
        _rule("resource.k8s.io", ("resourceclaims",), ("create", "delete")),
        # The finalizer, then allocation and reservation.
        _rule("resource.k8s.io", ("resourceclaims", "resourceclaims/status"), ("patch",)),
        # Allocations are guarded by this from Kubernetes 1.36 on.
        _rule("resource.k8s.io", ("resourceclaims/binding",), ("patch",)),
        _rule(QUEUE_GROUP, ("queues/status",), ("patch",)),
        _rule("scheduling.run.ai", ("podgroups/status", "queues/status"), ("patch",)),
        # Since when a gang runs below its floor, an annotation as in KAI.
        _rule("scheduling.run.ai", ("podgroups",), ("patch",)),
        # Whether Kubernetes' own groups, and Grove's, have started.
        _rule("scheduling.k8s.io", ("podgroups/status",), ("patch",)),
        _rule("scheduler.grove.io", ("podgangs/status",), ("patch",)),
        _rule("events.k8s.io", ("events",), ("create",)),
        # Whose token a reader of the dashboard shows, and whether that user may read it.
        _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
        _rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
    ]


def _rule(group: str, resources: tuple[str, ...] | list[str], verbs: tuple[str, ...]) -> Rule:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
