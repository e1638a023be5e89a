"""Devices that were found for a pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.plan.plan import ClaimAllocation, ClaimToCreate, NodeClaim
from kai_py.plan.state.undo import Undo


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
