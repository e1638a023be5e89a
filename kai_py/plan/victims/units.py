"""Eviction units: the pods of a gang that are evicted together, and in which order.

A gang loses its elastic pods first: pods above the minMember of a leaf one by one, then subgroups
above the number that their parent needs. What is left is its minMember set, which is evicted as a
whole, because a gang below minMember does no work. Leaves and subgroups that have most of their
minimum come first; one that is to be evicted whole loses no part of itself. Of a semi-preemptible
gang the pods up to the minMember of a leaf are never evicted. O(pods x subgroups) per gang.

Any pod of a leaf may be an elastic one. So of a gang that would lose its minMember set the search
looks at the pods one by one: those that are needed go as elastic pods if every leaf keeps
minMember without them (``split_by_pod``, ``keeps_min_members``). The same holds for a gang within
its min runtime, whose units are then partial. Gangs without elastic pods, semi-preemptible ones and
those evicted whole stay as they are. O(pods) per gang.

Of a workload that fails if it loses too many pods (``survival``), only so many are in units; those
beyond are one unit if the workload can be suspended, else in none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, structs

from kai_py.grouping.gang import Subgroup, is_satisfied, neediest_first
from kai_py.plan.placement.next_pods import active_counts, members_by_leaf
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.survival import can_be_suspended, exceeded_limit
from kai_py.policy.min_runtime import within_min_runtime
from kai_py.snapshot.gangs import Gang, Member


class VictimUnit(Struct, frozen=True, eq=False):
    """Pods of one gang that are evicted together.

    ``leaves_below_min``: the leaves that fall below minMember with it, so that units of them that
    were taken before can't stay. A unit with none is elastic. ``is_partial``: its gang must keep
    minMember, so only as many of its pods may be evicted as are elastic.
    """

    gang: Gang
    members: tuple[Member, ...]
    leaves_below_min: tuple[str, ...] = ()
    is_partial: bool = False

    @property
    def is_elastic(self) -> bool:
        """Whether every leaf of the gang keeps minMember without the unit."""
        return not self.leaves_below_min


def victim_units(gang: Gang, statement: Statement) -> list[VictimUnit]:
    """The units of a running gang, in order.

    Pods that were evicted already are in no unit. Pods that were placed in this cycle do not run
    yet: they do not count for minMember, and what they are part of is not evicted whole.
    """
    units = _units_in_order(gang, statement)
    if gang.semi_preemptible:
        units = [unit for unit in units if gang.is_preemptible(unit.members)]
    if any(member.failure_limits for unit in units for member in unit.members):
        return _survivable_units(gang, units, statement)
    return units


def _survivable_units(
    gang: Gang, units: Sequence[VictimUnit], statement: Statement
) -> list[VictimUnit]:
    """The units that the gang's workload survives, and all others as one if it can be suspended."""
    leaving = [m for m in gang.bound if m.pod.uid in statement.evicted]
    for position, unit in enumerate(units):
        leaving += unit.members
        if exceeded_limit(gang, leaving) is None:
            continue
        survived, rest = list(units[:position]), pods_of(units[position:])
        whole = len(leaving) - len(unit.members) + len(rest) == len(gang.bound)
        starting = any(m.pod.uid in statement.placed for m in gang.pending)
        if whole and not starting and can_be_suspended(gang):
            leaves = tuple(leaf.name for leaf in gang.tree.leaves())
            survived.append(VictimUnit(gang, tuple(rest), leaves))
        return survived
    return list(units)


def _units_in_order(gang: Gang, statement: Statement) -> list[VictimUnit]:
    staying = [m for m in gang.bound if m.pod.uid not in statement.evicted]
    if not staying:
        return []
    leaves = tuple([leaf.name for leaf in gang.tree.leaves()])
    if len(gang.members) == len(staying) == gang.tree.min_pods():
        return [VictimUnit(gang, tuple(staying), leaves)]
    starting = frozenset(m.subgroup for m in gang.members if m.pod.uid in statement.placed)
    pods = _RunningPods(Counter(m.subgroup for m in staying), members_by_leaf(staying), starting)
    units: list[VictimUnit] = []
    if is_satisfied(gang.tree, active_counts(gang, statement)):
        while (
            unit := _elastic_pod(gang, gang.tree, pods) or _spare_subgroup(gang, gang.tree, pods)
        ) is not None:
            units.append(unit)
    min_set = [member for member in staying if member in pods.candidates.get(member.subgroup, ())]
    if min_set and not starting:
        units.append(VictimUnit(gang, tuple(min_set), leaves))
    return units


def is_orphaned(unit: VictimUnit, others: Iterable[VictimUnit]) -> bool:
    """Whether ``unit`` is of a leaf that one of ``others`` brings below minMember."""
    leaves = {member.subgroup for member in unit.members}
    return any(
        other is not unit
        and other.gang.key == unit.gang.key
        and not leaves.isdisjoint(other.leaves_below_min)
        for other in others
    )


def pods_of(units: Iterable[VictimUnit]) -> list[Member]:
    """The pods of all units, in order."""
    return [member for unit in units for member in unit.members]


@dataclass(frozen=True, slots=True)
class _RunningPods:
    """The running pods that are in no unit yet, counted and listed by leaf.

    ``starting``: the leaves of which pods were placed in this cycle.
    """

    running: Counter[str]
    candidates: Mapping[str, list[Member]]
    starting: frozenset[str]

    def take(self, leaf: str, count: int) -> list[Member]:
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
    for child in reversed(neediest_first(tree.children, pods.running)):
        unit = _elastic_pod(gang, child, pods)
        if unit is not None:
            return unit
    return None


def _spare_subgroup(gang: Gang, tree: Subgroup, pods: _RunningPods) -> VictimUnit | None:
    """All pods of one subgroup that its parent does not need."""
    if tree.evicted_together:
        return None
    children = neediest_first(tree.children, pods.running)
    reached = sum(is_satisfied(child, pods.running) for child in children)
    needed = len(children) if tree.min_subgroups is None else tree.min_subgroups
    idle = [child for child in children if not is_satisfied(child, pods.running)]
    for child in idle + (children[::-1] if reached > needed else []):
        taken = _whole_subgroup(child, pods)
        if taken:
            return VictimUnit(gang, tuple(taken), tuple(leaf.name for leaf in child.leaves()))
    for child in reversed(children):
        unit = _spare_subgroup(gang, child, pods)
        if unit is not None:
            return unit
    return None


def _whole_subgroup(group: Subgroup, pods: _RunningPods) -> list[Member]:
    """All pods below ``group``; none while part of it is being started."""
    leaves = [leaf.name for leaf in group.leaves()]
    if not pods.starting.isdisjoint(leaves):
        return []
    return [m for leaf in leaves for m in pods.take(leaf, len(pods.candidates.get(leaf, ())))]


def elastic_gangs_below_min(units: Iterable[VictimUnit], statement: Statement) -> list[Gang]:
    """The gangs that fall below minMember with ``units`` though they have elastic pods."""
    losing = {unit.gang.key: unit.gang for unit in units if not unit.is_elastic}
    return [gang for gang in losing.values() if _has_elastic_pods(gang, statement)]


def unprotected_units(
    units: Iterable[VictimUnit], min_runtime: float, now: float, statement: Statement
) -> Iterator[VictimUnit]:
    """``units``; of gangs within ``min_runtime`` (seconds) only what is above minMember."""
    if min_runtime <= 0:
        yield from units
        return
    for unit in units:
        if unit.is_elastic or not within_min_runtime(unit.gang.started, min_runtime, now):
            yield unit
        elif _has_elastic_pods(unit.gang, statement):
            yield structs.replace(unit, is_partial=True)


def split_by_pod(units: Iterable[VictimUnit], gang: Gang) -> list[VictimUnit]:
    """``units``, with a unit for each pod of ``gang``, the last of its order first."""
    apart: list[VictimUnit] = []
    for unit in units:
        if unit.gang.key == gang.key:
            apart += [VictimUnit(unit.gang, (member,)) for member in reversed(unit.members)]
        else:
            apart.append(unit)
    return apart


def keeps_min_members(gang: Gang, units: Sequence[VictimUnit], statement: Statement) -> bool:
    """Whether ``gang`` and every leaf that loses pods keep minMember without ``units``.

    Its workload must survive that. Pods that are being started do not count.
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
    left: dict[str, int] = {}
    for member in gang.bound:
        if member.pod.uid not in statement.evicted:
            left[member.subgroup] = left.get(member.subgroup, 0) + 1
    return left
