"""From topology constraints and gang affinity to the node sets in which pods are tried.

The nodes near another gang are those on which its pods run or were placed, or all nodes that have
the same value of a label as these. Of several gang affinities the first with any such node counts.
A gang is placed there if its whole request fits, else it prefers those nodes (tier ``near-gang``)
and takes others as well.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from kai_py.api.problems import closest_match
from kai_py.api.texts import count_of, first_of
from kai_py.grouping.gang import WHOLE, Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import GangAffinity
from kai_py.grouping.segments import PODS
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import replicas_that_fit, static_fit
from kai_py.policy.topology import DomainCandidate, candidate_domains
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.topology import NO_DOMAIN, TopologyLevel

UNNAMED = frozenset({"", WHOLE, PODS})
"""Names of subgroups that no manifest contains, so messages leave them out."""


def domain_candidates(
    statement: Statement,
    gang: Gang,
    group: Subgroup,
    replicas: Sequence[Ints],
    counts: Sequence[int],
) -> Iterator[DomainCandidate] | Unschedulable:
    """Domains in which ``group`` may be placed, in order, or what is wrong with its constraint.

    Per shape of its pods, ``replicas``: (nodes,) how many fit; ``counts``: how many to place.
    """
    constraint = resolved_constraint(statement.snapshot, gang, group) or TopologyConstraint()
    keys = _level_keys(statement.snapshot, constraint)
    if keys is None:
        return Unschedulable(
            Stage.TOPOLOGY,
            f"Requested topology {constraint.topology} does not exist"
            + _did_you_mean(constraint.topology, statement.snapshot.topologies),
        )
    for level in (constraint.required_level, constraint.preferred_level):
        if level and level not in keys:
            named = f"topology {constraint.topology}" if constraint.topology else "the topology"
            nearest = closest_match(level, keys)
            advice = f"did you mean {nearest}?" if nearest else f"its levels are {', '.join(keys)}"
            return Unschedulable(Stage.TOPOLOGY, f"{named} has no level {level}; {advice}")
    return candidate_domains(
        statement.snapshot.nodes.levels(keys),
        replicas,
        counts,
        required=_level_index(keys, constraint.required_level),
        preferred=_level_index(keys, constraint.preferred_level),
        occupied=_occupied_nodes(statement, gang, group),
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    nearest = closest_match(name, known)
    return f"; did you mean {nearest}?" if nearest else ""


def required_domains(statement: Statement, gang: Gang, group: Subgroup) -> Ints | None:
    """(nodes,) int64: by node, its domain of the level that ``group`` requires.

    ``NO_DOMAIN`` for nodes where the group may not be placed; None if no level is required.
    """
    constraint = resolved_constraint(statement.snapshot, gang, group)
    if constraint is None or not constraint.required_level:
        return None
    level = level_of(statement.snapshot, constraint, constraint.required_level)
    if level is None:
        return np.full(len(statement.snapshot.nodes), NO_DOMAIN)
    pinned = _occupied_nodes(statement, gang, group)
    if pinned is None:
        return level.codes
    return np.where(np.isin(level.codes, level.codes[pinned]), level.codes, NO_DOMAIN)


def in_required_domains(statement: Statement, gang: Gang, group: Subgroup) -> bool:
    """Whether the pods on nodes, of the group and each one below it, are in one required domain."""
    domains = required_domains(statement, gang, group)
    occupied = None if domains is None else _occupied_nodes(statement, gang, group)
    if domains is not None and occupied is not None and len(np.unique(domains[occupied])) > 1:
        return False
    return all(in_required_domains(statement, gang, each) for each in group.children)


def members_of(group: Subgroup, members: Sequence[Member]) -> list[Member]:
    """The members that belong to ``group`` or a subgroup below it."""
    leaves = set(group.leaf_names())
    return [member for member in members if member.subgroup in leaves]


def subgroup_domains(
    statement: Statement, gang: Gang, group: Subgroup
) -> tuple[list[Ints], dict[str, tuple[int, ...]]]:
    """(nodes,) each, ``required_domains`` of the subgroups below ``group`` that require a level.

    Also, by name of each leaf, the positions of those that it belongs to, the innermost last.
    """
    domains: list[Ints] = []
    leaves: dict[str, tuple[int, ...]] = {}

    def descend(parent: Subgroup, outer: tuple[int, ...]) -> None:
        for child in parent.children:
            found, own = required_domains(statement, gang, child), outer
            if found is not None:
                own = (*outer, len(domains))
                domains.append(found)
            if not child.children:
                leaves[child.name] = own
            descend(child, own)

    descend(group, ())
    return domains, leaves


def resolved_constraint(
    snapshot: Snapshot, gang: Gang, group: Subgroup
) -> TopologyConstraint | None:
    """The group's constraint, with its ``fitting_level`` made the required or preferred level.

    Required if the minMember pods would fit into an empty domain of that level; gangs with claims,
    whose devices are not counted here, only prefer it.
    """
    constraint = group.topology
    if constraint is None or not constraint.fitting_level:
        return constraint
    bounds = {"required_level": constraint.fitting_level}
    if not _fits_empty(snapshot, gang, group, constraint):
        bounds = {"preferred_level": constraint.fitting_level}
    return replace(constraint, **bounds, fitting_level="")


def _fits_empty(
    snapshot: Snapshot, gang: Gang, group: Subgroup, constraint: TopologyConstraint
) -> bool:
    level = level_of(snapshot, constraint, constraint.fitting_level)
    if level is None:
        return True
    members = members_of(group, gang.members)[: max(1, group.min_pods())]
    shapes = [member.shape for member in members]
    holds = np.ones(len(level.names), dtype=np.bool_)
    fitting = snapshot.nodes.allocatable
    for number in dict.fromkeys(shape.number for shape in shapes):
        equal_shapes = [shape for shape in shapes if shape.number == number]
        if equal_shapes[0].has_claims:
            return False
        mask = static_fit(equal_shapes[0], snapshot.nodes).mask
        replicas = replicas_that_fit(equal_shapes[0], snapshot.resources, fitting, mask, fitting)
        holds &= level.sums(replicas) >= len(equal_shapes)
    return bool(holds.any())


def largest_domain(
    statement: Statement,
    gang: Gang,
    group: Subgroup,
    replicas: Sequence[Ints],
    counts: Sequence[int],
) -> tuple[str, int]:
    """The domain in which most of the pods fit, and how many; "" if the level is unknown.

    Arguments as of ``domain_candidates``.
    """
    constraint = resolved_constraint(statement.snapshot, gang, group) or TopologyConstraint()
    level = level_of(statement.snapshot, constraint, constraint.required_level)
    if level is None:
        return "", 0
    fitting = np.zeros(len(level.names), dtype=np.int64)
    for each, count in zip(replicas, counts, strict=True):
        fitting += np.minimum(level.sums(each), count)
    if not len(fitting):
        return "", 0
    best = int(np.argmax(fitting))
    return level.names[best], int(fitting[best])


def topology_unsatisfied(
    gang: Gang, group: Subgroup, needed: int, best: tuple[str, int], *, occupied: str
) -> Unschedulable:
    """The reason that no domain holds the group.

    ``needed``: its pods; ``best``: as of ``largest_domain``; ``occupied``: as of
    ``occupied_domains``.
    """
    constraint = group.topology or TopologyConstraint()
    part = f", subgroup {group.name}" if group.name not in UNNAMED else ""
    level = constraint.required_level or constraint.preferred_level or constraint.fitting_level
    named = f"topology {constraint.topology}, " if constraint.topology else ""
    fits = _domain_capacity_text(best, needed, occupied)
    return Unschedulable(
        Stage.TOPOLOGY,
        f"{named}requirement {level} couldn't be satisfied for "
        f"{gang.owner.namespace}/{gang.owner.name}{part}: {fits}",
    )


def _domain_capacity_text(best: tuple[str, int], needed: int, occupied: str) -> str:
    name, fitting = best
    pods = count_of(needed, "pod")
    if occupied:
        return f"its other pods are in {occupied}, which has no capacity for {pods} more"
    if not name or not 0 < fitting < needed:
        return f"no domain has capacity for {pods}"
    return f"no domain has capacity for {pods}; {name} has capacity for {fitting}"


def occupied_domains(statement: Statement, gang: Gang, group: Subgroup) -> str:
    """The domains of the required level where pods of the group are already; "" without any."""
    constraint = resolved_constraint(statement.snapshot, gang, group) or TopologyConstraint()
    level = level_of(statement.snapshot, constraint, constraint.required_level)
    occupied = _occupied_nodes(statement, gang, group)
    if level is None or occupied is None:
        return ""
    codes = np.unique(level.codes[occupied])
    return first_of([level.names[code] for code in codes[codes != NO_DOMAIN].tolist()])


def _level_keys(snapshot: Snapshot, constraint: TopologyConstraint) -> tuple[str, ...] | None:
    if constraint.topology:
        return snapshot.topologies.get(constraint.topology)
    named = (constraint.required_level, constraint.fitting_level, constraint.preferred_level)
    return tuple(dict.fromkeys(level for level in named if level))


def level_of(snapshot: Snapshot, constraint: TopologyConstraint, name: str) -> TopologyLevel | None:
    """The domains of the level ``name``; None if the topology has no such level."""
    keys = _level_keys(snapshot, constraint)
    if keys is None or name not in keys:
        return None
    return snapshot.nodes.levels(keys)[keys.index(name)]


def _level_index(keys: Sequence[str], level: str) -> int | None:
    return keys.index(level) if level else None


def _occupied_nodes(statement: Statement, gang: Gang, group: Subgroup) -> Bools | None:
    """(nodes,) bool: where pods of the group run or were placed; None when none is."""
    nodes = statement.snapshot.nodes
    rows = [
        nodes.positions[member.node]
        for member in members_of(group, gang.bound)
        if member.node in nodes.positions and member.pod.uid not in statement.evicted
    ]
    rows += [
        planned.row
        for member in members_of(group, gang.members)
        if (planned := statement.placed.get(member.pod.uid)) is not None
    ]
    if not rows:
        return None
    pinned = np.zeros(len(nodes), dtype=np.bool_)
    pinned[rows] = True
    return pinned


def near_nodes(statement: Statement, gang: Gang) -> Bools | None:
    """(nodes,) bool: the nodes near a gang that its gang affinity names; None if there are none."""
    for preference in gang.settings.gang_affinity:
        nodes = _nodes_near(statement, preference)
        if nodes.any():
            return nodes
    return None


def _nodes_near(statement: Statement, preference: GangAffinity) -> Bools:
    columns = statement.snapshot.nodes
    inside = np.zeros(len(columns), dtype=np.bool_)
    other = statement.snapshot.gangs.get(preference.gang)
    if other is None:
        return inside
    for member in other.members:
        planned = statement.placed.get(member.pod.uid)
        row = columns.positions.get(member.node) if planned is None else planned.row
        if row is not None:
            inside[row] = True
    if not preference.level:
        return inside
    codes = columns.label(preference.level).codes
    near: Bools = np.isin(codes, np.unique(codes[inside & (codes != 0)]))
    return near
