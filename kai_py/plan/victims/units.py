"""Eviction units: the pods of a gang that are evicted together, and in which order.

A gang loses its elastic pods first: pods above the minMember of a leaf one by one, then subgroups
above the number that their parent needs. What is left is its minMember set, which is evicted as a
whole, because a gang below minMember does no work. Leaves and subgroups that are furthest above
their minimum lose pods first; a subgroup that is evicted as a whole is never evicted in part. The
pods of a semi-preemptible gang up to the minMember of a leaf are never evicted.
O(pods x subgroups) per gang.

The pods of a leaf are interchangeable: any of them may be the elastic ones, for example those on
the node that the preemptor needs. So where a search would evict the minMember set of a gang with
elastic pods, it also considers the gang's pods one by one, and evicts only those that are needed if
every leaf keeps minMember without them (``split_by_pod``, ``keeps_min_members``). A gang within its
min runtime can lose pods only in this way; its minMember set is a *partial* unit. So is that of a
gang of which eviction limits protect elastic pods: without the set these would do no work. Gangs
without elastic pods, semi-preemptible gangs and those that are evicted as a whole are not split.
O(pods) per gang.

A workload may fail when it loses too many pods (``survival``). The pods that it can lose are in
units; if it can be suspended, all further pods form one unit, else they are in none.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from kai_py.api.groups import grouped
from kai_py.grouping.gang import Subgroup, is_satisfied, least_complete_first
from kai_py.plan.placement.next_pods import active_counts, members_by_leaf
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.survival import exceeded_limit, running_pods
from kai_py.policy.min_runtime import within_min_runtime
from kai_py.snapshot.admitted_gangs import can_be_suspended
from kai_py.snapshot.gangs import Gang, Member


class VictimUnit(Struct, frozen=True, eq=False):
    """Pods of one gang that are evicted together.

    ``leaves_below_min``: the leaves that its eviction brings below minMember; all units of these
    leaves must be evicted with it. An elastic unit has none. ``is_partial``: the gang must keep
    minMember, so at most the number of its elastic pods may be evicted.
    """

    gang: Gang
    members: tuple[Member, ...]
    leaves_below_min: tuple[str, ...] = ()
    is_partial: bool = False

    @property
    def is_elastic(self) -> bool:
        """Whether every leaf of the gang keeps minMember without the unit."""
        return not self.leaves_below_min


def units_evicted_with(unit: VictimUnit, peers: Iterable[VictimUnit]) -> list[VictimUnit]:
    """Those of ``peers``, units of its gang, that must be evicted with the unit."""
    if unit.is_elastic:
        return []
    return [each for each in peers if is_evicted_with(each, [unit])]


def victim_units(gang: Gang, statement: Statement) -> list[VictimUnit]:
    """The units of a running gang, in eviction order.

    Pods that were evicted in this cycle are in no unit. Pods that were placed in this cycle do not
    run yet: they do not count towards minMember, and no subgroup with such pods is evicted whole.
    """
    units = _units_in_order(gang, statement)
    if gang.semi_preemptible:
        units = [unit for unit in units if gang.is_preemptible(unit.members)]
    if not gang.outlives_all_pods and any(m.failure_limits for m in pods_of(units)):
        return _survivable_units(gang, units, statement)
    return units


def _survivable_units(
    gang: Gang, units: Sequence[VictimUnit], statement: Statement
) -> list[VictimUnit]:
    """The units that the workload survives; the rest as one unit if it can be suspended."""
    leaving = [m for m in gang.bound if m.pod.uid in statement.evicted]
    for position, unit in enumerate(units):
        leaving += unit.members
        if exceeded_limit(gang, leaving) is None:
            continue
        survived, rest = list(units[:position]), pods_of(units[position:])
        whole = len(leaving) - len(unit.members) + len(rest) == len(gang.bound)
        starting = any(m.pod.uid in statement.placed for m in gang.pending)
        if whole and not starting and can_be_suspended(gang):
            survived.append(VictimUnit(gang, tuple(rest), gang.tree.leaf_names()))
        return survived
    return list(units)


def _units_in_order(gang: Gang, statement: Statement) -> list[VictimUnit]:
    staying = running_pods(gang, statement)
    if not staying:
        return []
    leaves = gang.tree.leaf_names()
    if len(gang.members) == len(staying) == gang.tree.min_pods():
        return [VictimUnit(gang, tuple(staying), leaves)]
    starting = frozenset(m.subgroup for m in gang.members if m.pod.uid in statement.placed)
    pods = _RunningPods(Counter(m.subgroup for m in staying), members_by_leaf(staying), starting)
    units: list[VictimUnit] = []
    if is_satisfied(gang.tree, active_counts(gang, statement)):
        while (
            unit := _elastic_pod(gang, gang.tree, pods) or _elastic_subgroup(gang, gang.tree, pods)
        ) is not None:
            units.append(unit)
    min_set = [member for member in staying if member in pods.candidates.get(member.subgroup, ())]
    if min_set and not starting:
        units.append(VictimUnit(gang, tuple(min_set), leaves))
    return units


def is_evicted_with(unit: VictimUnit, others: Iterable[VictimUnit]) -> bool:
    """Whether ``unit`` must be evicted as well if one of ``others`` is.

    That brings a leaf of ``unit`` below minMember, so its pods would do no work.
    """
    leaves = {member.subgroup for member in unit.members}
    return any(
        other is not unit
        and other.gang.key == unit.gang.key
        and not leaves.isdisjoint(other.leaves_below_min)
        for other in others
    )


def units_by_gang(units: Iterable[VictimUnit]) -> dict[str, list[VictimUnit]]:
    """The units by the keys of their gangs, in order."""
    return grouped(units, lambda unit: unit.gang.key)


def pods_of(units: Iterable[VictimUnit]) -> list[Member]:
    """The pods of all units, in order."""
    return [member for unit in units for member in unit.members]


class _RunningPods(Struct, frozen=True):
    """The running pods that are in no unit yet.

    ``running``: their number by leaf; ``candidates``: the pods by leaf, the next victim last;
    ``starting``: the leaves that have pods that were placed in this cycle.
    """

    running: Counter[str]
    candidates: Mapping[str, list[Member]]
    starting: frozenset[str]

    def take(self, leaf: str, count: int) -> list[Member]:
        """Remove and return the next ``count`` pods of a leaf."""
        taken = [self.candidates[leaf].pop() for _ in range(count)]
        self.running[leaf] -= count
        return taken


def _elastic_pod(gang: Gang, tree: Subgroup, pods: _RunningPods) -> VictimUnit | None:
    """One pod above the minMember of its leaf."""
    if tree.evicted_together:
        return None
    if not tree.children:
        above = pods.running.get(tree.name, 0) > tree.min_members
        if not above or not pods.candidates.get(tree.name):
            return None
        return VictimUnit(gang, tuple(pods.take(tree.name, 1)))
    for child in reversed(least_complete_first(tree.children, pods.running)):
        unit = _elastic_pod(gang, child, pods)
        if unit is not None:
            return unit
    return None


def _elastic_subgroup(gang: Gang, tree: Subgroup, pods: _RunningPods) -> VictimUnit | None:
    """All pods of one subgroup that its parent does not need."""
    if tree.evicted_together:
        return None
    children = least_complete_first(tree.children, pods.running)
    below_min = [child for child in children if not is_satisfied(child, pods.running)]
    is_above_min = len(children) - len(below_min) > tree.needed_children
    for child in below_min + (children[::-1] if is_above_min else []):
        taken = _whole_subgroup(child, pods)
        if taken:
            return VictimUnit(gang, tuple(taken), child.leaf_names())
    for child in reversed(children):
        unit = _elastic_subgroup(gang, child, pods)
        if unit is not None:
            return unit
    return None


def _whole_subgroup(group: Subgroup, pods: _RunningPods) -> list[Member]:
    """All pods below ``group``; none while part of it is being started."""
    leaves = group.leaf_names()
    if not pods.starting.isdisjoint(leaves):
        return []
    return [m for leaf in leaves for m in pods.take(leaf, len(pods.candidates.get(leaf, ())))]


def elastic_gangs_below_min(units: Iterable[VictimUnit], statement: Statement) -> list[Gang]:
    """The gangs with elastic pods that fall below minMember if ``units`` are evicted."""
    losing = {unit.gang.key: unit.gang for unit in units if not unit.is_elastic}
    return [gang for gang in losing.values() if _has_elastic_pods(gang, statement)]


def unprotected_units(
    units: Iterable[VictimUnit], min_runtime: float, now: float, statement: Statement
) -> Iterator[VictimUnit]:
    """``units``, without the minMember sets of gangs that started less than ``min_runtime`` s ago.

    Such a minMember set is passed on as a partial unit if the gang has elastic pods.
    """
    if min_runtime <= 0:
        yield from units
        return
    for unit in units:
        if unit.is_elastic or not within_min_runtime(unit.gang.started, min_runtime, now):
            yield unit
        elif _has_elastic_pods(unit.gang, statement):
            yield structs.replace(unit, is_partial=True)


def keeping_protected(units: Iterable[VictimUnit], evicted: Container[str]) -> Iterator[VictimUnit]:
    """``units``; those without which pods in no unit would be below minMember become partial.

    ``units``: those that eviction limits do not protect, the units of each gang in order.
    ``evicted``: pods, by uid, that are in no unit as they were evicted. O(pods).
    """
    before: dict[str, set[str]] = {}
    for unit in units:
        if len(unit.members) == len(unit.gang.bound):
            yield unit
            continue
        leaving = before.setdefault(unit.gang.key, set())
        leaving.update(member.pod.uid for member in unit.members)
        stays = unit.leaves_below_min and any(
            member.subgroup in unit.leaves_below_min
            and member.pod.uid not in leaving
            and member.pod.uid not in evicted
            for member in unit.gang.bound
        )
        yield structs.replace(unit, is_partial=True) if stays else unit


def is_evicted(unit: VictimUnit, evicted: Container[str]) -> bool:
    """Whether any pod of the unit is in ``evicted``, by uid."""
    if len(unit.members) == 1:
        return unit.members[0].pod.uid in evicted
    return any(member.pod.uid in evicted for member in unit.members)


def is_on(unit: VictimUnit, nodes: Container[str]) -> bool:
    """Whether any pod of the unit is on one of ``nodes``."""
    first, *others = unit.members
    return first.node in nodes or (bool(others) and any(each.node in nodes for each in others))


def split_by_pod(units: Iterable[VictimUnit], gang: Gang) -> list[VictimUnit]:
    """``units``, those of ``gang`` divided into one unit per pod, the last pod of each first."""
    divided: list[VictimUnit] = []
    for unit in units:
        if unit.gang.key == gang.key:
            divided += [VictimUnit(unit.gang, (member,)) for member in reversed(unit.members)]
        else:
            divided.append(unit)
    return divided


def keeps_min_members(gang: Gang, units: Sequence[VictimUnit], statement: Statement) -> bool:
    """Whether ``gang`` and each of its leaves keep minMember, and its workload survives.

    ``units``: the victims; those of other gangs are ignored. Pods placed in this cycle do not
    count.
    """
    left = _running_by_leaf(gang, statement)
    evicted = pods_of(unit for unit in units if unit.gang.key == gang.key)
    for member in evicted:
        left[member.subgroup] -= 1
    minimum = {leaf.name: leaf.min_members for leaf in gang.tree.leaves()}
    if exceeded_limit(gang, evicted) is not None:
        return False
    keeps_leaves = all(
        left[member.subgroup] >= minimum.get(member.subgroup, 0) for member in evicted
    )
    return keeps_leaves and is_satisfied(gang.tree, left)


def _has_elastic_pods(gang: Gang, statement: Statement) -> bool:
    tree = gang.tree
    if gang.semi_preemptible or (not tree.children and len(gang.bound) <= tree.min_members):
        return False
    if _evicted_whole(tree):
        return False
    left = _running_by_leaf(gang, statement)
    return any(left.get(leaf.name, 0) > leaf.min_members for leaf in tree.leaves())


def _evicted_whole(tree: Subgroup) -> bool:
    return tree.evicted_together or any(map(_evicted_whole, tree.children))


def _running_by_leaf(gang: Gang, statement: Statement) -> dict[str, int]:
    """Running pods by leaf, without those evicted."""
    return Counter(member.subgroup for member in running_pods(gang, statement))
