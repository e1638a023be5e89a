"""The pods of a gang to place next, and what must be true before any is placed.

A gang below minMember requests exactly the pods that reach it, all or nothing, and with them
capacity for the pods that its framework creates once these run. A gang at minMember requests its
elastic pods: pod by pod, or an optional subgroup at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from kai_py.api.references import PodRef
from kai_py.grouping.gang import Subgroup, is_satisfied, neediest_first
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Charge, Gang, Member, PodState
from kai_py.snapshot.tables.queue_access import NamespaceLabels, closed_queue


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Pods to place together, all or none. ``is_elastic``: the gang has its minMember without them.

    ``has_more``: the gang has further pods to ask for once these are placed.
    """

    members: tuple[Member, ...]
    is_elastic: bool
    has_more: bool = False


def precondition(gang: Gang, quota: Quota, namespaces: NamespaceLabels) -> Unschedulable | None:
    """What must happen before the gang can be placed at all."""
    if gang.problem:
        return Unschedulable(
            Stage.BELOW_MIN_MEMBER if gang.owner_unknown else Stage.INVALID, gang.problem
        )
    queue = quota.queue_of(gang)
    if queue is None:
        named = f'queue "{gang.queue}" does not exist' if gang.queue else "no queue is named"
        hint = "create it, or set scheduling.kai.io/queue-name to an existing queue"
        return Unschedulable(Stage.QUEUE_NOT_FOUND, f"{named}; {hint}.")
    if not quota.queues.is_leaf[queue]:
        hint = "only queues without children accept workloads"
        return Unschedulable(Stage.QUEUE_NOT_FOUND, f'queue "{gang.queue}" has children; {hint}.')
    closed = closed_queue(quota.queues, queue, gang.owner.namespace, namespaces)
    if closed:
        hint = f'use another queue, or change spec.namespaces of queue "{closed}"'
        named = (
            f'queue "{closed}" does not accept workloads from namespace "{gang.owner.namespace}"'
        )
        return Unschedulable(Stage.INVALID, f"{named}; {hint}.")
    broken = next((m for m in gang.members if m.problem), None)
    if broken is not None:
        return Unschedulable(Stage.INVALID, broken.problem)
    return _members_missing(gang) or _claims_missing(gang)


def next_request(gang: Gang, statement: Statement) -> PlacementRequest | None:
    """The pods to place next, given what this cycle decided already; None when none is left."""
    left = [m for m in gang.pending if m.pod.uid not in statement.placed and not m.waiting_for]
    if not left:
        return None
    if [m for m in left if m.relies_on]:
        left.sort(key=lambda m: bool(m.relies_on))
    if (
        not gang.placeholders
        and not gang.tree.children
        and len(left) == len(gang.members) == gang.tree.min_members
    ):
        return PlacementRequest(_charged(gang, left, statement), is_elastic=False)
    have, by_leaf = active_counts(gang, statement), members_by_leaf(left)
    has_minimum = is_satisfied(gang.tree, have)
    choose = _next_elastic_pods if has_minimum else _min_member_pods
    uids = choose(gang.tree, have, by_leaf)
    if not uids:
        return None
    chosen = _charged(gang, [m for m in left if m.pod.uid in uids], statement)
    later = () if has_minimum else gang.placeholders
    return PlacementRequest((*chosen, *later), has_minimum, has_more=len(chosen) < len(left))


def _charged(gang: Gang, members: Sequence[Member], statement: Statement) -> tuple[Member, ...]:
    """The pods of a request, charged with shared claims that their queue does not pay for yet.

    These are claims whose pod starts neither with nor before them, and claims of other queues: the
    gang's own is charged with them once those pods have ended. What it owes already for pods that
    run counts with the latter.

    :returns: the same pods where none relies on the charge of another.
    """
    if not [m for m in members if m.relies_on]:
        return tuple(members)
    starting = {m.pod.uid for m in members} | statement.placed.keys()
    counted: dict[str, None] = {}
    found = []
    for member in members:
        unpaid: list[Charge] = []
        for joined in member.relies_on:
            foreign = statement.snapshot.queue_with_claims(joined.charged_to) != gang.queue
            pays = not foreign and (not joined.waits or joined.charged_to in starting)
            if pays or joined.claim in counted:
                continue
            if foreign:
                owed = statement.snapshot.owed_claims.get(gang.queue, {})
                unpaid += [charge for claim, charge in owed.items() if claim not in counted]
                counted.update(dict.fromkeys(owed))
            if joined.claim not in counted:
                counted[joined.claim] = None
                unpaid.append(joined.charge)
        charge = total((member.charge, *unpaid)) if unpaid else member.charge
        found.append(structs.replace(member, charge=charge) if unpaid else member)
    return tuple(found)


def elastic_pods(gang: Gang, statement: Statement) -> tuple[PodRef, ...]:
    """Pods still to place that the gang starts without; none if a single pod starts it.

    Where one pod is enough, every pod stands for itself.
    """
    min_pods = gang.tree.min_pods()
    if min_pods <= 1 or len(gang.members) <= min_pods:
        return ()
    left = [m for m in gang.pending if m.pod.uid not in statement.placed]
    have = active_counts(gang, statement)
    needed = _min_member_pods(gang.tree, have, members_by_leaf(left))
    if not needed and not is_satisfied(gang.tree, have):
        return ()
    return tuple(m.pod for m in left if m.pod.uid not in needed)


def active_counts(gang: Gang, statement: Statement) -> dict[str, int]:
    """Pods per leaf that are bound or placed, as this cycle has decided so far."""
    counts: dict[str, int] = {}
    for member in gang.members:
        uid = member.pod.uid
        stays = member.state == PodState.BOUND and uid not in statement.evicted
        if stays or uid in statement.placed:
            counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
    return counts


def elastic_rank(gang: Gang, statement: Statement) -> int:
    """0 below minMember, 1 exactly at it, 2 above: less served gangs come first."""
    have = active_counts(gang, statement)
    if not is_satisfied(gang.tree, have):
        return 0
    return 1 if sum(have.values()) <= gang.tree.min_pods() else 2


def incomplete_subgroup(gang: Gang) -> Unschedulable | None:
    """Which subgroup, without which the gang runs, has too few pods to start."""
    exist = gang.counts(PodState.BOUND, PodState.PENDING)
    for leaf in gang.tree.leaves():
        have = exist.get(leaf.name, 0)
        if have < leaf.min_members:
            text = (
                f"minMember of subgroup {leaf.name} is {leaf.min_members}; existing pods: {have}."
            )
            return Unschedulable(Stage.BELOW_MIN_MEMBER, text)
    return None


def _members_missing(gang: Gang) -> Unschedulable | None:
    if gang.is_satisfied or gang.can_be_satisfied:
        return None
    gated = sum(m.state == PodState.GATED for m in gang.members)
    exist = len(gang.pending) + len(gang.bound)
    waits = f"existing pods: {exist}" + (f", gated pods: {gated}" if gated else "")
    counted = f"minMember is {gang.tree.min_pods()}; {waits}"
    leaves = {leaf.name for leaf in gang.tree.leaves()}
    strange = next((m for m in gang.pending if m.waiting_for and m.subgroup not in leaves), None)
    if strange is not None:
        # More pods would not help it, so that the pods get a condition.
        return Unschedulable(Stage.INVALID, f"{counted}; pod {strange.pod}: {strange.waiting_for}.")
    return Unschedulable(Stage.SCHEDULING_GATED if gated else Stage.BELOW_MIN_MEMBER, f"{counted}.")


def _claims_missing(gang: Gang) -> Unschedulable | None:
    waiting = next((m for m in gang.pending if m.waiting_for), None)
    if waiting is None:
        return None
    able = gang.counts(PodState.BOUND)
    for member in gang.pending:
        if not member.waiting_for:
            able[member.subgroup] = able.get(member.subgroup, 0) + 1
    if is_satisfied(gang.tree, able) and any(not m.waiting_for for m in gang.pending):
        return None
    return pod_not_ready(gang, waiting)


def pod_not_ready(gang: Gang, member: Member) -> Unschedulable:
    """What a pod waits for by itself: its claims, or a subgroup that its gang has."""
    strange = member.subgroup not in {leaf.name for leaf in gang.tree.leaves()}
    stage = Stage.INVALID if strange else Stage.CLAIMS_NOT_READY
    return Unschedulable(stage, f"pod {member.pod}: {member.waiting_for}.")


def members_by_leaf(members: Iterable[Member]) -> dict[str, list[Member]]:
    """The pods of each leaf, in the order given."""
    leaves: dict[str, list[Member]] = {}
    for member in members:
        leaves.setdefault(member.subgroup, []).append(member)
    return leaves


def _min_member_pods(
    tree: Subgroup, have: Mapping[str, int], candidates: Mapping[str, list[Member]]
) -> set[str]:
    """Uids of the first pods that bring ``tree`` to its minMember; empty if there are too few."""
    if not tree.children:
        missing = tree.min_members - have.get(tree.name, 0)
        able = candidates.get(tree.name, [])
        if not 0 < missing <= len(able):
            return set()
        return {member.pod.uid for member in able[:missing]}
    needed = len(tree.children) if tree.min_subgroups is None else tree.min_subgroups
    needed -= sum(is_satisfied(child, have) for child in tree.children)
    chosen: set[str] = set()
    for child in neediest_first(tree.children, have):
        if needed <= 0 or is_satisfied(child, have):
            break
        uids = _min_member_pods(child, have, candidates)
        if uids:
            chosen |= uids
            needed -= 1
    return chosen if needed <= 0 else set()


def _next_elastic_pods(
    tree: Subgroup, have: Mapping[str, int], candidates: Mapping[str, list[Member]]
) -> set[str]:
    """Uids of the next elastic pods: one of a leaf, or what an optional subgroup starts with."""
    if not is_satisfied(tree, have):
        return _min_member_pods(tree, have, candidates)
    if not tree.children:
        return {member.pod.uid for member in candidates.get(tree.name, [])[:1]}
    for child in neediest_first(tree.children, have):
        uids = _next_elastic_pods(child, have, candidates)
        if uids:
            return uids
    return set()
