"""What leaves together when a gang must give room, and in which order.

A gang gives its surplus first: pods above a leaf's floor one by one, then subgroups above what
their parent needs. What is left is its core: it leaves as a whole, because a gang without its floor
is worth nothing. A semi-preemptible gang never gives the pods up to the floor of a leaf. Leaves and
subgroups that have most of their floor give first; one that is to leave whole gives no part of
itself.

O(pods x subgroups) per gang.

Which pods of an elastic gang may leave so that it keeps its core?

Units offer the surplus of a gang in a fixed order. Where those pods are not in the way and others
of the gang are, the core is asked for as well, and with it goes everything. But pods of a leaf are
alike: any of them may be its surplus. So of a gang that is to lose a core, the pods that leave are
looked at one by one, and those that are needed leave as surplus, if every leaf of them keeps its
floor. The same goes for a gang that is safe for now: it may lose its surplus, whichever pods that
is. Gangs without surplus, semi-preemptible ones (whose core is certain pods) and those that
leave whole are as they were offered. O(pods) per gang.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kai_py.grouping.gang import Subgroup, is_satisfied
from kai_py.plan.placement.next_pods import active_counts, members_by_leaf, neediest_first
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang, Member


@dataclass(frozen=True, slots=True, eq=False)
class VictimUnit:
    """Pods that leave together, of one gang.

    ``empties``: the leaves that lose their floor with it, so that units of them that were offered
    before can't stay behind. A unit that empties none is surplus. ``in_part``: its gang must keep
    its floors, so only as many of its pods may leave as are surplus.
    """

    gang: Gang
    members: tuple[Member, ...]
    leaves_below_min: tuple[str, ...] = ()
    is_partial: bool = False

    @property
    def is_elastic(self) -> bool:
        """Whether every leaf of the gang keeps its floor without the unit."""
        return not self.leaves_below_min


def victim_units(gang: Gang, statement: Statement) -> list[VictimUnit]:
    """The units of a running gang, in the order in which it gives them.

    Pods that leave anyway are in no unit. Pods that were placed in this cycle do not run yet: they
    count for no floor, and what they are part of is not offered whole.
    """
    units = _units_in_order(gang, statement)
    if not gang.semi_preemptible:
        return units
    return [unit for unit in units if gang.is_preemptible(unit.members)]


def _units_in_order(gang: Gang, statement: Statement) -> list[VictimUnit]:
    staying = [m for m in gang.bound if m.pod.uid not in statement.evicted]
    if not staying:
        return []
    leaves = tuple(leaf.name for leaf in gang.tree.leaves())
    if len(gang.members) == len(staying) == gang.tree.min_pods():
        return [VictimUnit(gang, tuple(staying), leaves)]
    starting = frozenset(m.subgroup for m in gang.members if m.pod.uid in statement.placed)
    stock = _RunningPods(Counter(m.subgroup for m in staying), members_by_leaf(staying), starting)
    units: list[VictimUnit] = []
    if is_satisfied(gang.tree, active_counts(gang, statement)):
        while (
            unit := _elastic_pod(gang, gang.tree, stock) or _spare_subgroup(gang, gang.tree, stock)
        ) is not None:
            units.append(unit)
    core = [member for member in staying if member in stock.candidates.get(member.subgroup, ())]
    if core and not starting:
        units.append(VictimUnit(gang, tuple(core), leaves))
    return units


def is_orphaned(unit: VictimUnit, others: Iterable[VictimUnit]) -> bool:
    """Whether ``unit`` would be left in a leaf that one of ``others`` empties."""
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
    """The running pods that are left while units are taken, counted and listed by leaf.

    ``starting``: the leaves that were given pods in this cycle.
    """

    running: Counter[str]
    candidates: Mapping[str, list[Member]]
    starting: frozenset[str]

    def take(self, leaf: str, count: int) -> list[Member]:
        taken = [self.candidates[leaf].pop() for _ in range(count)]
        self.running[leaf] -= count
        return taken


def _elastic_pod(gang: Gang, tree: Subgroup, pods: _RunningPods) -> VictimUnit | None:
    """One pod above the floor of its leaf."""
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
    """All pods of one subgroup that its parent can do without."""
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
    """Everything below ``group``, unless part of it is only being started."""
    leaves = [leaf.name for leaf in group.leaves()]
    if not pods.starting.isdisjoint(leaves):
        return []
    return [m for leaf in leaves for m in pods.take(leaf, len(pods.candidates.get(leaf, ())))]


def elastic_gangs_below_min(units: Iterable[VictimUnit], statement: Statement) -> list[Gang]:
    """The gangs that lose floors with ``units`` though they run more pods than that."""
    losing = {unit.gang.key: unit.gang for unit in units if not unit.is_elastic}
    return [gang for gang in losing.values() if _has_elastic_pods(gang, statement)]


def unprotected_units(
    units: Iterable[VictimUnit], is_protected: Callable[[Gang], bool], statement: Statement
) -> Iterator[VictimUnit]:
    """``units``, of gangs that are safe only what they can lose beside their floors."""
    for unit in units:
        if unit.is_elastic or not is_protected(unit.gang):
            yield unit
        elif _has_elastic_pods(unit.gang, statement):
            yield replace(unit, is_partial=True)


def split_by_pod(units: Iterable[VictimUnit], gang: Gang) -> list[VictimUnit]:
    """``units``, with a unit for each pod of ``gang``, the last in its order first."""
    apart: list[VictimUnit] = []
    for unit in units:
        if unit.gang.key == gang.key:
            apart += [VictimUnit(unit.gang, (member,)) for member in reversed(unit.members)]
        else:
            apart.append(unit)
    return apart


def keeps_min_members(gang: Gang, units: Sequence[VictimUnit], statement: Statement) -> bool:
    """Whether ``gang`` goes on without its pods of ``units``: leaves that give have their floors.

    Pods that are only being started do not count.
    """
    left = _running_by_leaf(gang, statement)
    given = pods_of(unit for unit in units if unit.gang.key == gang.key)
    for member in given:
        left[member.subgroup] -= 1
    least = {leaf.name: leaf.min_members for leaf in gang.tree.leaves()}
    whole = all(left[member.subgroup] >= least.get(member.subgroup, 0) for member in given)
    return whole and is_satisfied(gang.tree, left)


def _has_elastic_pods(gang: Gang, statement: Statement) -> bool:
    if gang.semi_preemptible or _evicted_whole(gang.tree):
        return False
    left = _running_by_leaf(gang, statement)
    return any(left.get(leaf.name, 0) > leaf.min_members for leaf in gang.tree.leaves())


def _evicted_whole(tree: Subgroup) -> bool:
    return tree.evicted_together or any(map(_evicted_whole, tree.children))


def _running_by_leaf(gang: Gang, statement: Statement) -> dict[str, int]:
    """Pods by leaf that run and stay."""
    left: dict[str, int] = {}
    for member in gang.bound:
        if member.pod.uid not in statement.evicted:
            left[member.subgroup] = left.get(member.subgroup, 0) + 1
    return left
