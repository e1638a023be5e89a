"""The decisions of a cycle about single pods: placed, or evicted."""

from collections.abc import Mapping

from msgspec import Struct

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.references import ClaimRef
from kai_py.plan.plan import Action, ClaimAllocation, ClaimToCreate, NodeClaim
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang, Member


class Assignment(Struct, frozen=True):
    """A pod placed in this cycle."""

    member: Member
    gang: Gang
    row: int
    capacity: Capacity
    action: Action
    allocations: tuple[ClaimAllocation, ...] = ()
    reserved_claims: tuple[ClaimRef, ...] = ()
    gpus: tuple[SharedGpu, ...] = ()
    create_claim: ClaimToCreate | None = None
    node_claims: tuple[NodeClaim, ...] = ()
    node_amounts: Mapping[str, float] = {}


class Evicted(Struct, frozen=True):
    """A pod evicted in this cycle, with the beneficiary and the reason."""

    member: Member
    gang: Gang
    action: Action
    beneficiary: Gang
    reason: str
