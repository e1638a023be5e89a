"""Pods with channels of one ComputeDomain are kept in one NVLink clique, a label of the nodes.

The claims name the domain (``dra.compute_domains``); its pods may be in several gangs. If pods of
the domain run or were placed in this cycle, their clique is used. Otherwise cliques that hold all
waiting pods of the domain come first, the tightest of them first, then those with the most
capacity. Pods without channels are not affected. Nodes without the label are in no clique; if no
node has it, pods are placed as if there were no domains.

A gang whose own topology constraint prefers a clique, or keeps each of its subgroups in one, only
prefers the clique of the domain. O(pods of the gang) if a DeviceClass selects channels, else O(1).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.compute_domains import ChannelClaims, ComputeDomain, domain_id
from kai_py.grouping.gang import Subgroup
from kai_py.plan.placement.attempt import Attempt, NodeSet, by_shape
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.statement import Statement
from kai_py.policy.node_filters import matches_selector
from kai_py.policy.topology import DomainCandidate, candidate_domains
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.topology import NO_DOMAIN, TopologyLevel

CLIQUE = "nvidia.com/gpu.clique"
MAX_CLIQUES_TO_TRY = 64
"""Cliques that are tried for one gang, over all of its domains."""
MAX_WAITING_SHAPES = 8
"""Shapes of a domain's waiting pods that are counted to decide which clique comes first."""
MAX_CLIQUES_TO_NAME = 6
MAX_ID_LENGTH = 63


class DomainPart(Struct, frozen=True):
    """The pods of a request with channels of one domain.

    ``is_preferred``: its clique is a preference. ``occupied``: (nodes,) bool, where other pods of
    the domain are; None where none is.
    """

    domain: ComputeDomain
    members: tuple[Member, ...]
    is_preferred: bool
    occupied: Bools | None


@dataclass
class ComputeDomains:
    """The domains of a snapshot's pods; ``level``: the cliques."""

    level: TopologyLevel
    snapshot: Snapshot
    classes: frozenset[str]
    channels: ChannelClaims
    _by_shape: dict[int, str | None] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot, devices: ClusterDevices) -> "ComputeDomains | None":
        """The domains of ``snapshot``; None where there are no channels or no cliques."""
        classes = devices.channel_classes()
        if not classes or not snapshot.nodes.label(CLIQUE).codes.any():
            return None
        (level,) = snapshot.nodes.levels((CLIQUE,))
        return ComputeDomains(level, snapshot, classes, devices.channels)

    def parts(
        self, statement: Statement, gang: Gang, members: Sequence[Member]
    ) -> tuple[DomainPart, ...]:
        """The pods with channels by domain."""
        by_domain = self._by_domain((gang, member) for member in members)
        is_preferred = _prefers_clique(gang.tree)
        return tuple(
            DomainPart(domain, tuple(own), is_preferred, self._occupied(statement, gang, domain))
            for domain, own in by_domain.items()
        )

    def domain_of(self, gang: Gang, member: Member) -> ComputeDomain | None:
        """The domain of which a pod claims a channel; None if it claims none."""
        shape = member.shape
        if not shape.claims:
            return None
        if shape.number not in self._by_shape:
            channels = [use.spec for use in shape.claims if _has_class(use.spec, self.classes)]
            named = next((name for spec in channels if (name := domain_id(spec))), "")
            self._by_shape[shape.number] = named if channels else None
        domain = self._by_shape[shape.number]
        if domain is None:
            return None
        return ComputeDomain(member.pod.namespace, domain, "" if domain else gang.key)

    def required_cliques(
        self, statement: Statement, gang: Gang, members: Sequence[Member]
    ) -> Ints | None:
        """(nodes,) int64: the clique of each node if all ``members`` must share one, else None.

        ``NO_DOMAIN`` for nodes that are excluded.
        """
        parts = self.parts(statement, gang, members)
        if len(parts) != 1 or parts[0].is_preferred or len(parts[0].members) < len(members):
            return None
        codes, occupied = self.level.codes, parts[0].occupied
        if occupied is None:
            return codes
        return np.where(np.isin(codes, codes[occupied]), codes, NO_DOMAIN)

    def waiting(self, statement: Statement, domain: ComputeDomain) -> list[Member]:
        """The pods of the domain, of any gang, that are pending and not placed."""
        pending = self._pending.get(domain, [])
        return [member for member in pending if member.pod.uid not in statement.placed]

    @cached_property
    def _pending(self) -> Mapping[ComputeDomain, Sequence[Member]]:
        gangs = (self.snapshot.gangs[key] for key in self.snapshot.pending)
        return self._by_domain((gang, member) for gang in gangs for member in gang.pending)

    def _by_domain(
        self, pods: Iterable[tuple[Gang, Member]]
    ) -> Mapping[ComputeDomain, Sequence[Member]]:
        """The pods with channels by domain, in order."""
        found: dict[ComputeDomain, list[Member]] = {}
        for gang, member in pods:
            domain = self.domain_of(gang, member)
            if domain is not None:
                found.setdefault(domain, []).append(member)
        return found

    def _occupied(self, statement: Statement, gang: Gang, domain: ComputeDomain) -> Bools | None:
        """(nodes,) bool: nodes of cliques where pods of the domain stay or were placed."""
        nodes, placed = self.snapshot.nodes, statement.placed
        occupied = np.zeros(len(nodes), dtype=np.bool_)
        for claim in self.channels.of(domain):
            users = statement.devices.users.listed(claim)
            leaving = [uid in statement.evicted or uid in self._terminating for uid in users]
            if not leaving or not all(leaving):
                allocation = claim.status.allocation
                if allocation is not None and allocation.node_selector is not None:
                    occupied |= matches_selector(allocation.node_selector, nodes)
            else:
                occupied[[placed[uid].row for uid in users if uid in placed]] = True
        waiting = (member.pod.uid for member in self._pending.get(domain, ()))
        occupied[[placed[uid].row for uid in waiting if uid in placed]] = True
        for member in gang.bound if domain.gang else ():
            stays = member.pod.uid not in statement.evicted and member.node in nodes.positions
            if stays and self.domain_of(gang, member) == domain:
                occupied[nodes.positions[member.node]] = True
        occupied &= self.level.codes != NO_DOMAIN
        return occupied if occupied.any() else None

    @cached_property
    def _terminating(self) -> frozenset[str]:
        return frozenset(member.pod.uid for member in self.snapshot.terminating)


class CliqueQuery(NamedTuple):
    """The arguments that stay the same while cliques for a gang's pods are chosen."""

    domains: ComputeDomains
    attempt: Attempt
    shapes: ShapePlacer


def clique_choices(
    query: CliqueQuery,
    parts: Sequence[DomainPart],
    node_set: NodeSet,
) -> Iterator[NodeSet]:
    """``node_set`` with the pods of each part in one clique after the other, the best first."""
    if not parts:
        yield node_set
        return
    for inside in _node_sets(query, parts[0], node_set):
        yield from clique_choices(query, parts[1:], inside)


def _node_sets(
    query: CliqueQuery,
    part: DomainPart,
    node_set: NodeSet,
) -> Iterator[NodeSet]:
    found = candidate_domains(
        (query.domains.level,),
        *_replicas(query, part.members, node_set),
        required=None if part.is_preferred else 0,
        preferred=0,
        occupied=part.occupied,
    )
    candidates = list(found)
    if part.occupied is None and len(candidates) > 1:
        candidates = _whole_domain_first(query, part, node_set, candidates)
    numbers = dict.fromkeys(member.shape.number for member in part.members)
    for candidate in candidates:
        yield node_set._replace(domains={**node_set.domains, **dict.fromkeys(numbers, candidate)})


def _whole_domain_first(
    query: CliqueQuery,
    part: DomainPart,
    node_set: NodeSet,
    candidates: Sequence[DomainCandidate],
) -> list[DomainCandidate]:
    """Candidates that hold all waiting pods of the domain in order, then those with most capacity.

    Each pod takes one channel of its node, so nodes count once for pods of all shapes.
    """
    waiting = query.domains.waiting(query.attempt.statement, part.domain)
    if len(waiting) <= len(part.members):
        return list(candidates)
    replicas, counts = _replicas(query, waiting, node_set, MAX_WAITING_SHAPES)
    on_node = np.max(replicas, axis=0)

    def rank(candidate: DomainCandidate) -> tuple[bool, bool, int]:
        most = int(on_node[candidate.mask].sum())
        sums = [int(each[candidate.mask].sum()) for each in replicas]
        holds = most >= sum(counts) and all(s >= n for s, n in zip(sums, counts, strict=True))
        return not candidate.name, not holds, 0 if holds else -most

    return sorted(candidates, key=rank)


def _replicas(
    query: CliqueQuery,
    members: Sequence[Member],
    node_set: NodeSet,
    limit: int | None = None,
) -> tuple[list[Ints], list[int]]:
    """Per shape of ``members`` (nodes,) how many fit, and how many there are; ``limit`` shapes."""
    groups = by_shape(members)[:limit]
    counts = [len(group) for group in groups]
    return [
        query.shapes.max_replicas(query.attempt, group[0].shape, node_set.mask, count)
        for group, count in zip(groups, counts, strict=True)
    ], counts


def no_clique(
    query: CliqueQuery,
    parts: Sequence[DomainPart],
    node_set: NodeSet,
    inner: Unschedulable | None,
) -> Unschedulable:
    """The reason that no clique holds a domain's pods, with how many pods each clique lacks.

    ``inner``: why the gang did not fit in a clique that does hold these pods, if there is one.
    """
    level = query.domains.level
    if all(part.is_preferred for part in parts) and inner is not None:
        return inner
    part, fitting = parts[0], np.zeros(0, dtype=np.int64)
    for part in parts:
        fitting = _fitting(query, part, node_set)
        if not part.is_preferred and (fitting < len(part.members)).all():
            break
    needed = len(part.members)
    cliques = np.arange(len(level.names))
    where = "must be in one NVLink clique"
    if part.occupied is not None:
        cliques = np.unique(level.codes[part.occupied])
        where = "must be in the NVLink clique of its other pods"
    order = sorted(cliques.tolist(), key=lambda at: (-int(fitting[at]), level.names[at]))
    texts = [_capacity_text(level.names[at], int(fitting[at]), needed) for at in order]
    more = len(texts) - MAX_CLIQUES_TO_NAME
    named = "; ".join(texts[:MAX_CLIQUES_TO_NAME]) + (f"; and {more} more" if more > 0 else "")
    is_short = bool((fitting[order] < needed).all())
    reason = "" if inner is None or is_short else f"; {inner.message.rstrip('.')}"
    pods = "1 pod with a channel" if needed == 1 else f"{needed} pods with channels"
    head = f"{_name(part.domain)}: {pods} {where} ({CLIQUE})"
    return Unschedulable(Stage.TOPOLOGY, f"{head}: {named}{reason}.")


def _fitting(
    query: CliqueQuery,
    part: DomainPart,
    node_set: NodeSet,
) -> Ints:
    """(cliques,) for how many of the pods of ``part`` each clique has capacity."""
    replicas, counts = _replicas(query, part.members, node_set)
    sums = [
        np.minimum(query.domains.level.sums(each), count)
        for each, count in zip(replicas, counts, strict=True)
    ]
    return np.asarray(np.sum(sums, axis=0), dtype=np.int64)


def _capacity_text(name: str, fitting: int, needed: int) -> str:
    if fitting >= needed:
        return f"{name} has capacity for all of them, but not with the rest of their gang"
    return f"{name} has capacity for {fitting} and lacks {needed - fitting}"


def _name(domain: ComputeDomain) -> str:
    if domain.gang:
        return f"ComputeDomain of gang {domain.gang}"
    return f"ComputeDomain {domain.id[:MAX_ID_LENGTH]}"


def _prefers_clique(tree: Subgroup) -> bool:
    """Whether the gang's own constraints name cliques, other than to require one for all of it."""
    if tree.topology is not None and tree.topology.required_level == CLIQUE:
        return False
    return _names_clique(tree)


def _names_clique(group: Subgroup) -> bool:
    topology = group.topology
    named = topology is not None and CLIQUE in (
        topology.required_level,
        topology.preferred_level,
        topology.fitting_level,
    )
    return named or any(_names_clique(child) for child in group.children)


def _has_class(spec: ResourceClaimSpec, classes: Set[str]) -> bool:
    """Whether a request of the claim, or an alternative of one, is for one of these classes."""
    return any(
        exact.device_class_name in classes
        for request in spec.devices.requests
        for exact in (
            (request.exactly,) if request.exactly is not None else request.first_available
        )
    )
