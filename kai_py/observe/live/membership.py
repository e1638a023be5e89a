"""Gang and queue of a mirrored pod, by the planner's grouping rules."""

from typing import Any, Protocol

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.dialects.kai.grouping import KaiGrouping
from kai_py.dialects.kai.workloads import KaiQueueNaming
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import Absence, OwnerObject
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.watch.kinds import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    REPLICA_SETS,
    STATEFUL_SETS,
    WATCHED,
)
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Kind

OWNER_KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (JOBS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS)
}


class Membership(Protocol):
    """Maps pods to gangs."""

    def gang_of(self, pod: Pod) -> GangSpec:
        """The pod's gang, as far as its owners are known."""


class MirroredOwners:
    """Membership by the owners in a mirror, which must hold ``OWNER_KINDS`` and namespaces."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._grouping = KaiGrouping(RuleTable(shipped_rules()), KaiQueueNaming())

    def gang_of(self, pod: Pod) -> GangSpec:
        """The pod's gang, as far as its owners are known."""
        return self._grouping.identify(pod, _OwnersFor(self._mirror, pod.metadata.namespace))


class _OwnersFor:
    def __init__(self, mirror: Mirror, namespace: str) -> None:
        self._mirror = mirror
        self._namespace = namespace

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        kind = OWNER_KINDS.get(reference.kind)
        if kind is None:
            return Absence.UNREADABLE
        found: OwnerObject | None = self._mirror.objects(kind).get(
            (self._namespace, reference.name)
        )
        if found is None or found.metadata.uid != reference.uid:
            return Absence.NOT_FOUND
        return found

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        known: Kind[Any] | None = next(
            (kind for kind in WATCHED if kind.collection_name == collection), None
        )
        if known is None or self._mirror.served(known) is None:
            return None
        return self._mirror.objects(known).get((namespace, name))

    def child_groups(
        self, _collection: str, _namespace: str, _parent: str
    ) -> tuple[Unstructured, ...]:
        return ()

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        return (pod.spec.scheduler_name,)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        return self._mirror.objects(NAMESPACES).get(("", name))
