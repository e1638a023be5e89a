"""Admitted gangs: limited to what their running pods were admitted with (``grouping.admitted``)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace

from kai_py.grouping.admitted import (
    Terms,
    admitted_minimum,
    as_admitted_limits,
    first_start,
    has_grown,
    highest_limits,
    least_protected,
    limits_of,
    lowest_minimums,
    minimums_of,
    preemptibility_of,
    shortest_runtime,
    with_minimums,
)
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.placeholders import MAX_PLACEHOLDERS, present_members
from kai_py.snapshot.tables.admissions import Admissions

_FAILURE_LIMITS = attrgetter("failure_limits")
UNKNOWN_TREE = Subgroup(min_members=1)
"""The tree of a gang with a problem whose describing object cannot be found or read."""


def as_admitted(gang: Gang, admissions: Admissions) -> Gang:
    """``gang`` with no more than its pods on nodes were admitted with.

    Those without a record count as admitted like this, once the gang is known.
    """
    if not gang.bound:
        return gang
    records = admissions.all_terms([member.pod.uid for member in gang.bound])
    # Pods that were adopted together share one record.
    known = {
        (member.subgroup, id(record)): record
        for member, record in zip(gang.bound, records, strict=True)
        if record is not None
    }
    if known:
        gang = _limited(gang, [(leaf, record) for (leaf, _), record in known.items()])
        if any(record.limits is not None for record in known.values()):
            gang = _with_limits(gang, records)
    if gang.semi_preemptible or not gang.preemptible:
        gang = _with_growth(gang, records, admissions)
    if None in records and not gang.problem and gang.queue:
        bound = zip(gang.bound, records, strict=True)
        unrecorded = [member for member, record in bound if record is None]
        leaves = frozenset(gang.tree.leaf_names())
        wanted = dict.fromkeys(each.subgroup for each in unrecorded)
        limits: dict[str, dict[str, int]] = {}
        for member in unrecorded if is_fragile(gang) else ():
            limits.setdefault(member.subgroup, {}).update(limits_of(member.failure_limits))
        terms = {leaf: _terms(gang, leaf, limits) for leaf in wanted if leaf in leaves}
        for member in unrecorded:
            if member.subgroup in terms:
                admissions.adopt(member.pod.uid, terms[member.subgroup])
    return gang


def expected_pods(gang: Gang) -> tuple[tuple[str, int], ...]:
    """Leaves of which pods do not exist yet, with the pods that each will have in total."""
    if not gang.placeholders:
        return ()
    missing = Counter(each.subgroup for each in gang.placeholders)
    present = Counter(each.subgroup for each in present_members(gang.members))
    return tuple((leaf, count + present[leaf]) for leaf, count in sorted(missing.items()))


def can_be_suspended(gang: Gang) -> bool:
    """Whether the gang is a batch/v1 Job that is, or was admitted as one, of few enough pods."""
    owner = gang.owner
    is_job = owner.kind == "Job" and owner.api_version.startswith("batch/")
    pods = max(gang.total_pods, len(gang.members))
    return is_job and (gang.admitted_as_evictable or pods <= MAX_PLACEHOLDERS)


def is_fragile(gang: Gang) -> bool:
    """Whether its workload has limits of failed pods, and cannot be suspended instead."""
    return any(map(_FAILURE_LIMITS, gang.members)) and not can_be_suspended(gang)


def _limited(gang: Gang, terms: Sequence[tuple[str, Terms]]) -> Gang:
    records = [record for _, record in terms]
    now = preemptibility_of(preemptible=gang.preemptible, semi_preemptible=gang.semi_preemptible)
    priority = min([gang.priority, *[record.priority for record in records]])
    preemptibility = least_protected([now, *[record.preemptibility for record in records]])
    runtime = shortest_runtime(
        [gang.expected_runtime, *[record.expected_runtime for record in records]]
    )
    tree = _admitted_tree(gang, terms)
    evictable = any(record.fragile is False for record in records) and is_fragile(gang)
    started = first_start(records)
    same = (gang.priority, now, gang.expected_runtime) == (priority, preemptibility, runtime)
    if same and tree is gang.tree and not evictable and not started:
        return gang
    return replace(
        gang,
        priority=priority,
        preemptible=preemptibility is not Preemptibility.NON_PREEMPTIBLE,
        semi_preemptible=preemptibility is Preemptibility.SEMI_PREEMPTIBLE,
        expected_runtime=runtime,
        tree=tree,
        admitted_as_evictable=evictable,
        recorded_start=started,
    )


def _admitted_tree(gang: Gang, terms: Sequence[tuple[str, Terms]]) -> Subgroup:
    """The tree with no minimum above those that were admitted.

    Where the object that has the tree cannot be found or read, the gang needs as many pods as it
    was admitted with: its pods belong together still. A minimum that cannot be reached, as of a Job
    that was made smaller, stops a start, but ends no pods that run.
    """
    if gang.problem and gang.tree == UNKNOWN_TREE:
        needed = admitted_minimum(record for _, record in terms)
        return Subgroup(min_members=min(needed, len(gang.bound)))
    tree = with_minimums(gang.tree, lowest_minimums(terms))
    is_bounded = gang.problem and gang.total_pods and not tree.children
    return with_minimums(tree, {tree.name: gang.total_pods} if is_bounded else {})


def _with_growth(gang: Gang, records: Sequence[Terms | None], admissions: Admissions) -> Gang:
    """``gang``, which is protected, with whether pods outgrew what they were admitted with."""
    # No generator: what every pod had at first has to be noted.
    grown = [
        has_grown(
            member.charge,
            record.requests
            if record is not None and record.requests
            else admissions.first_requests(member.pod.uid, member.charge),
        )
        for member, record in zip(gang.bound, records, strict=True)
    ]
    return replace(gang, outgrown=True) if any(grown) else gang


def _with_limits(gang: Gang, records: Sequence[Terms | None]) -> Gang:
    """``gang`` with no limit of failed pods lower than it was admitted with."""
    limits = [member.failure_limits for member in gang.bound]
    admitted = highest_limits(zip(limits, records, strict=True))
    # Mostly all pods of a gang share one set of limits.
    sets = {id(each): each for each in limits}
    raised = {key: as_admitted_limits(each, admitted) for key, each in sets.items()}
    if all(raised[key] == each for key, each in sets.items()):
        return gang
    members = [
        replace(member, failure_limits=raised.get(id(member.failure_limits), member.failure_limits))
        for member in gang.members
    ]
    return replace(gang, members=tuple(members))


def _terms(gang: Gang, leaf: str, limits: Mapping[str, dict[str, int]]) -> Terms:
    """What a pod of the subgroup ``leaf`` is admitted with in ``gang`` as it is.

    ``limits``: of failed pods, by subgroup.
    """
    return Terms(
        queue=gang.queue,
        priority=gang.priority,
        preemptibility=preemptibility_of(
            preemptible=gang.preemptible, semi_preemptible=gang.semi_preemptible
        ),
        minimums=minimums_of(gang.tree, leaf, dict(expected_pods(gang)).get(leaf, 0)),
        expected_runtime=gang.expected_runtime,
        fragile=is_fragile(gang),
        limits=limits.get(leaf, {}) if is_fragile(gang) else None,
    )
