"""Gangs on a node that is about to go are treated by what they declare; nothing new goes there."""

import pytest
from msgspec.structs import replace

from kai_py.api.node_departures import DepartureRules, DepartureTreatment
from kai_py.api.records.core import Condition
from kai_py.api.records.node import NodeSystemInfo, Taint
from kai_py.api.records.policy import PodDisruptionBudget
from kai_py.api.times import format_time
from kai_py.relevance import affects_plan
from tests.support.records import from_json
from tests.support.scenario import START, at, cluster, evicted, job, node, placed, pod, queue

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


def test_a_pod_that_nothing_creates_again_runs_until_its_node_goes():
    plan = small_world(pod("alone", 4, queue="q", node="a")).plan()
    assert evicted(plan) == []
    assert plan.at_risk[0].message == (
        "node a is about to go (taint karpenter.sh/disrupted); the gang runs until then, as its "
        "pods would not be created again"
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
    first = small_world([owner, *pods]).plan(NOW)
    (request,) = first.checkpoints
    assert [each.name for each in request.pods] == ["train-0", "train-1"]
    assert request.by == START + NOW + 60
    waiting = [asked(each, NOW + 60) for each in pods]
    plan = small_world([owner, *waiting]).plan(NOW)
    assert not plan.checkpoints
    assert not plan.evictions
    assert plan.at_risk == first.at_risk, "another message would be another event"


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
    assert ("its pods have saved their work" in plan.evictions[0].reason) is done
    assert ("had time to save their work" in plan.evictions[0].reason) is not done


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


def booted(name, boot, **options):
    each = node(name, 8, **options)
    return replace(each, status=replace(each.status, node_info=NodeSystemInfo(boot)))


def rebooting(*objects):
    """A world whose node a is rebooted after all else is known."""
    world = cluster(queue("q", 64), booted("a", "1"), node("b", 8), node("spare", 8), *objects)
    return world.add(booted("a", "2"))


def test_a_gang_whose_node_was_deleted_restarts_whole_at_once():
    world = cluster(queue("q", 64), node("a", 8), node("b", 8), train(["a", "b"]))
    assert evicted(world.plan()) == []
    plan = world.remove(node("a", 8)).plan()
    assert evicted(plan) == ["train-0", "train-1"]
    assert plan.evictions[0].reason == "node a was deleted; the gang restarts whole"


def test_a_node_that_comes_back_is_not_deleted():
    world = cluster(queue("q", 64), node("a", 8), node("b", 8), train(["a", "b"]))
    world.remove(node("a", 8)).add(node("a", 8))
    assert evicted(world.plan()) == []


def test_a_node_of_another_pool_was_not_deleted():
    each = node("a", 8)
    world = cluster(queue("q", 64), each, node("b", 8), train(["a", "b"]))
    moved = replace(each, metadata=replace(each.metadata, labels={"pool": "other"}))
    assert evicted(world.add(moved).plan()) == []


def test_a_gang_one_of_whose_nodes_was_rebooted_restarts_whole():
    plan = rebooting(train(["a", "b"])).plan()
    assert evicted(plan) == ["train-0", "train-1"]
    assert plan.evictions[0].reason == "node a was rebooted; the gang restarts whole"


@pytest.mark.parametrize("boots", [("2",), ("", "2")], ids=["at once", "known later"])
def test_a_node_that_was_made_again_under_its_name_was_rebooted(boots):
    world = cluster(queue("q", 64), booted("a", "1"), node("b", 8), train(["a", "b"]))
    world.remove(booted("a", "1"))
    for boot in boots:
        world.add(booted("a", boot))
    assert evicted(world.plan()) == ["train-0", "train-1"]


def test_a_reboot_is_relevant():
    assert affects_plan(booted("a", "1"), booted("a", "2"))


@pytest.mark.parametrize("marks", [{MINIMUM: "1"}, {"scheduling.kai.io/on-pod-loss": "replace"}])
def test_what_works_without_rebooted_pods_goes_on(marks):
    assert evicted(rebooting(train(["a", "b"], **marks)).plan()) == []


def test_a_gang_on_the_rebooted_node_alone_starts_again_by_itself():
    assert evicted(rebooting(train(["a", "a"])).plan()) == []


def drained(each, reason="EvictionByEvictionAPI"):
    found = (Condition(type="DisruptionTarget", status="True", reason=reason),) if reason else ()
    meta = replace(each.metadata, deletion_timestamp=at(NOW))
    return replace(each, metadata=meta, status=replace(each.status, conditions=found))


def draining(reason="EvictionByEvictionAPI", gone=False, settings=None, **annotations):
    owner, first, *others = train(["a", "b"], **annotations)
    world = small_world(owner, first, others, taints=(), **(settings or {}))
    world.plan()
    world.add(drained(first, reason))
    return world.remove(first) if gone else world


@pytest.mark.parametrize("gone", [False, True])
def test_the_rest_of_a_gang_that_is_drained_restarts_at_once(gone):
    plan = draining(gone=gone).plan()
    assert evicted(plan) == ["train-1"]
    assert plan.evictions[0].reason == (
        "pod default/train-0 on node a ends (EvictionByEvictionAPI); the gang restarts whole"
    )


def test_a_pod_that_its_user_deletes_is_replaced():
    assert evicted(draining(reason="").plan()) == []


def test_a_drain_leaves_a_gang_that_works_on():
    assert evicted(draining(**{MINIMUM: "1"}).plan()) == []


def test_a_gang_that_may_wait_for_ever_is_left_alone():
    marks = {"scheduling.kai.io/on-pod-loss": "replace"}
    assert evicted(draining(**marks).plan()) == []


def test_the_configuration_may_leave_it_to_the_grace_period():
    rules = DepartureRules(restart_whole=False)
    assert evicted(draining(settings={"departures": rules}).plan()) == []


def test_our_own_evictions_are_no_drain():
    owner, first, *others = train(["a", "b"])
    world = small_world(owner, first, others, taints=())
    world.builder.expect_eviction(first.metadata.uid)
    world.add(drained(first))
    assert evicted(world.plan()) == []
