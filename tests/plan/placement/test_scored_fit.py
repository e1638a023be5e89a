"""Rows found ahead are those of picking and placing one pod after the other."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.choices import BuiltInScore
from kai_py.plan.placement import score_nodes
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from kai_py.policy.fairness_rules import NATIVE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.registry import WeightedScore
from tests.support.examples import examples
from tests.support.scenario import cluster, node, pod, queue

SCORES = [
    *((WeightedScore(each),) for each in BuiltInScore),
    (WeightedScore("fgd"), WeightedScore("best-fit", 3)),
]

machines = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12)), min_size=1, max_size=5)
asks = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from([1, 100, 200])),
    min_size=1,
    max_size=3,
)
chunks = st.sampled_from([(1, 1), (2, 3), (64, 8)])


def statement(shapes, sizes):
    nodes = [node(f"n{i}", gpus, cpu=str(cpu)) for i, (gpus, cpu) in enumerate(sizes)]
    pods = [
        pod(f"p{i}-{n}", gpus, queue="q", requests={"cpu": str(cpu), "memory": f"{memory}Gi"})
        for i, (gpus, cpu, memory) in enumerate(shapes)
        for n in range(12)
    ]
    world = cluster(queue("q", 99), *nodes, pods)
    snapshot = world.snapshot()
    gpus = world.devices.node_gpus(snapshot.nodes)
    quota = quota_of(snapshot, NATIVE, world.devices.accounting, gpus)
    return Statement(snapshot, quota, CycleDevices(world.devices, snapshot))


def fit_of(trial, shape, scores, mask, preference):
    nodes = Scoring.for_snapshot(scores, trial.snapshot, StaticFits()).nodes(trial, Capacity.IDLE)
    return ScoredFit(nodes, shape, mask, preference)


def kinds(trial):
    """By shape, the pods that have it."""
    found = {}
    for each in sorted(trial.snapshot.gangs.values(), key=lambda gang: gang.key):
        found.setdefault(each.members[0].shape.number, []).append((each, each.members[0]))
    return list(found.values())


@settings(max_examples=examples(40), deadline=None)
@given(
    machines,
    asks,
    st.integers(1, 12),
    st.sampled_from(SCORES),
    chunks,
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.lists(st.sampled_from([0, 0, -1, 2]), min_size=5, max_size=5),
)
def test_rows_ahead_are_those_of_one_pod_after_the_other(
    sizes, shapes, count, scores, chunk, allowed, preferred
):
    trial, mask = statement(shapes, sizes), np.array(allowed[: len(sizes)])
    preference = np.array(preferred[: len(sizes)])
    for pods in kinds(trial):
        shape = pods[0][1].shape
        with (
            mock.patch.object(score_nodes, "NODES_AT_ONCE", chunk[0]),
            mock.patch.object(score_nodes, "REPLICAS_AT_ONCE", chunk[1]),
        ):
            foreseen = fit_of(trial, shape, scores, mask, preference).next_rows(count)
        each = fit_of(trial, shape, scores, mask, preference)
        nodes = np.arange(len(sizes))
        ahead = each.scored.scores_ahead(shape, nodes, np.zeros_like(nodes), count + 1)
        rows = []
        for gang, member in pods[:count]:
            row = each.first_row()
            if row is None:
                break
            assert each.is_feasible()
            assert each.scored.scores(shape)[row] == ahead[row, rows.count(row)]
            assert trial.place(gang, [member], row, Action.ALLOCATE, capacity=Capacity.IDLE)
            rows.append(row)
        else:
            assert len(rows) == count
        assert foreseen == rows
        assert each.is_feasible() == (each.first_row() is not None)
