"""Queues and workloads choose whether they use spot nodes; fallback, budget, and the way back."""

import pytest
from msgspec.structs import replace

from kai_py.api.queue import InvalidQueueError, read_queue
from kai_py.api.records.core import Condition
from kai_py.config import parse_configuration
from kai_py.planner import Planner
from kai_py.policy.lost_work import LossRules
from tests.support.scenario import START, at, cluster, evicted, job, node, placed, pod, queue

SPOT = "scheduling.kai.io/spot"
AFTER = "scheduling.kai.io/spot-fallback-after"
KARPENTER = {"karpenter.sh/capacity-type": "spot"}


def work(name, pods=1, gpus=8, where="", in_queue="q", **annotations):
    owner = job(name, pods, in_queue, **annotations)
    return [owner, *(pod(f"{name}-{n}", gpus, owner=owner, node=where) for n in range(pods))]


def nodes(spot=1, fixed=1):
    return [
        *(node(f"spot-{n}", 8, labels=KARPENTER) for n in range(spot)),
        *(node(f"fixed-{n}", 8) for n in range(fixed)),
    ]


def world(*objects, spec=None, spot=1, fixed=1, **settings):
    return cluster(queue("q", 64, **(spec or {})), nodes(spot, fixed), *objects, **settings)


@pytest.mark.parametrize(
    ("use", "expected"), [("prefer", "spot-0"), ("only", "spot-0"), ("never", "fixed-0")]
)
def test_the_workload_or_its_queue_chooses(use, expected):
    assert placed(world(work("a", **{SPOT: use})).plan()) == {"a-0": expected}
    assert placed(world(work("a"), spec={"spot": use}).plan()) == {"a-0": expected}


def test_queues_below_choose_as_the_one_above():
    parent = queue("top", 64, spot="only")
    child = queue("q", 64, parent="top")
    plan = cluster(parent, child, nodes(), work("a")).plan()
    assert placed(plan) == {"a-0": "spot-0"}


@pytest.mark.parametrize(("use", "spot", "fixed"), [("only", 0, 1), ("never", 1, 0)])
def test_other_nodes_are_not_used_and_the_reason_is_told(use, spot, fixed):
    plan = world(work("a", **{SPOT: use}), spot=spot, fixed=fixed).plan()
    assert placed(plan) == {}
    said = {"only": "1 weren't spot nodes, the only ones that", "never": "1 were spot nodes"}
    assert said[use] in plan.unplaced[0].message


def test_a_preference_is_none_where_there_is_no_other_node():
    assert placed(world(work("a", **{SPOT: "prefer"}), spot=0).plan()) == {"a-0": "fixed-0"}


@pytest.mark.parametrize(
    "label",
    [
        {"eks.amazonaws.com/capacityType": "SPOT"},
        {"cloud.google.com/gke-spot": "true"},
        {"cloud.google.com/gke-preemptible": "true"},
        {"kubernetes.azure.com/scalesetpriority": "spot"},
    ],
)
def test_spot_nodes_are_known_by_the_labels_of_clouds(label):
    on_demand = dict.fromkeys(label, "ON_DEMAND")
    plan = cluster(
        queue("q", 64),
        node("a", 8, labels=on_demand),
        node("b", 8, labels=label),
        work("a", **{SPOT: "only"}),
    ).plan()
    assert placed(plan) == {"a-0": "b"}


def test_a_workload_does_not_contradict_its_queue():
    plan = world(work("a", **{SPOT: "never"}), spec={"spot": "only"}).plan()
    assert placed(plan) == {}
    assert 'spec.spot of queue "q" or of one above it is only' in plan.unplaced[0].message


def test_fallback_comes_after_its_time_and_wakes_the_scheduler():
    marks = {SPOT: "only", AFTER: "20m"}
    one = world(work("a", **marks), spot=0)
    early = one.plan(1000.0)
    assert placed(early) == {}
    assert "It may use on-demand nodes from " in early.unplaced[0].message
    assert "after waiting 20m." in early.unplaced[0].message
    assert one.memory.wake_at == START + 1200.0
    assert placed(one.plan(1200.0)) == {"a-0": "fixed-0"}


def test_a_workload_cannot_shorten_the_fallback_of_its_queue():
    spec = {"spot": "only", "spotFallback": {"after": "30m"}}
    assert placed(world(work("a", **{AFTER: "1s"}), spec=spec, spot=0).plan(1000.0)) == {}
    assert placed(world(work("a", **{AFTER: "2h"}), spec=spec, spot=0).plan(1900.0)) == {}
    assert placed(world(work("a"), spec=spec, spot=0).plan(1900.0)) == {"a-0": "fixed-0"}


@pytest.mark.parametrize(("own", "expected"), [({"after": "30m"}, {}), (None, {"a-0": "fixed-0"})])
def test_the_fallback_of_the_nearest_queue_counts(own, expected):
    parent = queue("top", 64, spot="only", spotFallback={"after": "1m"})
    child = queue("q", 64, parent="top", **({"spotFallback": own} if own else {}))
    assert placed(cluster(parent, child, nodes(spot=0), work("a")).plan(600.0)) == expected


def test_a_queue_that_says_only_allows_no_fallback_of_workloads():
    plan = world(work("a", **{AFTER: "1s"}), spec={"spot": "only"}, spot=0).plan(9000.0)
    assert placed(plan) == {}


def test_the_budget_of_the_fallback_counts_what_fell_back():
    spec = {"spot": "only", "spotFallback": {"after": "1m", "maxGPUs": 16}}
    running = work("r", where="fixed-0")
    plan = world(running, work("a"), work("b"), spec=spec, spot=0, fixed=3).plan(9000.0)
    assert len(placed(plan)) == 1
    assert 'maxGPUs of spotFallback of queue "q" is used' in plan.unplaced[0].message


def test_the_fallback_is_told_to_those_that_lack_capacity_only():
    waits = work("a", **{SPOT: "only", AFTER: "1h"})
    [short] = world(waits, spot=0).plan(1000.0).unplaced
    [over] = world(waits, spec={"deservedGPUs": 4, "maxGPUs": 4}).plan(1000.0).unplaced
    assert "It may use on-demand nodes from" in short.message
    assert "on-demand" not in over.message


def test_spot_nodes_come_first_after_the_fallback():
    marks = {SPOT: "only", AFTER: "1s"}
    assert placed(world(work("a", **marks)).plan()) == {"a-0": "spot-0"}


CHECKPOINTS = {"scheduling.kai.io/checkpoint-interval": "10m"}
LOSS = LossRules(restart_cost=60.0)


def started(each, second=0.0):
    scheduled = Condition(type="PodScheduled", status="True", last_transition_time=at(second))
    return replace(each, status=replace(each.status, conditions=(scheduled,)))


def fallen_back(**annotations):
    owner, *pods = work("a", where="fixed-0", **{SPOT: "only", AFTER: "1s"}, **annotations)
    return [owner, *map(started, pods)]


@pytest.mark.parametrize(
    ("marks", "now", "moves"),
    [
        (CHECKPOINTS, 3600.0, True),
        ({}, 3600.0, False),
        ({"scheduling.kai.io/expected-runtime": "10h"}, 3600.0, True),
        ({"scheduling.kai.io/expected-runtime": "65m"}, 3600.0, False),
    ],
)
def test_a_gang_returns_to_spot_if_that_pays(marks, now, moves):
    plan = world(fallen_back(**marks), loss_rules=LOSS).plan(now)
    assert evicted(plan) == (["a-0"] if moves else [])
    if moves:
        assert [each.relocated_to for each in plan.evictions] == ["spot-0"]


def test_a_pod_that_nothing_creates_again_does_not_return():
    marks = {SPOT: "only", AFTER: "1s", **CHECKPOINTS}
    alone = pod("alone", 8, queue="q", node="fixed-0", annotations=marks)
    assert evicted(world(started(alone), loss_rules=LOSS).plan(3600.0)) == []


@pytest.mark.parametrize(("runtime", "moves"), [("75m", False), ("10h", True)])
def test_the_pod_that_loses_most_decides_whether_a_return_pays(runtime, moves):
    marks = {SPOT: "only", AFTER: "1s", "scheduling.kai.io/expected-runtime": runtime}
    owner, old, new = work("a", pods=2, gpus=4, where="fixed-0", **marks)
    plan = world(owner, started(old), started(new, 3000.0), loss_rules=LOSS).plan(3600.0)
    assert bool(evicted(plan)) is moves


def test_a_gang_stays_while_no_spot_node_is_idle():
    plan = world(fallen_back(**CHECKPOINTS), work("b", where="spot-0"), loss_rules=LOSS).plan(
        3600.0
    )
    assert evicted(plan) == []


def test_running_gangs_keep_to_their_choice_when_they_are_relocated():
    mover = work("a", pods=1, gpus=4, where="fixed-0", **{SPOT: "never"})
    plan = world(mover, work("b", **{SPOT: "never"})).plan()
    assert evicted(plan) == []
    assert placed(plan) == {}


def test_choices_leave_plans_alone_while_nothing_changes():
    one = world(work("a", **{SPOT: "only"}), spot=0)
    first = one.plan(1000.0)
    assert one.memory.settled is not None
    assert one.plan(1001.0).unplaced == first.unplaced


def test_a_queue_with_a_wrong_choice_is_refused():
    for spec in ({"spot": "maybe"}, {"spotFallback": {"after": "1m", "maxGPUs": -1}}):
        with pytest.raises(InvalidQueueError):
            read_queue({"metadata": {"name": "q"}, "spec": spec})


def test_the_labels_are_configured():
    settings = Planner(
        parse_configuration("spot: {labels: {tier: [cheap]}, priceRatio: 0.5}")
    )._settings
    assert settings.spot.labels == (("tier", ("cheap",)),)
    assert settings.spot.price_ratio == 0.5


def test_pods_on_spot_nodes_do_not_let_the_others_of_their_gang_use_other_nodes():
    marks = {SPOT: "only", "scheduling.kai.io/min-available": "1"}
    owner = job("a", 2, "q", **marks)
    first = pod("a-0", 8, owner=owner, node="spot-0")
    second = pod("a-1", 8, owner=owner)
    assert placed(world([owner, first, second]).plan()) == {}
    fallen_back = pod("a-0", 8, owner=owner, node="fixed-0")
    assert placed(world([owner, fallen_back, second], spot=0, fixed=2).plan()) == {"a-1": "fixed-1"}
