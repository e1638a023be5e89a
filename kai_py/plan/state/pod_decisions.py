"""Decisions about pods, as rules between pods count them, and counts of pods by topology domain."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from kai_py.plan.state.assignment import Assignment, Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.pod_selection import Labels
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.tables.pod_rules import PodCounts

NO_POD = PodCounts({}, {}, {})


class PodDecision(NamedTuple):
    """A pod that the statement has placed or evicted: what that adds to its node now and later."""

    member: Member
    row: int
    now: int
    later: int

    @property
    def labels(self) -> Labels:
        """The labels of the pod."""
        return self.member.labels

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.member.pod.namespace


def placed_pod(member: Member, row: int, capacity: Capacity) -> PodDecision:
    """The decision that the pod starts on the node, now or once its capacity is idle."""
    return PodDecision(member, row, 1 if capacity is Capacity.IDLE else 0, 1)


def evicted_pod(member: Member, row: int) -> PodDecision:
    """The decision that the pod leaves its node."""
    return PodDecision(member, row, 0, -1)


def decided_pods(
    positions: Mapping[str, int],
    placed: Mapping[str, Assignment],
    evicted: Mapping[str, Evicted],
) -> Iterator[PodDecision]:
    """What was decided so far, for rules between pods; ``positions``: of nodes."""
    for each in placed.values():
        yield placed_pod(each.member, each.row, each.capacity)
    for victim in evicted.values():
        row = positions.get(victim.member.node)
        if row is not None:
            yield evicted_pod(victim.member, row)


DecisionKey = tuple[str, bool]
"""The uid of a pod, and whether it was placed."""


def decision_key(decision: PodDecision) -> DecisionKey:
    """The key of a decision."""
    return decision.member.pod.uid, decision.later > 0


def domain_counts(
    nodes: NodeColumns,
    topology_key: str,
    pods: Iterable[PodCounts],
    decisions: Iterable[PodDecision] = (),
    counted: Bools | None = None,
) -> DomainCounts:
    """Pods per value of a node label; on the nodes ``counted`` (nodes,) if that is given."""
    column = nodes.label(topology_key)
    codes = column.codes if counted is None else np.where(counted, column.codes, 0)
    now = np.zeros(len(column.values), dtype=np.int64)
    found = DomainCounts(codes, now, now.copy())
    for each in pods:
        add_pods(found, nodes.positions, each, counts_stuck=counted is None)
    for decision in decisions:
        found.add(decision.row, decision.now, decision.later)
    return found


def add_pods(
    counts: DomainCounts, positions: Mapping[str, int], pods: PodCounts, *, counts_stuck: bool
) -> None:
    """Count pods on nodes; ``counts_stuck``: pods that terminate for too long count later, too.

    Only pods for topology spread are counted on some of the nodes: of these, as in kube-scheduler,
    terminating ones do not count.
    """
    for node, count in pods.all.items():
        row = positions.get(node)
        if row is not None:
            stays = pods.stuck.get(node, 0) if counts_stuck else 0
            counts.add(row, count, count - pods.terminating.get(node, 0) + stays)
