"""Relocation of victims: those that fit elsewhere are restarted there and are not lost.

Gangs are placed again by priority, then age, each with its minMember set before its elastic pods. A
subgroup or minMember set is relocated whole or lost; elastic pods of a leaf that fell below
minMember are lost with it. Those of its pods whose capacity is still idle stay where they are: a
pod placed on its own node is not evicted. Claims that were made for a pod alone are made again with
it, so that it gets other devices, wherever they are; pods that name claims of others are not
relocated. Rules between pods are checked for the pods that stay as for those relocated: the
preemptor may refuse them, and must stay as evenly spread as it requires.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from kai_py.plan.placement.fit import by_shape
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_selection import rules_of


def relocate(state: CycleState, units: Sequence[VictimUnit], action: Action) -> list[VictimUnit]:
    """Place evicted ``units`` of running gangs elsewhere; returns those that fit nowhere: lost."""
    by_gang: dict[str, list[VictimUnit]] = {}
    for unit in units:
        by_gang.setdefault(unit.gang.key, []).append(unit)
    relocated: set[int] = set()
    full: set[int] = set()
    for group in sorted(by_gang.values(), key=lambda group: _relocation_order(group[0].gang)):
        lost_leaves: set[str] = set()
        for unit in reversed(group):
            orphaned = any(member.subgroup in lost_leaves for member in unit.members)
            if not orphaned and _relocate_unit(state, unit, action, full):
                relocated.add(id(unit))
            else:
                lost_leaves.update(unit.leaves_below_min)
    return [unit for unit in units if id(unit) not in relocated]


def _relocation_order(gang: Gang) -> tuple[int, float, str]:
    return (-gang.priority, gang.created, gang.key)


def _relocate_unit(state: CycleState, unit: VictimUnit, action: Action, full: set[int]) -> bool:
    """Place a unit elsewhere; whether it fits.

    ``full``: numbers of shapes of which no node has capacity for one more pod; added to.
    """
    gang, quota, shape = unit.gang, state.quota, unit.members[0].shape.number
    if len(unit.members) == 1 and shape in full:
        return False
    if quota.queue_of(gang) is None or not all(map(owns_all_claims, unit.members)):
        return False
    if check_quota(quota, gang, unit.members, quota.cost_of(unit.members)) is not None:
        return False
    if not may_fit_elsewhere(state, unit):
        if len(unit.members) == 1:
            full.add(shape)
        return False
    may_stay = len(unit.members) > 1 or unit.members[0].claims
    if may_stay and _try_relocation(state, unit, action, keep_in_place=True):
        return True
    return _try_relocation(state, unit, action, keep_in_place=False)


def may_fit_elsewhere(state: CycleState, unit: VictimUnit) -> bool:
    """Whether the nodes have the resources for the pods of a unit: cheap, and mostly False."""
    return all(_shape_may_fit(state, group) for group in by_shape(as_recreated(unit.members)))


def _shape_may_fit(state: CycleState, group: Sequence[Member]) -> bool:
    shape, positions = group[0].shape, state.snapshot.nodes.positions
    fits = state.placer.shapes.fits
    if len(group) == 1:
        return fits.may_fit_later(state.statement, shape)
    fitting = int(fits.future_replicas(state.statement, shape).sum())
    if fitting >= len(group):
        return True
    mask = state.placer.shapes.fits.static_fits.of(shape, state.snapshot.nodes).mask
    rows = [positions.get(member.node) for member in group]
    return fitting + sum(row is not None and not mask[row] for row in rows) >= len(group)


def _try_relocation(
    state: CycleState, unit: VictimUnit, action: Action, *, keep_in_place: bool
) -> bool:
    with state.statement.trial() as trial:
        left = [
            m
            for m in unit.members
            if not (keep_in_place and _keep_in_place(state, unit.gang, m, action))
        ]
        blocked = left and state.placer.place(
            state.statement,
            unit.gang,
            as_recreated(left),
            action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        if not blocked and _beneficiary_stays_spread(state, unit):
            trial.keep()
    return trial.kept


def _beneficiary_stays_spread(state: CycleState, unit: VictimUnit) -> bool:
    """Whether the pods for which the unit was evicted keep their spread constraints beside it."""
    statement = state.statement
    beneficiary = statement.evicted[unit.members[0].pod.uid].beneficiary
    rules = statement.pod_rules.rules(Capacity.FUTURE_IDLE)
    return all(
        rules.is_spread(member.shape, statement.placed[member.pod.uid].row)
        for member in beneficiary.members
        if rules_of(member.shape).spread and member.pod.uid in statement.placed
    )


def _keep_in_place(state: CycleState, gang: Gang, member: Member, action: Action) -> bool:
    statement, row = state.statement, state.snapshot.nodes.positions.get(member.node)
    if (
        row is None
        or member.gpus
        or (statement.future_idle[:, row] < statement.occupied(member)).any()
    ):
        return False
    if not _allowed_by_pod_rules(state, member, row):
        return False
    return statement.place(gang, [member], row, action, capacity=Capacity.FUTURE_IDLE) == 1


def _allowed_by_pod_rules(state: CycleState, member: Member, row: int) -> bool:
    """Whether the rules between pods allow the pod beside those placed on its node."""
    pod_rules = state.statement.pod_rules
    if not pod_rules.concern(member.shape):
        return True
    rules = pod_rules.rules(Capacity.FUTURE_IDLE)
    return all(passes[row] for _, passes in rules.filters(member.shape))


def owns_all_claims(member: Member) -> bool:
    """Whether every claim of the pod is deleted with it."""
    claims = (use.claim for use in member.shape.claims if use.claim is not None)
    return all(
        any(owner.uid == member.pod.uid for owner in claim.metadata.owner_references)
        for claim in claims
    )


def as_recreated(members: Sequence[Member]) -> list[Member]:
    """The pods as they will be recreated: with claims not allocated yet."""
    return [_with_new_claims(member) if member.claims else member for member in members]


def _with_new_claims(member: Member) -> Member:
    """``member`` as its successor; the number of its shape is stable from cycle to cycle."""
    shape = member.shape
    uses = tuple(replace(use, claim=None, node_selector=None) for use in shape.claims)
    new = replace(shape, number=-2 - shape.number, claims=uses)
    kept = member.claims[: len(uses)]
    claims = tuple(replace(r, name=f"{r.name}/new", uid=f"{r.uid}/new") for r in kept)
    return structs.replace(member, shape=new, claims=claims)
