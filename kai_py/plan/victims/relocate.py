"""Relocation of victims: those that fit elsewhere are restarted there and are not lost.

Gangs are placed by priority, then age, each with its minMember set before its elastic pods. A
subgroup or minMember set is relocated whole or lost; the elastic pods of a leaf that fell below
minMember are lost with it. Pods of a unit whose own node still has capacity for them stay there: a
pod that is placed on its own node is not evicted. A claim that was created for one pod only is
created again with it, so the pod may get other devices on another node; pods with claims that
outlive them are not relocated. Anti-affinity and topology spread hold for relocated pods as for any
other: the preemptor's anti-affinity may keep them off nodes, and its required affinity and spread
constraints must still hold with them.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec import structs

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.topology import in_required_domains
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.survival import are_created_again, running_pods, would_fail
from kai_py.plan.victims.units import VictimUnit, units_by_gang
from kai_py.policy.fit import holds
from kai_py.policy.queue_order import by_priority_and_age
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_selection import DomainTerm, rules_of, selects
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape


def relocate(state: CycleState, units: Sequence[VictimUnit], action: Action) -> list[VictimUnit]:
    """Place evicted ``units`` elsewhere; returns those that fit nowhere, which are lost.

    Those with pods that just started count as lost wherever they fit: to move them takes the right
    to evict them. In the statement, which must be in a trial. ``action``: recorded with the
    placements.
    """
    relocated: set[int] = set()
    without_capacity: set[int] = set()
    by_gang = units_by_gang(units).values()
    for group in sorted(by_gang, key=lambda group: by_priority_and_age(group[0].gang)):
        lost_leaves: set[str] = set()
        for unit in reversed(group):
            is_lost = any(member.subgroup in lost_leaves for member in unit.members)
            if not is_lost and _relocate_unit(state, unit, action, without_capacity):
                relocated.add(id(unit))
            else:
                lost_leaves.update(unit.leaves_below_min)
    settled = state.eviction_limits.has_settled
    return [unit for unit in units if id(unit) not in relocated or not settled(unit)]


def evict_for_itself(
    state: CycleState, gang: Gang, members: Iterable[Member], action: Action, reason: str
) -> None:
    """Evict pods of a gang for its own sake, not for other gangs: they are created again."""
    for member in members:
        if not state.eviction_limits.is_refused(member.pod.uid):
            state.statement.evict(Evicted(member, gang, action, gang, reason))


def protection_of(state: CycleState, gang: Gang, members: Sequence[Member]) -> str:
    """Why these pods may not be evicted for the sake of their own gang, as a clause; "": they may.

    Only what holds for every eviction: the workload must not fail, and budgets count.
    """
    if not are_created_again(members):
        return "its pods would not be created again"
    if would_fail(gang, members):
        return "an eviction would make its workload fail"
    pods = [member.pod.uid for member in members]
    found = state.eviction_limits.protection_of(pods, state.statement.evicted)
    return f"{found} protects it" if found else ""


def move_whole(
    state: CycleState, gang: Gang, action: Action, reason: str, *, allowed: Bools | None = None
) -> bool:
    """Evict the gang if all of it fits elsewhere, on nodes that are ``allowed``; whether it did."""
    members = running_pods(gang, state.statement)
    if not all(map(owns_all_claims, members)):
        return False
    with state.statement.trial() as trial:
        evict_for_itself(state, gang, members, action, reason)
        blocked = state.placer.place(
            state.statement,
            gang,
            as_recreated(members),
            action,
            capacity=Capacity.FUTURE_IDLE,
            allowed=allowed,
            explain=False,
        )
        if blocked is None:
            trial.keep()
    return trial.kept


def may_relocate(state: CycleState, unit: VictimUnit) -> bool:
    """Whether the unit may be relocated at all, wherever it fits."""
    if not (state.quota.rules.relocates_ownerless or are_created_again(unit.members)):
        return False
    return all(map(owns_all_claims, unit.members)) and state.eviction_limits.has_settled(unit)


def _relocate_unit(
    state: CycleState, unit: VictimUnit, action: Action, without_capacity: set[int]
) -> bool:
    """Place a unit elsewhere; whether it fits.

    ``without_capacity``: numbers of the shapes for which no node has capacity; added to.
    """
    gang, quota, shape = unit.gang, state.quota, unit.members[0].shape.number
    if len(unit.members) == 1 and shape in without_capacity:
        return False
    if quota.queue_of(gang) is None or not all(map(owns_all_claims, unit.members)):
        return False
    if check_quota(quota, gang, unit.members, quota.cost_of(unit.members)) is not None:
        return False
    if not may_fit_elsewhere(state, unit):
        if len(unit.members) == 1:
            without_capacity.add(shape)
        return False
    may_stay = len(unit.members) > 1 or unit.members[0].claims
    if may_stay and _try_relocation(state, unit, action, keep_in_place=True):
        return True
    return _try_relocation(state, unit, action, keep_in_place=False)


def may_fit_elsewhere(state: CycleState, unit: VictimUnit) -> bool:
    """Whether the nodes may have the resources for the unit: a cheap necessary condition."""
    return all(_shape_may_fit(state, group) for group in by_shape(as_recreated(unit.members)))


def _shape_may_fit(state: CycleState, group: Sequence[Member]) -> bool:
    shape, positions = group[0].shape, state.snapshot.nodes.positions
    fits = state.placer.shapes.fits
    if len(group) == 1:
        return fits.may_fit_later(state.statement, shape)
    fitting = int(fits.future_replicas(state.statement, shape).sum())
    if fitting >= len(group):
        return True
    mask = state.admitting(shape)
    rows = [positions.get(member.node) for member in group]
    return fitting + sum(row is not None and not mask[row] for row in rows) >= len(group)


def _try_relocation(
    state: CycleState, unit: VictimUnit, action: Action, *, keep_in_place: bool
) -> bool:
    """Place the unit; ``keep_in_place``: its pods on their own nodes where these have capacity."""
    with state.statement.trial() as trial:
        moving = [
            m
            for m in unit.members
            if not (keep_in_place and place_again(state, unit.gang, m, action))
        ]
        blocked = moving and state.placer.place(
            state.statement,
            unit.gang,
            as_recreated(moving),
            action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        beneficiary = state.statement.evicted[unit.members[0].pod.uid].beneficiary
        if blocked or (
            len(moving) < len(unit.members) and _leaves_domain(state, unit, beneficiary)
        ):
            return False
        if _stays_spread(state, beneficiary) and _stays_near(state, beneficiary):
            trial.keep()
    return trial.kept


def _leaves_domain(state: CycleState, unit: VictimUnit, beneficiary: Gang) -> bool:
    """Whether pods kept in place for their own gang are in other domains than what it gets."""
    is_own = unit.gang.key == beneficiary.key
    return is_own and not in_required_domains(state.statement, beneficiary, beneficiary.tree)


def _stays_spread(state: CycleState, beneficiary: Gang) -> bool:
    """Whether the preemptor's spread constraints still hold with the victims where they are now."""
    statement = state.statement
    rules = statement.pod_rules.rules(Capacity.FUTURE_IDLE)
    return all(
        rules.is_spread(member.shape, statement.placed[member.pod.uid].row)
        for member in beneficiary.members
        if rules_of(member.shape).spread and member.pod.uid in statement.placed
    )


def _stays_near(state: CycleState, beneficiary: Gang) -> bool:
    """Whether the preemptor's required affinity still holds.

    While no pod matches the affinity, its first pod may go anywhere. A relocated pod that matches
    may start before it, and then has to be in the same domain.
    """
    statement, namespaces = state.statement, state.snapshot.namespaces
    placed = [m for m in beneficiary.members if m.pod.uid in statement.placed]
    rows = np.array([statement.placed[m.pod.uid].row for m in placed], dtype=np.int64)
    for shape in {m.shape.number: m.shape for m in placed if rules_of(m.shape).affinity}.values():
        rules = rules_of(shape)
        own = [selects(rules.affinity, m.pod.namespace, m.labels, namespaces) for m in placed]
        of_shape = [m.shape is shape for m in placed]
        for key in rules.affinity_keys:
            counts = statement.pod_rules.selected(DomainTerm(rules.affinity, key))
            others = counts.later - np.bincount(
                counts.codes[rows[own]], minlength=len(counts.later)
            )
            if (others[1:] > 0).any() and (others[counts.codes[rows[of_shape]]] <= 0).any():
                return False
    return True


def place_again(state: CycleState, gang: Gang, member: Member, action: Action) -> bool:
    """Place the pod on its own node again; whether that was possible."""
    statement, row = state.statement, state.snapshot.nodes.positions.get(member.node)
    if row is None or member.gpus:
        return False
    if not holds(statement.future_idle[:, row], statement.occupied(member)):
        return False
    if not _allowed_by_pod_rules(state, member, row):
        return False
    return statement.place(gang, [member], row, action, capacity=Capacity.FUTURE_IDLE) == 1


def _allowed_by_pod_rules(state: CycleState, member: Member, row: int) -> bool:
    """Whether the rules between pods allow the pod on the node of row ``row``."""
    pod_rules = state.statement.pod_rules
    if not pod_rules.concern(member.shape):
        return True
    rules = pod_rules.rules(Capacity.FUTURE_IDLE)
    return all(passes[row] for _, passes in rules.filters(member.shape))


def owns_all_claims(member: Member) -> bool:
    """Whether the pod owns all claims that it names, so that they are deleted with it."""
    claims = (use.claim for use in member.shape.claims if use.claim is not None)
    return all(
        any(owner.uid == member.pod.uid for owner in claim.metadata.owner_references)
        for claim in claims
    )


def as_recreated(members: Sequence[Member]) -> list[Member]:
    """The pods as they will be recreated: with new claims that are not allocated yet."""
    return [_with_new_claims(member) if member.claims else member for member in members]


class RecreatedShapes:
    """The shapes of pods once these are recreated; equal ones are one.

    Each pod with allocated claims has a shape of its own, which names the claims.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[int, Shape] = {}
        self._by_content: dict[bytes, Shape] = {}

    def of(self, member: Member) -> Shape:
        """The shape of ``member`` once it is recreated, or an equal one."""
        if not member.claims:
            return member.shape
        number = member.shape.number
        if number not in self._known:
            (new,) = as_recreated([member])
            content = msgspec.msgpack.encode(structs.replace(new.shape, number=0))
            self._known[number] = self._by_content.setdefault(content, new.shape)
        return self._known[number]


def _with_new_claims(member: Member) -> Member:
    """``member`` with new claims; the number of its new shape is the same in every cycle."""
    shape = member.shape
    uses = tuple(structs.replace(use, claim=None, node_selector=None) for use in shape.claims)
    new = structs.replace(shape, number=-2 - shape.number, claims=uses)
    kept = member.claims[: len(uses)]
    claims = tuple(structs.replace(r, name=f"{r.name}/new", uid=f"{r.uid}/new") for r in kept)
    return structs.replace(member, shape=new, claims=claims)
