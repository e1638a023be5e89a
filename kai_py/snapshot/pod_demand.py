"""What a pod requests: its shape, its claims and its volumes, or what is wrong with its requests.

It follows from the pod and from the objects that the pod names.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from kai_py.api.gpu_share import (
    GpuShare,
    GpuShareError,
    gpu_share,
    legacy_mig_devices,
    legacy_mig_profile,
)
from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Pod
from kai_py.snapshot.accounting import Accounting, total
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.extended_resources import extended_resources
from kai_py.snapshot.missing_objects import MissingObject
from kai_py.snapshot.pod_claims import PodClaims, group_claims, pod_claims
from kai_py.snapshot.pod_volumes import NO_VOLUMES, PodVolumes, pod_volumes
from kai_py.snapshot.requests import excessive_request
from kai_py.snapshot.shape import Shape, ShapeTable

UNREADABLE_SHAPE = Shape(number=-1, requests={})


class PodDemand(Struct, frozen=True):
    """What a pod requests. ``waiting_for``, ``missing`` and ``problem`` are as in ``Member``.

    A pod whose requests cannot be read has ``UNREADABLE_SHAPE``: it requests nothing and is never
    placed. ``closes_node``: it is unknown what it takes of its node, which takes no more pods.
    """

    shape: Shape
    claims: PodClaims
    gpu_share: GpuShare | None
    volumes: PodVolumes = NO_VOLUMES
    waiting_for: str = ""
    missing: MissingObject | None = None
    problem: str = ""
    closes_node: bool = False
    unrequested_mig: Mapping[str, float] = field(default_factory=dict)
    """MIG devices of a running pod that it names by annotation and does not request."""

    @property
    def charged_by_shape(self) -> bool:
        """Whether all pods of the shape cost the same, wherever they are."""
        special = self.shape.gpu_share is not None or self.unrequested_mig
        return not self.shape.has_claims and not special


def pod_demand(
    pod: Pod,
    owners: RecordingOwners,
    shapes: ShapeTable,
    accounting: Accounting,
    *,
    labels_matter: bool,
    claims: PodClaims | None = None,
) -> PodDemand:
    """Resolve the claims and volumes of ``pod`` and find its shape; ``claims`` if known."""
    if claims is None:
        claims = pod_claims(pod, owners.claim, group_claims(pod, owners.named))
    volumes = pod_volumes(pod, owners)
    equivalents = total(
        accounting.plugin_equivalents(
            use.spec, None if use.claim is None else use.claim.status.allocation
        )
        for use in claims.uses
    )
    problem, share = _gpu_share(pod)
    try:
        shape = shapes.intern(
            pod,
            claims.uses,
            volumes.selectors,
            equivalents,
            share,
            extended=extended_resources(pod, owners.device_class_for, share),
            volumes=volumes.requirements,
            labels_matter=labels_matter,
        )
        problem = problem or _unrequested_mig(pod) or excessive_request(shape.requests)
    except QuantityError as error:
        problem, shape = str(error), UNREADABLE_SHAPE
    first = claims if claims.waiting_for else volumes
    closes = shape is UNREADABLE_SHAPE or claims.unreadable
    mig = legacy_mig_devices(pod) if pod.spec.node_name else {}
    return PodDemand(
        shape=shape,
        claims=claims,
        gpu_share=share,
        volumes=volumes,
        waiting_for=first.waiting_for,
        missing=first.missing,
        problem=problem,
        closes_node=closes,
        unrequested_mig=mig,
    )


def _unrequested_mig(pod: Pod) -> str:
    """The problem of a pending pod that requests a MIG device by annotation only."""
    profile = legacy_mig_profile(pod)
    if not profile or pod.spec.node_name:
        return ""
    return f"annotation {profile} gives it no MIG device: request {profile} in resources.limits"


def _gpu_share(pod: Pod) -> tuple[str, GpuShare | None]:
    """The problem of the pod's request for a part of a GPU, and the part."""
    try:
        return "", gpu_share(pod)
    except GpuShareError as error:
        return str(error), None
