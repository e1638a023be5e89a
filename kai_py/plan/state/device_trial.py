"""The devices protocol of placement, independent of the allocator behind it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.dra.allocation_query import Alternatives
from kai_py.dra.published_names import PublishedNames
from kai_py.plan.plan import ClaimAllocation, ClaimToCreate, NodeClaim
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices found for a pod: the allocations of claims that had none, and the undo.

    ``create_claim``: the claim for its extended resources on a node without a device plugin.
    ``refund``: by how much its queue is charged less than for the most it could have got.
    ``node_claims``: what its claims take of the node's own resources, ``node_amounts`` what of that
    comes on top of the pod's requests, in row units.
    """

    allocations: tuple[ClaimAllocation, ...] = ()
    undo: Undo | None = None
    create_claim: ClaimToCreate | None = None
    refund: Mapping[str, float] = field(default_factory=dict)
    node_claims: tuple[NodeClaim, ...] = ()
    node_amounts: Mapping[str, float] = field(default_factory=dict)


class DeviceTrial(Protocol):
    """Devices of all nodes with the decisions of the cycle so far."""

    def replicas(self, shape: Shape, mask: Bools, count: int, capacity: Capacity) -> Ints:
        """(nodes,) int64: pods of ``shape``, at most ``count``, for which there are devices."""

    def alternatives(
        self, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Alternatives | None:
        """(nodes,) each: which alternatives of ``firstAvailable`` up to ``count`` pods get.

        None where the shape has no such requests. To be called after ``replicas``.
        """

    def divides_gpus(self, shape: Shape) -> Bools:
        """(nodes,) bool: where parts of GPUs can be claimed for ``shape``, were they free."""

    def allocate(self, member: Member, row: int, capacity: Capacity) -> PodDevices | None:
        """Allocate the pod's claims on a node; None when the devices are not available."""

    def crowded_claim(self, members: Sequence[Member], capacity: Capacity) -> str:
        """The first claim that has too many users with ``members``, as a sentence; else ""."""

    def own_claims(self, member: Member) -> Mapping[ClaimRef, ResourceClaimSpec]:
        """Unallocated claims with which the gang of a pod is charged, and that are not shared."""

    def narrowed(self, specs: Mapping[int, ResourceClaimSpec]) -> AbstractContextManager[None]:
        """Allocate claims by other specs for a while; ``specs``: by the id of the claims' own."""

    def release(self, member: Member) -> Undo | None:
        """Free the devices of an evicted pod; claims with other users stay allocated."""

    def replicas_on_empty_nodes(self, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) int64: as ``replicas`` while all devices are free."""

    def fits_empty_cluster(self, shape: Shape) -> bool:
        """Whether some node has devices for one pod of ``shape`` while all are free."""

    def node_claim_problem(self, shape: Shape, row: int) -> str:
        """Why ``allocate`` refused claims on a node for what they take of it; "" if it did not."""

    def infeasible_reason(self, shape: Shape, mask: Bools) -> str:
        """Why no node in ``mask`` has the devices while all are free; "" if that may change."""

    def published_names(self) -> PublishedNames:
        """What the devices of the cluster publish."""

    def unschedulable_reason(self, shape: Shape, mask: Bools) -> str:
        """One sentence: why the claims of ``shape`` can't be allocated in ``mask``."""
