"""The pods of a gang to place next, and what must be true before any is placed.

A gang below minMember requests exactly the pods that bring it to minMember, all or nothing, and
capacity for the pods that its framework creates once these run (placeholders). A gang at minMember
requests its elastic pods, one by one or one optional subgroup at a time; they do not start before
pods that minMember needs and that wait for terminating pods.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct, structs

from kai_py.api.numbers import shortened
from kai_py.api.references import PodRef
from kai_py.api.texts import first_of
from kai_py.grouping.gang import Subgroup, is_satisfied, least_complete_first
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Charge, Gang, JoinedClaim, Member, PodState, counts_by_leaf
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.queue_access import NamespaceLabels, closed_queue
from kai_py.snapshot.tables.queue_tree import QueueTable

CanNeverRun = Callable[[Shape], bool]
"""Whether no node can ever hold a pod of a shape."""
QueueRefuses = Callable[[str, str], Unschedulable | None]
"""Why a queue, by name, takes no gangs of a namespace."""


class PlacementRequest(Struct, frozen=True):
    """Pods of a gang to place together, all or none.

    ``is_elastic``: whether the gang reaches minMember without them. ``has_more``: whether it has
    further pods to request once these are placed.
    """

    members: tuple[Member, ...]
    is_elastic: bool
    has_more: bool = False


def precondition(gang: Gang, refuses: QueueRefuses) -> Unschedulable | None:
    """What must happen before the gang can be placed at all; None if nothing must."""
    if gang.problem:
        return Unschedulable(
            Stage.BELOW_MIN_MEMBER if gang.owner_unknown else Stage.INVALID, gang.problem
        )
    reason = refuses(gang.queue, gang.owner.namespace)
    if reason is not None or gang.is_complete:
        return reason
    broken = next((m for m in gang.members if m.problem), None)
    if broken is not None:
        return Unschedulable(Stage.INVALID, broken.problem)
    return _members_missing(gang) or _claims_missing(gang)


MAX_NAME = 253
"""Characters of the name of an object; a label or annotation may have more."""


def queue_refuses(
    name: str, namespace: str, queues: QueueTable, namespaces: NamespaceLabels
) -> Unschedulable | None:
    """Why no queue takes a gang: the one that it names is missing, has children or is closed."""
    queue = queues.positions.get(name)
    if queue is None:
        remedy = "set scheduling.kai.io/queue-name to an existing queue"
        if name:
            written = name if len(name) <= MAX_NAME else shortened(name)
            message = f'queue "{written}" does not exist; create it, or {remedy}.'
        else:
            message = f"no queue is named; {remedy}."
        return Unschedulable(Stage.QUEUE_NOT_FOUND, message)
    if not queues.is_leaf[queue]:
        hint = "only queues without children accept workloads"
        return Unschedulable(Stage.QUEUE_NOT_FOUND, f'queue "{name}" has children; {hint}.')
    closed = closed_queue(queues, queue, namespace, namespaces)
    if closed:
        hint = f'use another queue, or change spec.namespaces of queue "{closed}"'
        named = f'queue "{closed}" does not accept workloads from namespace "{namespace}"'
        return Unschedulable(Stage.INVALID, f"{named}; {hint}.")
    return None


def next_request(
    gang: Gang,
    statement: Statement,
    can_never_run: CanNeverRun,
    skipped: Sequence[Member] = (),
) -> PlacementRequest | None:
    """The pods to place next, after what this cycle has decided so far; None if none is left.

    ``skipped``: elastic pods that could not be placed, nor could others of their subgroup that
    have their shape; those that the framework wants to start after them wait for them.
    """
    left = [m for m in gang.pending if m.pod.uid not in statement.placed and not m.waiting_for]
    if not left:
        return None
    if gang.shares_claims:
        left.sort(key=lambda m: bool(m.relies_on))
    if (
        not gang.placeholders
        and not gang.tree.children
        and len(left) == len(gang.members) == gang.tree.min_members
    ):
        return PlacementRequest(_charged(gang, left, statement), is_elastic=False)
    have = active_counts(gang, statement)
    has_minimum = is_satisfied(gang.tree, have)
    if skipped and has_minimum:
        left = [m for m in left if not any(_is_skipped(m, one) for one in skipped)]
    choose = _next_elastic_pods if has_minimum else _min_member_pods
    uids = _chosen(choose, gang, left, have, can_never_run)
    if not uids:
        return None
    chosen = _charged(gang, [m for m in left if m.pod.uid in uids], statement)
    later = () if has_minimum else gang.placeholders
    return PlacementRequest((*chosen, *later), has_minimum, has_more=len(chosen) < len(left))


def _is_skipped(member: Member, failed: Member) -> bool:
    equal_or_later = member.shape.number == failed.shape.number or member.order > failed.order
    return member.subgroup == failed.subgroup and equal_or_later


def _charged(gang: Gang, members: Sequence[Member], statement: Statement) -> tuple[Member, ...]:
    """The pods of a request, with what shared claims cost that their queue does not count yet.

    They are charged with claims whose pod starts neither with nor before them, and owe those that
    others are charged with.

    :returns: the same pods if none relies on the charge of another.
    """
    if not gang.shares_claims or not any(m.relies_on for m in members):
        return tuple(members)
    starting = {m.pod.uid for m in members}
    counted: set[str] = set()
    return tuple(_with_shared(gang, each, statement, starting, counted) for each in members)


def _with_shared(
    gang: Gang, member: Member, statement: Statement, starting: Set[str], counted: set[str]
) -> Member:
    """The pod with its part of the shared claims; ``counted``: those that were counted before."""
    shared, non_preemptible = statement.quota.shared_claims, gang.is_non_preemptible(member)
    own: list[Charge] = []
    owes: list[JoinedClaim] = []
    relies_on: list[JoinedClaim] = []
    for joined in member.relies_on:
        relies_on.append(joined)
        known = joined.claim in counted or joined.charged_to in starting
        if known or shared.is_counted(joined.claim, gang, non_preemptible=non_preemptible):
            continue
        counted.add(joined.claim)
        if not joined.waits or shared.is_charged(joined.claim):
            owes.append(joined)
        else:
            own.append(joined.charge)
            relies_on.pop()
    if not own and not owes:
        return member
    charge = total((member.charge, *own))
    return structs.replace(member, charge=charge, owes=tuple(owes), relies_on=tuple(relies_on))


def elastic_pods(
    gang: Gang, statement: Statement, can_never_run: CanNeverRun
) -> tuple[PodRef, ...]:
    """The pods without which the gang can start, of those that are not placed.

    Empty if the minimum is one pod: then every pod counts by itself.
    """
    min_pods = gang.tree.min_pods()
    if min_pods <= 1 or len(gang.members) <= min_pods:
        return ()
    left = [m for m in gang.pending if m.pod.uid not in statement.placed]
    have = active_counts(gang, statement)
    needed = _chosen(_min_member_pods, gang, left, have, can_never_run)
    if not needed and not is_satisfied(gang.tree, have):
        return ()
    return tuple(m.pod for m in left if m.pod.uid not in needed)


def active_counts(gang: Gang, statement: Statement) -> dict[str, int]:
    """Pods per leaf that are bound or placed, as this cycle has decided so far."""
    counts: dict[str, int] = {}
    if not (gang.bound or statement.placed):
        return counts
    for member in gang.members:
        uid = member.pod.uid
        stays = member.state is PodState.BOUND and uid not in statement.evicted
        if stays or uid in statement.placed:
            counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
    return counts


def may_start(gang: Gang, members: Iterable[Member], statement: Statement) -> bool:
    """Whether pods may start in this cycle: with all that minMember needs, not before these.

    The others of the gang may have been placed on future idle capacity.
    """
    placed, future = statement.placed, Capacity.FUTURE_IDLE
    later = [
        m.subgroup
        for m in gang.pending
        if m.pod.uid in placed and placed[m.pod.uid].capacity is future
    ]
    if not later:
        return True
    starting = Counter(active_counts(gang, statement))
    starting.subtract(later)
    starting.update(member.subgroup for member in members)
    return is_satisfied(gang.tree, starting)


def elastic_rank(gang: Gang, statement: Statement) -> int:
    """0 below minMember, 1 exactly at it, 2 above: part of the order of gangs in a queue."""
    have = active_counts(gang, statement)
    if not is_satisfied(gang.tree, have):
        return 0
    return 1 if sum(have.values()) <= gang.tree.min_pods() else 2


def incomplete_subgroup(gang: Gang) -> Unschedulable | None:
    """The first subgroup that has too few pods to start, although the gang runs without it."""
    exist = gang.counts(PodState.BOUND, PodState.PENDING)
    for leaf in gang.tree.leaves():
        have = exist.get(leaf.name, 0)
        if have < leaf.min_members:
            text = (
                f"minMember of subgroup {leaf.name} is {leaf.min_members}; existing pods: {have}."
            )
            return Unschedulable(Stage.BELOW_MIN_MEMBER, text)
    return None


def gated_pods(gang: Gang) -> str:
    """How many of its pods are behind scheduling gates, and which ones; "" if none is."""
    gated = [m for m in gang.members if m.state == PodState.GATED]
    gates = first_of(list(dict.fromkeys(name for m in gated for name in m.gates)))
    return f"gated pods: {len(gated)} (by {gates})" if gated else ""


def _members_missing(gang: Gang) -> Unschedulable | None:
    if gang.is_satisfied or gang.can_be_satisfied:
        return None
    gated = gated_pods(gang)
    exist = len(gang.pending) + len(gang.bound)
    waits = f"existing pods: {exist}" + (f", {gated}" if gated else "")
    counted = f"minMember is {gang.tree.min_pods()}; {waits}"
    leaves = set(gang.tree.leaf_names())
    stray = next((m for m in gang.pending if m.waiting_for and m.subgroup not in leaves), None)
    if stray is not None:
        # More pods would not help: its subgroup does not exist, so the pods get a condition.
        return Unschedulable(Stage.INVALID, f"{counted}; pod {stray.pod}: {stray.waiting_for}.")
    lacking = incomplete_subgroup(gang) if exist >= gang.tree.min_pods() else None
    if lacking is not None:
        # There are enough pods, but not in each subgroup.
        counted = lacking.summary.rstrip(".") + (f", {gated}" if gated else "")
    return Unschedulable(Stage.SCHEDULING_GATED if gated else Stage.BELOW_MIN_MEMBER, f"{counted}.")


def _claims_missing(gang: Gang) -> Unschedulable | None:
    waiting = next((m for m in gang.pending if m.waiting_for), None)
    if waiting is None:
        return None
    able = [member for member in gang.pending if not member.waiting_for]
    if able and is_satisfied(gang.tree, counts_by_leaf((*gang.bound, *able))):
        return None
    return pod_not_ready(gang, waiting)


def pod_not_ready(gang: Gang, member: Member) -> Unschedulable:
    """What a single pod waits for: its claims, or to be put into a subgroup that exists."""
    stray = member.subgroup not in gang.tree.leaf_names()
    stage = Stage.INVALID if stray else Stage.CLAIMS_NOT_READY
    return Unschedulable(stage, f"pod {member.pod}: {member.waiting_for}.")


def members_by_leaf(members: Iterable[Member]) -> dict[str, list[Member]]:
    """The pods of each leaf, in the order given."""
    leaves: dict[str, list[Member]] = {}
    for member in members:
        leaves.setdefault(member.subgroup, []).append(member)
    return leaves


def _chosen(
    choose: Callable[[Subgroup, Mapping[str, int], Mapping[str, list[Member]]], set[str]],
    gang: Gang,
    left: Sequence[Member],
    have: Mapping[str, int],
    can_never_run: CanNeverRun,
) -> set[str]:
    """Uids of the pods that ``choose`` takes; one that no node can ever hold only if it must be.

    Otherwise such a pod would keep the gang from starting without it. Those that the framework
    wants to start before others are never skipped.
    """
    shapes = gang.pending_shapes if len(gang.pending_shapes) > 1 else {}
    never = {number for number, shape in shapes.items() if can_never_run(shape)}
    if never and left:
        last = max(member.order for member in left)
        able = [m for m in left if m.order < last or m.shape.number not in never]
        uids = choose(gang.tree, have, members_by_leaf(able))
        if uids:
            return uids
    return choose(gang.tree, have, members_by_leaf(left))


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
    needed = tree.needed_children - sum(is_satisfied(child, have) for child in tree.children)
    chosen: set[str] = set()
    for child in least_complete_first(tree.children, have):
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
    """Uids of the next elastic pods: one of a leaf, or those that start an optional subgroup."""
    if not is_satisfied(tree, have):
        return _min_member_pods(tree, have, candidates)
    if not tree.children:
        return {member.pod.uid for member in candidates.get(tree.name, [])[:1]}
    for child in least_complete_first(tree.children, have):
        uids = _next_elastic_pods(child, have, candidates)
        if uids:
            return uids
    return set()
