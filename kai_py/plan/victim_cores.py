"""Which pods of an elastic gang may leave so that it keeps its core?

Units offer the surplus of a gang in a fixed order. Where those pods are not in the way and others
of the gang are, the core is asked for as well, and with it goes everything. But pods of a leaf are
alike: any of them may be its surplus. So of a gang that is to lose a core, the pods that leave are
looked at one by one, and those that are needed leave as surplus, if every leaf of them keeps its
floor. The same goes for a gang that is safe for now: it may lose its surplus, whichever pods that
is. Gangs without surplus, semi-preemptible ones (whose core is certain pods) and those that
leave whole are as they were offered. O(pods) per gang.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kai_py.grouping.gang import Subgroup, satisfied
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.units import VictimUnit, pods_of
from kai_py.snapshot.gangs import Gang


def elastic_losing_cores(units: Iterable[VictimUnit], statement: Statement) -> list[Gang]:
    """The gangs that lose floors with ``units`` though they run more pods than that."""
    losing = {unit.gang.key: unit.gang for unit in units if not unit.is_surplus}
    return [gang for gang in losing.values() if _has_surplus(gang, statement)]


def as_far_as_safe(
    units: Iterable[VictimUnit], is_safe: Callable[[Gang], bool], statement: Statement
) -> Iterator[VictimUnit]:
    """``units``, of gangs that are safe only what they can lose beside their floors."""
    for unit in units:
        if unit.is_surplus or not is_safe(unit.gang):
            yield unit
        elif _has_surplus(unit.gang, statement):
            yield replace(unit, in_part=True)


def one_by_one(units: Iterable[VictimUnit], gang: Gang) -> list[VictimUnit]:
    """``units``, with a unit for each pod of ``gang``, the last in its order first."""
    apart: list[VictimUnit] = []
    for unit in units:
        if unit.gang.key == gang.key:
            apart += [VictimUnit(unit.gang, (member,)) for member in reversed(unit.members)]
        else:
            apart.append(unit)
    return apart


def keeps_floors(gang: Gang, units: Sequence[VictimUnit], statement: Statement) -> bool:
    """Whether ``gang`` goes on without its pods of ``units``: leaves that give have their floors.

    Pods that are only being started do not count.
    """
    left = _running(gang, statement)
    given = pods_of(unit for unit in units if unit.gang.key == gang.key)
    for member in given:
        left[member.leaf] -= 1
    least = {leaf.name: leaf.min_members for leaf in gang.tree.leaves()}
    whole = all(left[member.leaf] >= least.get(member.leaf, 0) for member in given)
    return whole and satisfied(gang.tree, left)


def _has_surplus(gang: Gang, statement: Statement) -> bool:
    if gang.semi_preemptible or _leaves_whole(gang.tree):
        return False
    left = _running(gang, statement)
    return any(left.get(leaf.name, 0) > leaf.min_members for leaf in gang.tree.leaves())


def _leaves_whole(tree: Subgroup) -> bool:
    return tree.leaves_whole or any(map(_leaves_whole, tree.children))


def _running(gang: Gang, statement: Statement) -> dict[str, int]:
    """Pods by leaf that run and stay."""
    left: dict[str, int] = {}
    for member in gang.bound:
        if member.pod.uid not in statement.evicted:
            left[member.leaf] = left.get(member.leaf, 0) + 1
    return left
