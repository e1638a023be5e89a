"""Gangs on a node that is about to go are treated by what they declare; nothing new goes there."""

import pytest
from msgspec.structs import replace

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.records.core import Condition, Taint
from kai_py.api.records.disruption import PodDisruptionBudget
from kai_py.api.records.resource_versions import from_json
from kai_py.api.times import format_time
from kai_py.plan.departure_rules import DepartureRules
from kai_py.relevance import affects_plan
from tests.support.scenario import START, cluster, evicted, job, node, placed, pod, queue

DEPARTURE = "scheduling.kai.io/on-node-departure"
MINIMUM = "scheduling.kai.io/min-available"
GONE = (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)
LOST = (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),)
NOW = 1000.0


def train(pods_on, **annotations):
    """A Job with a pod of four GPUs on each of these nodes."""
    owner = job("train", len(pods_on), "q", **annotations)
    return [
        owner,
        *(pod(f"train-{n}", 4, owner=owner, node=where) for n, where in enumerate(pods_on)),
    ]


def small_world(*objects, taints=GONE, spare=8, **settings):
    return cluster(
        queue("q", 64),
        node("a", 8, taints=taints),
        node("b", 8),
        node("spare", spare),
        *objects,
        **settings,
    )


def relocations(plan):
    return {each.pod.name: each.relocated_to for each in plan.evictions}


def asked(each, by, done=False):
    notes = {"scheduling.kai.io/checkpoint-by": format_time(START + by)}
    notes |= {"scheduling.kai.io/checkpointed": format_time(START + by)} if done else {}
    meta = replace(each.metadata, annotations={**each.metadata.annotations, **notes})
    return replace(each, metadata=meta)


@pytest.mark.parametrize("treatment", ["move", "shrink", None])
def test_a_gang_that_needs_all_pods_is_moved_whole(treatment):
    marks = {DEPARTURE: treatment} if treatment else {}
    plan = small_world(train(["a", "b"], **marks)).plan()
    assert set(relocations(plan)) == {"train-0", "train-1"}
    assert "a" not in relocations(plan).values()
    assert all(relocations(plan).values())
    assert plan.evictions[0].reason == (
        "node a is about to go (taint karpenter.sh/disrupted); the gang is moved whole"
    )


@pytest.mark.parametrize("treatment", ["move", "shrink"])
def test_a_gang_that_does_not_fit_elsewhere_runs_on_and_says_so(treatment):
    plan = small_world(train(["a", "a", "b", "b"], **{DEPARTURE: treatment}), spare=0).plan()
    assert evicted(plan) == []
    assert [each.message for each in plan.at_risk] == [
        "node a is about to go (taint karpenter.sh/disrupted); the gang runs until then, as it "
        "does not fit on other nodes"
    ]


def test_an_elastic_gang_shrinks_to_the_pods_elsewhere():
    plan = small_world(train(["a", "b"], **{MINIMUM: "1"})).plan()
    assert evicted(plan) == ["train-0"]


def test_an_elastic_gang_that_asks_for_it_moves_whole():
    plan = small_world(train(["a", "b"], **{MINIMUM: "1", DEPARTURE: "move"})).plan()
    assert evicted(plan) == ["train-0", "train-1"]


def test_a_gang_that_goes_down_with_its_node_runs_until_then():
    plan = small_world(train(["a", "b"], **{DEPARTURE: "go-down"})).plan()
    assert evicted(plan) == []
    assert plan.at_risk[0].message.endswith("the gang runs until then")


def test_what_no_workload_says_the_configuration_does():
    rules = DepartureRules(DepartureTreatment.GO_DOWN)
    assert evicted(small_world(train(["a", "b"]), departures=rules).plan()) == []


def test_a_checkpoint_is_asked_for_once_and_waited_for():
    owner, *pods = train(["a", "b"], **{DEPARTURE: "checkpoint"})
    (request,) = small_world([owner, *pods]).plan(NOW).checkpoints
    assert [each.name for each in request.pods] == ["train-0", "train-1"]
    assert request.by == START + NOW + 60
    waiting = [asked(each, NOW + 60) for each in pods]
    plan = small_world([owner, *waiting]).plan(NOW)
    assert not plan.checkpoints
    assert not plan.evictions


def test_the_workload_says_how_long_a_checkpoint_takes():
    marks = {DEPARTURE: "checkpoint", "scheduling.kai.io/checkpoint-grace": "5m"}
    (request,) = small_world(train(["a", "b"], **marks)).plan(NOW).checkpoints
    assert request.by == START + NOW + 300


@pytest.mark.parametrize(("by", "done"), [(NOW - 1, False), (NOW + 60, True)])
@pytest.mark.parametrize("spare", [0, 8])
def test_after_its_checkpoint_a_gang_goes_whole_even_if_it_has_to_wait(by, done, spare):
    owner, *pods = train(["a", "b"], **{DEPARTURE: "checkpoint"})
    pods = [asked(each, by, done) for each in pods]
    plan = small_world([owner, *pods], spare=spare).plan(NOW)
    assert evicted(plan) == ["train-0", "train-1"]


def test_the_end_of_a_checkpoint_wakes_the_scheduler():
    owner, *pods = train(["a", "b"], **{DEPARTURE: "checkpoint"})
    world = small_world([owner, *(asked(each, NOW + 30) for each in pods)])
    world.plan(NOW)
    assert world.memory.wake_at == START + NOW + 30


def test_an_old_request_is_not_taken_for_a_new_one():
    owner, *pods = train(["a", "b"], **{DEPARTURE: "checkpoint"})
    plan = small_world([owner, *(asked(each, NOW - 3600) for each in pods)]).plan(NOW)
    assert plan.checkpoints
    assert not plan.evictions


def test_a_gang_on_a_lost_node_restarts_whole_at_once():
    plan = small_world(train(["a", "b"]), taints=LOST, spare=0).plan()
    assert evicted(plan) == ["train-0", "train-1"]
    assert plan.evictions[0].reason == (
        "node a is lost (taint node.kubernetes.io/unreachable); the gang restarts whole"
    )


def test_of_a_gang_that_works_without_them_only_lost_pods_go():
    plan = small_world(train(["a", "b"], **{MINIMUM: "1"}), taints=LOST).plan()
    assert evicted(plan) == ["train-0"]


def test_a_disruption_budget_protects_the_gang():
    document = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "train"}}},
        "status": {"disruptionsAllowed": 1},
    }
    owner = job("train", 2, "q")
    pods = [
        pod(f"train-{n}", 4, owner=owner, node=where, labels={"app": "train"})
        for n, where in enumerate("ab")
    ]
    budget = from_json(PodDisruptionBudget, document)
    plan = small_world([owner, *pods], budget).plan()
    assert evicted(plan) == []
    assert "PodDisruptionBudget" in plan.at_risk[0].message


def test_nothing_new_goes_to_such_a_node_whatever_it_tolerates():
    waiting = pod("new", 8, queue="q", tolerations=())
    world = cluster(queue("q", 8), node("a", 8, taints=GONE), waiting)
    plan = world.plan()
    assert placed(plan) == {}
    gone = node("b", 8, labels={"cloud.google.com/active-node-maintenance": "ONGOING"})
    plan = cluster(queue("q", 8), gone, waiting).plan()
    assert placed(plan) == {}
    assert "about to go (label cloud.google.com/active-node-maintenance=ONGOING)" in (
        plan.unplaced[0].message
    )


def suspicious(name, status="True"):
    each = node(name, 8)
    found = (*each.status.conditions, Condition(type="KernelDeadlock", status=status))
    return replace(each, status=replace(each.status, conditions=found))


def test_nodes_that_may_go_come_last_but_are_used():
    alone = pod("new", 8, queue="q")
    assert placed(cluster(queue("q", 8), suspicious("a"), node("b", 8), alone).plan()) == {
        "new": "b"
    }
    assert placed(cluster(queue("q", 8), suspicious("a"), alone).plan()) == {"new": "a"}


def test_a_condition_that_appears_is_relevant_and_counts():
    before, after = suspicious("a", "False"), suspicious("a")
    assert affects_plan(before, after)
    world = cluster(queue("q", 16), before, node("b", 8))
    world.add(after, pod("new", 8, queue="q"))
    assert placed(world.plan()) == {"new": "b"}


def test_a_treatment_that_does_not_exist_is_told():
    world = cluster(queue("q", 8), node("b", 8), train([""], **{DEPARTURE: "fly"}))
    assert f"{DEPARTURE} must be one of" in world.plan().unplaced[0].message
