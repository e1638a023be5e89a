"""A derived pod: what it and the objects that it names say, where it is, and what it takes there.

Tables learn of pods as ``DerivedPod`` (``tables.pod_table``).
"""

from collections.abc import Mapping

from msgspec import Struct

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.grouping.gang import GangSpec
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.shape import HostPort
from kai_py.snapshot.shared_gpus import SharedGpuUsage
from kai_py.snapshot.volume_requirements import Attachment, Disk


class ExpectedMembers(Struct, frozen=True):
    """``count`` pods of a leaf, existing ones included, that all equal ``member``."""

    count: int
    member: Member


class ParsedPod(Struct, frozen=True):
    """``pod`` as admission leaves it; ``gang_spec`` is None for pods that are not ours.

    ``expected``: what pods of its gang that may not exist yet are like. ``is_valid``: whether the
    pod could be parsed.
    """

    pod: Pod
    demand: PodDemand
    gang_spec: GangSpec | None
    expected: tuple[ExpectedMembers, ...] = ()
    is_valid: bool = True


class PodPlacement(Struct, frozen=True):
    """Where a pod is: as the API has it, and as what is being written will make it.

    ``node`` is "" while there is none, ``nominated`` the node that is reserved for it or "".
    ``gpus``: the shared GPUs of which it is being given a part. ``gets_claim``: a claim is being
    made for it. ``node_amounts``: what its claims take of the node, while that is being written.
    ``lingering``, ``overdue``: as in ``Member``.
    """

    node: str
    nominated: str = ""
    terminating: bool = False
    gpus: tuple[SharedGpu, ...] = ()
    stuck_terminating: bool = False
    gets_claim: bool = False
    lingering: bool = False
    overdue: bool = False
    node_amounts: Mapping[str, float] = {}


class AssumedBinding(Struct, frozen=True):
    """A binding that is being written, with everything that goes with it.

    ``claims``: new allocations by claim uid. ``gpus``: the shared GPUs of which the pod gets a
    part. ``new_claim``: the claim that is created for its extended resources. ``volumes``: the
    names of the PersistentVolumes that its claims get. ``node_amounts``: what its claims take of
    the node beside its requests.
    """

    pod_uid: str
    node: str
    claims: Mapping[str, AllocationResult] = {}
    gpus: tuple[SharedGpu, ...] = ()
    new_claim: ResourceClaim | None = None
    volumes: tuple[str, ...] = ()
    node_amounts: Mapping[str, float] = {}


class PodUsage(Struct, frozen=True):
    """What one pod occupies on one node.

    ``requests``: amounts in row units. ``legacy_mig``: it has MIG devices that it does not request,
    so that it is unknown which. ``attachments``: volumes on the node. ``exclusive``: volume claims
    that no other pod may use. ``disks``: those mounted without a claim.
    """

    node: str
    requests: Mapping[str, float]
    host_ports: tuple[HostPort, ...] = ()
    releasing: bool = False
    shared_gpus: SharedGpuUsage | None = None
    legacy_mig: bool = False
    attachments: tuple[Attachment, ...] = ()
    exclusive: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()

    @property
    def has_items(self) -> bool:
        """Whether it occupies anything that is not an amount."""
        return bool(self.host_ports or self.attachments or self.exclusive or self.disks)


class DerivedPod(Struct, frozen=True):
    """A pod, what it and the objects that it names say, and where it is.

    ``usage``: what it takes of its node, None without a node. ``gpus``: the shared GPUs of which
    it has a part.
    """

    uid: str
    parsed: ParsedPod
    placement: PodPlacement
    gpus: tuple[SharedGpu, ...]
    usage: PodUsage | None
