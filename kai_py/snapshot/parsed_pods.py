"""Pods parsed together with the objects that they name, cached while they wait.

What was parsed changes only with the pod or one of these objects, not with where the pod goes, so
that neither assuming a waiting pod on a node nor seeing it bound there costs a second look. Pods
that the API has on a node are derived rarely and are not cached.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from kai_py.api.gpu_share import legacy_mig_profile
from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.dependencies import Dependencies, RecordingOwners
from kai_py.snapshot.invalid_pods import invalid_demand, invalid_gang
from kai_py.snapshot.placeholders import ExpectedMembers, expected_members
from kai_py.snapshot.pod_demand import PodDemand, pod_demand
from kai_py.snapshot.settings import DeviceRegistry
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.suspended_jobs import placeholder_problem, with_admission_defaults
from kai_py.snapshot.tables.gpu_memory import GpuMemory
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids

Identify = Callable[[Pod, Owners], GangSpec]


@dataclass(frozen=True, slots=True)
class ParsedPod:
    """``pod`` as admission leaves it; ``gang_spec`` is None for pods that are not ours.

    ``expected``: what pods of its gang that may not exist yet are like.
    """

    pod: Pod
    demand: PodDemand
    gang_spec: GangSpec | None
    expected: tuple[ExpectedMembers, ...] = ()


class ParsedPods(PodTable):
    """Parses pods, notes what they depend on, and caches those that wait."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        gpu_memory: GpuMemory,
        dependencies: Dependencies,
        owners: Callable[[], RecordingOwners],
    ) -> None:
        """``owners`` makes what one pod looks up the objects with that it names."""
        self._identify = identify
        self._devices = devices
        self._gpu_memory = gpu_memory
        self._dependencies = dependencies
        self._owners = owners
        self._shapes = ShapeTable()
        self._cached: dict[str, ParsedPod] = {}

    def parse(self, pod: Pod, *, ours: bool, labels_matter: bool) -> ParsedPod:
        """The pod as it is cached, or else parsed now; ``labels_matter`` as for shapes."""
        cached = self._cached.get(pod.metadata.uid)
        # A pod with a node may be another one than was parsed: it counts as it was admitted.
        if cached is not None and (cached.pod is pod or not pod.spec.node_name):
            return cached
        owners = self._owners()
        try:
            return self._parse(pod, owners, ours=ours, labels_matter=labels_matter)
        finally:
            # Also after a failure: a change of what it named so far is reason for another attempt.
            self._dependencies.set(pod.metadata.uid, owners.looked_up)

    def _parse(
        self, pod: Pod, owners: RecordingOwners, *, ours: bool, labels_matter: bool
    ) -> ParsedPod:
        accounting = self._devices.accounting
        admitted, claims = with_admission_defaults(pod, owners)
        demand = pod_demand(
            admitted, owners, self._shapes, accounting, labels_matter=labels_matter, claims=claims
        )
        spec = self._identify(admitted, owners) if ours else None
        problem = placeholder_problem(pod, owners)
        if spec is not None and problem:
            spec = replace(spec, problem=problem)
        expected: tuple[ExpectedMembers, ...] = ()
        if spec is not None and spec.expected:
            expected = expected_members(
                spec.expected, owners, self._shapes, accounting, self._gpu_memory
            )
        return ParsedPod(admitted, demand, spec, expected)

    def parse_invalid(self, pod: Pod, problem: str, *, ours: bool) -> ParsedPod:
        """What is left of a pod that cannot be parsed, and why."""
        demand = invalid_demand(pod, self._shapes, problem)
        return ParsedPod(pod, demand, invalid_gang(pod, problem) if ours else None)

    def gang_key(self, pod: Pod) -> str:
        """The key of the gang of a pod that has ended; it depends on its owners only."""
        owners = self._owners()
        key = self._identify(pod, owners).key
        self._dependencies.set(pod.metadata.uid, owners.looked_up)
        return key

    def keep_bound(self, before: Pod, bound: Pod) -> bool:
        """Go on with what was parsed of a pod that is only on a node now; whether that holds.

        What claims, shares of GPUs and MIG devices mean depends on whether the pod has a node.
        """
        uid = bound.metadata.uid
        cached = self._cached.get(uid)
        if cached is None or cached.pod is not before or not was_only_bound(before, bound):
            return False
        if not cached.demand.charged_by_shape or legacy_mig_profile(bound):
            return False
        self._cached[uid] = ParsedPod(bound, cached.demand, cached.gang_spec, cached.expected)
        return True

    def invalidate(self, uid: str) -> None:
        """The pod, or something that it names, has changed."""
        self._cached.pop(uid, None)

    def place(self, pod: DerivedPod) -> Uids:
        """Cache a pod of ours that waits, or is assumed on a node that the API does not show."""
        if pod.parsed.pod.spec.node_name or pod.parsed.gang_spec is None:
            self._cached.pop(pod.uid, None)
        else:
            self._cached[pod.uid] = pod.parsed
        return ()

    def release(self, uid: str) -> Uids:
        """The pod has ended or is gone."""
        self._cached.pop(uid, None)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone and depends on nothing."""
        self._dependencies.clear(pod.metadata.uid)
        return ()


def was_only_bound(before: Pod, now: Pod) -> bool:
    """Whether a pod differs from what it was by what a binding writes alone.

    That is its node and its terms of admission; what kubelets report since then does not matter to
    pods without claims.
    """
    node, meta = now.spec.node_name, now.metadata
    if before.spec.node_name or not node or now.spec.resource_claims:
        return False
    if now.status.extended_resource_claim_status is not None:
        return False
    annotations = before.metadata.annotations
    if ADMITTED_KEY in meta.annotations:
        annotations = {**annotations, ADMITTED_KEY: meta.annotations[ADMITTED_KEY]}
    changed = structs.replace(
        before.metadata,
        annotations=annotations,
        resource_version=meta.resource_version,
        generation=meta.generation,
    )
    return changed == meta and structs.replace(before.spec, node_name=node) == now.spec
