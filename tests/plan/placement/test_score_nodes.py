"""Scored placement: what is remembered between pods equals scoring everything again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.choices import BuiltInScore
from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.placement.score_nodes import ScoredFit, ScoredNodes
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.plan import Action
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.registry import WeightedScore
from tests.plan.state.test_statement import statement, statement_of
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import cluster, job_with_pods, node, placed, pod, queue, shared
from tests.support.worlds import gang, member, world

SCORES = [
    *((WeightedScore(each),) for each in BuiltInScore),
    (WeightedScore("frugal", 2), WeightedScore("best-fit")),
]


def picks(scoring, trial):
    everywhere, flat = np.ones(len(trial.snapshot.nodes), dtype=bool), np.zeros(2, dtype=int)
    shapes = {m.shape.number: m.shape for g in trial.snapshot.gangs.values() for m in g.members}
    return [
        scoring.nodes(trial, capacity).pick(shapes[number], everywhere, flat)
        for number in sorted(shapes)
        for capacity in Capacity
    ]


steps = st.lists(
    st.tuples(st.sampled_from(["place", "evict"]), st.integers(0, 9), st.integers(0, 1)),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(steps, st.sampled_from(SCORES), st.sampled_from(Capacity), st.booleans())
def test_remembered_levels_are_those_scored_again(done, scores, capacity, keep):
    trial = statement()
    scoring = Scoring.for_snapshot(scores, trial.snapshot, StaticFits())
    picks(scoring, trial)
    with trial.trial() as block:
        for kind, index, row in done:
            act(trial, kind, index, row, capacity)
            picks(scoring, trial)
        if keep:
            block.keep()
    fresh = Scoring.for_snapshot(scores, trial.snapshot, StaticFits())
    assert picks(scoring, trial) == picks(fresh, trial)


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_what_is_evicted_is_free_in_future_idle_capacity_only(scores):
    pods = pod("runs", 2, queue="q", node="a"), pod("waits", queue="q")
    trial = statement_of(cluster(queue("q", 8), node("a", 2), *pods))
    scoring = Scoring.for_snapshot(scores, trial.snapshot, StaticFits())
    runs, waits = (trial.snapshot.gangs[f"default/Pod/{name}"] for name in ("runs", "waits"))

    def rows():
        found = [
            scoring.nodes(trial, each).pick(waits.members[0].shape, np.ones(1, dtype=bool), None)
            for each in (Capacity.IDLE, Capacity.FUTURE_IDLE)
        ]
        return [each and each.row for each in found]

    assert rows() == [None, None]
    trial.evict(Evicted(runs.members[0], runs, Action.PREEMPT, runs, "test"))
    assert rows() == [None, 0]


def test_the_fit_of_a_shape_is_made_once():
    trial, static = statement(), StaticFits()
    scoring = Scoring.for_snapshot((WeightedScore("best-fit"),), trial.snapshot, static)
    shape = next(m.shape for g in trial.snapshot.gangs.values() for m in g.pending)
    made = scoring.fit(trial, shape, Capacity.IDLE, static)
    assert isinstance(made, ScoredFit)
    assert scoring.fit(trial, shape, Capacity.IDLE, static) is made


def act(trial, kind, index, row, capacity):
    gangs = sorted(trial.snapshot.gangs.values(), key=lambda gang: gang.key)
    if kind == "place":
        waiting = [(g, m) for g in gangs for m in g.pending if m.pod.uid not in trial.placed]
        gang, member = waiting[index % len(waiting)]
        trial.place(gang, [member], row, Action.ALLOCATE, capacity=capacity)
        return
    running = [(g, m) for g in gangs for m in g.bound if m.pod.uid not in trial.evicted]
    if running:
        gang, member = running[index % len(running)]
        trial.evict(Evicted(member, gang, Action.PREEMPT, gang, "test"))


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_every_score_fills_a_cluster_and_never_more(scores):
    pods = [shared(pod(f"p{i}", 0, queue="q"), "0.5") for i in range(9)]
    world = cluster(queue("q", 64), node("a", 2), node("b", 2), pods, scores=scores)
    plan = world.plan()
    assert len(placed(plan)) == 8
    held: dict[str, float] = {}
    for placement in plan.placements:
        for each in placement.pods:
            [gpu] = each.gpus
            held[gpu.group] = held.get(gpu.group, 0.0) + 0.5
    assert set(held.values()) == {1.0}
    assert "1 Insufficient GPU fraction" not in plan.unplaced[0].message
    assert "Insufficient GPU fraction" in plan.unplaced[0].message


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_gangs_stay_whole(scores):
    gang = job_with_pods("j", 3, 2, queue="q")
    settings = {"scores": scores}
    assert not placed(cluster(queue("q", 64), node("a", 4), gang, **settings).plan())
    assert len(placed(cluster(queue("q", 64), node("a", 6), gang, **settings).plan())) == 3


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_mixed_gangs_that_fit_are_placed(scores):
    mixed = gang("mixed", nodes="---")
    shaped = (
        member(m.pod.name, size, "") for m, size in zip(mixed.members, (2, 4, 3), strict=True)
    )
    rooms = {"a": 4, "b": 5}
    plan = world(rooms, replace(mixed, members=tuple(shaped)), scores=scores).plan()
    assert sorted(placed(plan).values()) == ["a", "b", "b"]


@pytest.mark.parametrize("name", [BuiltInScore.FGD, BuiltInScore.FRUGAL])
def test_fragmentation_keeps_whole_gpus_for_pods_that_request_them(name):
    parts = [shared(pod(f"old{i}", 0, queue="q", node="a"), "0.5", group="g") for i in range(1)]
    waits = [shared(pod("half", 0, queue="q"), "0.5"), pod("one", 1, queue="q", created=9)]
    nodes = (node("a", 2), node("b", 1))
    plan = cluster(queue("q", 64), *nodes, parts, waits, scores=(WeightedScore(name),)).plan()
    assert placed(plan)["half"] == "a"
    [group] = [p.gpus[0].group for g in plan.placements for p in g.pods if p.gpus]
    assert group == "g"


DEFAULT = {"default_scores": (WeightedScore(BuiltInScore.FRUGAL),)}


def test_gangs_with_whole_gpus_keep_to_few_nodes_by_default():
    """By score each of its pods would go to the node that has few cores left."""
    heavy = pod("heavy", 1, queue="q", requests={"cpu": "40"}, created=9)
    nodes = node("a-short", 2, cpu="8"), node("b-short", 2, cpu="8"), node("c", 4)
    gang = job_with_pods("j", 4, 1, queue="q")
    found = placed(cluster(queue("q", 64), *nodes, gang, heavy, **DEFAULT).plan())
    assert {row for name, row in found.items() if name != "heavy"} == {"c"}
    named = {"scores": (WeightedScore(BuiltInScore.FRUGAL),)}
    found = placed(cluster(queue("q", 64), *nodes, gang, heavy, **named).plan())
    assert {row for name, row in found.items() if name != "heavy"} == {"a-short", "b-short"}


@pytest.mark.parametrize("chosen", [{"scores": each} for each in SCORES] + [DEFAULT], ids=str)
@pytest.mark.parametrize("pods", [1, 3])
def test_pods_without_devices_leave_gpu_nodes_alone_while_others_have_capacity(chosen, pods):
    nodes = node("a", 8), node("b", 0, cpu="3"), node("c", 8)
    world = cluster(queue("q", 64), *nodes, job_with_pods("j", pods, 0, queue="q"), **chosen)
    assert set(placed(world.plan()).values()) == {"b"}
    bigger = cluster(queue("q", 64), *nodes, job_with_pods("j", 4, 0, queue="q"), **chosen)
    assert len(placed(bigger.plan())) == 4


def test_pods_without_devices_take_the_cores_of_gpu_nodes_that_gpus_can_spare():
    """The others would be packed onto the node with the fewest cores left."""
    heavy = [pod(f"h{i}", 1, queue="q", created=9, requests={"cpu": "8"}) for i in range(4)]
    light = pod("light", 0, queue="q", requests={"cpu": "4"})
    nodes = node("a", 2, cpu="16"), node("b", 2, cpu="20"), node("c", 0, cpu="3")
    found = placed(cluster(queue("q", 64), *nodes, heavy, light, **DEFAULT).plan())
    assert found["light"] == "b"
    assert len(found) == 5


def test_gangs_without_devices_go_where_few_nodes_hold_them_by_default():
    nodes = node("a", 8), node("b", 0, cpu="2"), node("c", 0, cpu="4")
    gang = job_with_pods("j", 4, 0, queue="q")
    found = placed(cluster(queue("q", 64), *nodes, gang, **DEFAULT).plan())
    assert set(found.values()) == {"c"}


def test_single_pods_placed_together_go_where_they_go_one_by_one(monkeypatch):
    nodes = [node(f"n{i}", i % 5, cpu=str(9 + 7 * i)) for i in range(8)]
    pods = [
        pod(f"p{i:02d}", i // 24, queue="q", created=i, requests={"cpu": "3"}) for i in range(48)
    ]
    together = placed(cluster(queue("q", 64), nodes, pods, **DEFAULT).plan())
    monkeypatch.setattr(EquivalentGangs, "place_batch", lambda self: False)
    assert placed(cluster(queue("q", 64), nodes, pods, **DEFAULT).plan()) == together
    assert len(together) > 30


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_nodes_in_the_same_state_are_scored_once(scores, monkeypatch):
    nodes = [node(f"n{i:02}", 4, cpu="16" if i % 2 else "64") for i in range(30)]
    running = [pod(f"run-{i}", 1 + i % 2, queue="team", node=f"n{i:02}") for i in range(20)]
    waiting = [pod(f"new-{i}", i, queue="team") for i in range(4)]
    trial = statement_of(cluster(*nodes, *running, *waiting, queue("team", 100)))
    scoring = Scoring.for_snapshot(scores, trial.snapshot, StaticFits())
    scored = scoring.nodes(trial, Capacity.IDLE)
    score_of, scored_together = ScoredNodes._score_of, []

    def counted(self, shape, rows, *free):
        scored_together.append(len(rows))
        return score_of(self, shape, rows, *free)

    monkeypatch.setattr(ScoredNodes, "_score_of", counted)
    for each in (each.pending[0] for each in trial.snapshot.gangs.values() if each.pending):
        found = scored.scores(each.shape)
        for row in range(len(nodes)):
            free = scored._free(np.array([row])), scored._free_milli[[row]]
            assert found[row] == score_of(scored, each.shape, np.array([row]), *free)[0]
    assert scored_together == [4] * len(waiting)
