"""The decisions of a cycle about single pods: placed, with what devices, or evicted."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.references import ClaimRef
from kai_py.grouping.admitted import limits_of, resizable_requests
from kai_py.plan.plan import (
    Action,
    ClaimAllocation,
    ClaimToCreate,
    GangPlacement,
    NodeClaim,
    Placement,
)
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.volumes import AssumedVolumes
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.accounting import total
from kai_py.snapshot.admitted_gangs import expected_pods, is_fragile
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.placeholders import has_placeholder


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


class PodDevices(Struct, frozen=True):
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


NO_DEVICES = PodDevices()


def gang_placement(
    pods: Sequence[Assignment], names: Sequence[str], volumes: AssumedVolumes
) -> GangPlacement:
    """The placement of a gang with these pods; ``names``: of nodes."""
    gang = pods[0].gang
    # Mostly all pods of a gang share one set of limits.
    shared = pods[0].member.failure_limits
    limits = limits_of(shared)
    chosen_volumes = volumes.by_pod
    protected = gang.semi_preemptible or not gang.preemptible
    placements: list[Placement] = []
    for each in pods:
        member = each.member
        limited = member.failure_limits
        placements.append(
            Placement(
                member.pod,
                names[each.row],
                each.allocations,
                each.reserved_claims,
                each.gpus,
                member.gpus,
                each.create_claim,
                provision=member.volumes_to_provision,
                group_reservation=member.group_reservation,
                volumes=chosen_volumes.get(member.pod.uid, ()),
                subgroup=member.subgroup,
                gpu_share=member.shape.gpu_share,
                node_claims=each.node_claims,
                node_amounts=each.node_amounts,
                limits=limits if limited is shared else limits_of(limited),
                requests=resizable_requests(member.charge) if protected else {},
            )
        )
    return GangPlacement(
        gang=gang.key,
        owner=gang.owner,
        queue=gang.queue,
        action=pods[0].action,
        pods=tuple(placements),
        resume=has_placeholder([p.member.pod.uid for p in pods]),
        tree=gang.tree,
        priority=gang.priority,
        preemptible=gang.preemptible,
        semi_preemptible=gang.semi_preemptible,
        expected_runtime=gang.expected_runtime,
        expected=expected_pods(gang) if gang.placeholders else (),
        fragile=is_fragile(gang),
        charge=total([p.member.charge for p in pods]) if len(pods) > 1 else pods[0].member.charge,
        started=gang.started,
    )
