"""Refusals: nodes whose kubelet refused pods of a gang are not used for the gang for a while.

A kubelet that refuses a pod ends it as Failed, with one of ``REASONS`` or ``OutOf`` and a resource,
before a container has started. The framework creates the pod again, and by what the API says of the
node it fits there again. So the node is left out for the gang, ``FIRST_SECONDS`` after the first
refusal, twice as long after each further one within ``FORGET_SECONDS``.

Source: the reasons of Kubernetes 1.36, ``pkg/kubelet`` (lifecycle/predicate.go, cm/topologymanager,
cm/cpumanager, nodeshutdown, eviction).
"""

from collections.abc import Iterator

from kai_py.api.records.core import Pod
from kai_py.api.times import backoff_seconds, happened_within, lies_ahead
from kai_py.snapshot.pod_failures import NodeRefusal
from kai_py.snapshot.tables.pod_table import PodTable, Uids

REASONS = frozenset(
    {
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "NodeShutdown",
        "Evicted",
        "InvalidNodeInfo",
        "AppArmor",
        "SysctlForbidden",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "InitContainersRestartNotSupported",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
    }
)
SHORTAGE = "OutOf"
MAX_SHOWN = 64
"""Characters of a reason: the name of a resource may be long."""
FIRST_SECONDS = 60.0
FORGET_SECONDS = 3600.0


class Refusals(PodTable):
    """The refusals by gang. Those of gangs that are gone are kept: their pods may come back."""

    def __init__(self) -> None:
        """No pod was refused yet."""
        self._counted: dict[str, None] = {}
        self._new: list[tuple[str, Pod]] = []
        self._known: dict[str, dict[str, NodeRefusal]] = {}
        self._active: dict[str, tuple[NodeRefusal, ...]] = {}

    def note(self, pod: Pod, gang: str) -> None:
        """A pod of ``gang`` that has failed; the time runs from ``update``: here is no clock."""
        uid = pod.metadata.uid
        if uid not in self._counted:
            self._counted[uid] = None
            self._new.append((gang, pod))

    def remove(self, pod: Pod) -> Uids:
        """The pod does not exist any more; what its node did is remembered."""
        self._counted.pop(pod.metadata.uid, None)
        return ()

    def update(self, now: float) -> Iterator[str]:
        """Take in new refusals, and end those whose time is over; yields the gangs concerned."""
        for gang, pod in self._new:
            self._add(gang, pod, now)
        self._new.clear()
        for gang, nodes in list(self._known.items()):
            for each in list(nodes.values()):
                if not happened_within(FORGET_SECONDS, each.at, now):
                    del nodes[each.node]
            if not nodes:
                del self._known[gang]
            active = tuple(
                nodes[node]
                for node in sorted(nodes)
                if lies_ahead(nodes[node].until, now, FORGET_SECONDS)
            )
            if active != self._active.get(gang, ()):
                self._active[gang] = active
                yield gang
            if not active:
                self._active.pop(gang, None)

    def of(self, gang: str) -> tuple[NodeRefusal, ...]:
        """The nodes that are left out for a gang, as of ``update``, by name."""
        return self._active.get(gang, ())

    def gangs(self) -> tuple[str, ...]:
        """Keys of the gangs for which nodes are left out, in order."""
        return tuple(sorted(self._active))

    def _add(self, gang: str, pod: Pod, now: float) -> None:
        started, node = pod.status.start_time, pod.spec.node_name
        at = now if started is None else min(started.timestamp(), now)
        if now - at > FORGET_SECONDS:
            return
        nodes = self._known.setdefault(gang, {})
        count = 1 + (nodes[node].count if node in nodes else 0)
        seconds = backoff_seconds(count, FIRST_SECONDS, FORGET_SECONDS)
        nodes[node] = NodeRefusal(node, pod.status.reason[:MAX_SHOWN], count, at, at + seconds)


def is_refused(pod: Pod) -> bool:
    """Whether the kubelet of its node refused a pod that has failed."""
    reason, status = pod.status.reason, pod.status
    if not pod.spec.node_name or not (reason in REASONS or reason.startswith(SHORTAGE)):
        return False
    containers = (*status.init_container_statuses, *status.container_statuses)
    return not any(each.started or each.state.terminated is not None for each in containers)
