"""Shapes: equivalence classes of pods. Work is done once per shape, not once per pod.

Two pods have the same shape when no rule of placement can tell them apart: equal requests, equal
constraints and equal claims. A claim that only one pod uses is part of the shape by its spec; a
claim that pods share, or that is allocated already, is part of it by its identity.

The features of nodes that a pod relies on are part of it, too (KEP-5328): kubelets declare those
that they support, and fail a pod that requires another. They are inferred as by
k8s.io/component-helpers nodedeclaredfeatures/features (``InferForScheduling``); features that
matter only when a pod is changed are not listed. Not read are those of fields that no record has:
``bindMountOptions`` of volume mounts, and ``assigned.cpuset`` of the downward API.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, field

from kai_py.api.bounded import remember
from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.core import (
    Affinity,
    NodeSelector,
    Pod,
    PodAffinity,
    Toleration,
    TopologySpreadConstraint,
)
from kai_py.api.records.core import TopologySpreadConstraint as SpreadConstraint
from kai_py.api.records.resource import ResourceClaim, ResourceClaimSpec
from kai_py.snapshot.extended_resources import NO_EXTENDED_RESOURCES, ExtendedResources
from kai_py.snapshot.nodes import SpotChoice
from kai_py.snapshot.numa_alignment import Alignment, alignment
from kai_py.snapshot.requests import is_sidecar, pod_requests, unused_pod_level
from kai_py.snapshot.volume_requirements import NO_VOLUME_REQUIREMENTS, VolumeRequirements

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
RECENT_SHAPES = 4096
"""Shapes that are kept though no pod has them any more: pods of a workload come one by one."""
_ENCODER = msgspec.json.Encoder(order="deterministic")

HostPort = tuple[str, str, int]
"""(host IP, protocol, port); an empty IP means all addresses."""


class ClaimUse(Struct, frozen=True):
    """A claim as seen from a shape.

    ``claim`` is set when the claim is shared or allocated: then its identity matters.
    ``node_selector`` is that of its allocation, None without one. ``containers``: how many of the
    pod's refer to it.
    """

    name: str
    spec: ResourceClaimSpec
    claim: ResourceClaim | None = None
    node_selector: NodeSelector | None = None
    containers: int = 0

    @property
    def is_allocated(self) -> bool:
        """Whether devices are chosen already."""
        return (
            self.claim is not None
            and self.claim.status is not None
            and self.claim.status.allocation is not None
        )


class Shape(Struct, frozen=True, eq=False, weakref=True):
    """One equivalence class. ``number`` is unique within a builder, never used again, and ordered.

    ``plugin_equivalents``: what the claims take of resources that a device plugin may report for
    the same devices (``nvidia.com/gpu`` beside ``gpu.nvidia.com``). ``extended``: those of the
    requests that nodes without a device plugin for them serve by claim. ``alignment``: what nodes
    with NUMA zones align to them. ``unused_pod_level``: of what the pod requests as a whole, how
    much its containers leave, if it has claims. ``spot``: whether it goes to spot nodes, as its
    gang and its queue say. ``node_features``: those that nodes must declare.
    """

    number: int
    requests: Mapping[str, float]
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    topology_spread: tuple[SpreadConstraint, ...] = ()
    volume_selectors: tuple[NodeSelector, ...] = ()
    volumes: VolumeRequirements = NO_VOLUME_REQUIREMENTS
    claims: tuple[ClaimUse, ...] = ()
    plugin_equivalents: Mapping[str, float] = field(default_factory=dict)
    extended: ExtendedResources = NO_EXTENDED_RESOURCES
    unused_pod_level: Mapping[str, float] = field(default_factory=dict)
    gpu_share: GpuShare | None = None
    alignment: Alignment | None = None
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    spot: SpotChoice | None = None
    node_features: tuple[str, ...] = ()

    @property
    def one_per_node(self) -> bool:
        """Whether two of its pods never share a node, for their host ports or disks."""
        return bool(self.host_ports) or not all(each.read_only for each in self.volumes.disks)

    @property
    def pod_affinity(self) -> PodAffinity | None:
        """Required and preferred attraction to other pods."""
        return self.affinity.pod_affinity if self.affinity else None

    @property
    def pod_anti_affinity(self) -> PodAffinity | None:
        """Required and preferred repulsion from other pods."""
        return self.affinity.pod_anti_affinity if self.affinity else None

    @property
    def needs_devices(self) -> bool:
        """Whether any claim still has to be allocated, on some nodes at least."""
        return bool(self.extended.requests) or any(not use.is_allocated for use in self.claims)

    @property
    def reported_requests(self) -> Mapping[str, float]:
        """The requests that nodes must serve from what they report, never by a claim."""
        if not self.extended.resources:
            return self.requests
        return {n: a for n, a in self.requests.items() if n not in self.extended.resources}

    @property
    def has_claims(self) -> bool:
        """Whether claims have a say in where a pod fits."""
        return bool(self.claims or self.extended.requests)

    @property
    def shared_claims(self) -> list[ResourceClaim]:
        """The claims that are shared and were not allocated when the cycle began."""
        unallocated = (use.claim for use in self.claims if not use.is_allocated)
        return [claim for claim in unallocated if claim is not None]

    @property
    def shares_claims(self) -> bool:
        """Whether an unallocated claim is shared, so that its users must be placed one by one."""
        return bool(self.shared_claims)


class ShapeTable:
    """Interns shapes: equal pods get the same object for as long as any of them is known.

    Every pod with an allocated claim of its own has a shape of its own, so shapes go with their
    pods. Labels and namespace are part of a shape only where rules select pods by label: its own
    (inter-pod affinity, topology spread), or those of others (``labels_matter``).
    """

    def __init__(self) -> None:
        """Start empty."""
        self._shapes: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()
        self._recent: dict[bytes, Shape] = {}
        self._numbers = count()

    def intern(
        self,
        pod: Pod,
        claims: tuple[ClaimUse, ...] = (),
        volume_selectors: tuple[NodeSelector, ...] = (),
        plugin_equivalents: Mapping[str, float] | None = None,
        gpu_share: GpuShare | None = None,
        *,
        extended: ExtendedResources = NO_EXTENDED_RESOURCES,
        volumes: VolumeRequirements = NO_VOLUME_REQUIREMENTS,
        labels_matter: bool = False,
    ) -> Shape:
        """The shape of ``pod``; raises QuantityError for a malformed request."""
        spec = pod.spec
        ports, features = host_ports(pod), _required_features(pod)
        labels_matter = labels_matter or _has_rules(spec.affinity, spec.topology_spread_constraints)
        key = _ENCODER.encode(
            (
                _constraints(pod),
                ports,
                features,
                volume_selectors,
                volumes,
                [_identity(claim) for claim in claims],
                plugin_equivalents,
                gpu_share,
                extended,
                (pod.metadata.namespace, pod.metadata.labels) if labels_matter else None,
            )
        )
        known = self._shapes.get(key)
        if known is not None:
            return known
        shape = Shape(
            number=next(self._numbers),
            requests=pod_requests(pod),
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            host_ports=ports,
            topology_spread=spec.topology_spread_constraints,
            volume_selectors=volume_selectors,
            volumes=volumes,
            claims=claims,
            plugin_equivalents=plugin_equivalents or {},
            gpu_share=gpu_share,
            extended=extended,
            unused_pod_level=unused_pod_level(pod) if claims else {},
            alignment=alignment(pod),
            namespace=pod.metadata.namespace if labels_matter else "",
            labels=pod.metadata.labels if labels_matter else {},
            node_features=features,
        )
        self._shapes[key] = shape
        remember(self._recent, key, shape, RECENT_SHAPES)
        return shape


def _constraints(pod: Pod) -> tuple[object, ...]:
    """All of the pod itself, except its ports, that its shape depends on."""
    spec = pod.spec
    return (
        [(each.resources, each.restart_policy) for each in spec.containers],
        [(each.resources, each.restart_policy) for each in spec.init_containers],
        spec.resources,
        spec.overhead,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
    )


def _identity(use: ClaimUse) -> tuple[object, ...]:
    """All of a claim that a shape depends on: of a shared or allocated claim, which one it is."""
    uid = use.claim.metadata.uid if use.claim else ""
    return use.name, use.spec, uid, use.is_allocated, use.node_selector, use.containers


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of containers that run as long as the pod does, as NodePorts counts them."""
    sidecars = filter(is_sidecar, pod.spec.init_containers)
    return tuple(
        sorted(
            (
                port.host_ip if port.host_ip != "0.0.0.0" else "",
                port.protocol or "TCP",
                port.host_port,
            )
            for container in (*pod.spec.containers, *sidecars)
            for port in container.ports
            if port.host_port
        )
    )


def _required_features(pod: Pod) -> tuple[str, ...]:
    """The features that nodes must declare to run a pod, sorted."""
    spec = pod.spec
    found = []
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        found.append(RESTART_ALL_CONTAINERS)
    if spec.host_network and not spec.host_users:
        found.append(USER_NAMESPACES_ON_HOST_NETWORK)
    return tuple(found)


def _has_rules(affinity: Affinity | None, spread: Sequence[TopologySpreadConstraint]) -> bool:
    """Whether where a pod goes depends on other pods by its own rules.

    Constraints with ScheduleAnyway are not asked.
    """
    if affinity is None and not spread:
        return False
    between = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    return any(each and (each.required or each.preferred) for each in between) or any(
        each.when_unsatisfiable == "DoNotSchedule" for each in spread
    )
