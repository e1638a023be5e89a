"""Spare nodes of a queue: only gangs that lost pods use them, and after all other nodes."""

import pytest
from msgspec.structs import replace

from kai_py.api.queue import InvalidQueueError, read_queue
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Owner
from kai_py.observe.queue_explanation import explain_queue
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.policy.spares import StartedGangs
from tests.support.executed_plans import carry_out
from tests.support.scenario import cluster, evicted, job, node, nominated, placed, pod, queue
from tests.support.worlds import gang

SPARE = {"kai/spare": "team"}
SELECTOR = {"matchLabels": SPARE}


def nodes(*names):
    return [node(name, 1) for name in names]


def spare(name="spare"):
    return node(name, 1, labels=SPARE)


def worker(number, owner, **options):
    return pod(f"w{number}", 1, owner=owner, **options)


def started(size=2, owner_queue="team", **spec):
    owner = job("train", size, owner_queue)
    world = cluster(
        queue("team", 8, spares=SELECTOR, **spec),
        nodes("a", "b"),
        spare(),
        owner,
        [worker(i, owner) for i in range(size)],
    )
    carry_out(world, world.plan())
    world.plan()
    return world, owner


def left(world):
    return [each.metadata.name for each in world.all("nodes")]


def lose(world, owner, name, number):
    """A node fails under a worker, which its Job creates again."""
    world.remove(world.get("nodes", name, ""))
    world.remove(*(each for each in world.all("pods") if each.spec.node_name == name))
    world.add(worker(number, owner))


def test_a_gang_that_starts_or_grows_uses_no_spare():
    world = cluster(queue("team", 8, spares=SELECTOR), nodes("a"), spare(), pod("p", queue="team"))
    world.add(pod("q", queue="team"))
    plan = world.plan()
    assert len(placed(plan)) == 1
    assert "spare" not in placed(plan).values()
    [waiting] = plan.unplaced
    assert "1 node is a spare that only repairs of their queues use" in waiting.message


def test_a_gang_that_lost_a_node_uses_the_spare():
    world, owner = started()
    lose(world, owner, "b", 7)
    assert placed(world.plan()) == {"w7": "spare"}


@pytest.mark.parametrize("reserved", [False, True])
def test_an_equal_pod_that_may_not_use_the_spare_keeps_no_repair_from_it(reserved):
    """Also while a node is reserved: the answer of one is not that of the other."""
    world, owner = started()
    world.add(pod("first", queue="team", created=-10, preemption_policy="Never"))
    if reserved:
        world.add(queue("large", 8, reserveAfter="5m"), node("r", 2))
        world.add(pod("old", queue="team", node="r"), pod("big", 2, queue="large"))
    lose(world, owner, "b", 7)
    plan = world.plan(1000.0)
    assert ("r" in plan.promised_nodes) is reserved
    assert placed(plan) == {"w7": "spare"}
    assert evicted(plan) == []


def test_other_nodes_come_first():
    world, owner = started()
    lose(world, owner, "b", 7)
    world.add(node("c", 1))
    assert placed(world.plan()) == {"w7": "c"}


def test_a_gang_that_restarts_whole_uses_the_spare():
    world, owner = started(size=1)
    [only] = world.all("pods")
    lose(world, owner, only.spec.node_name, 7)
    world.remove(*(world.get("nodes", name, "") for name in "ab" if name in left(world)))
    assert placed(world.plan()) == {"w7": "spare"}


def test_spares_are_of_the_queue_and_of_those_below_it():
    for own, may in (("child", True), ("other", False)):
        owner = job("train", 1, own)
        world = cluster(
            queue("team", 8, spares=SELECTOR),
            queue("child", 8, parent="team"),
            queue("other", 8),
            nodes("a"),
            spare(),
            owner,
            worker(0, owner),
        )
        carry_out(world, world.plan())
        world.plan()
        lose(world, owner, "a", 7)
        assert placed(world.plan()) == ({"w7": "spare"} if may else {})


def test_a_gang_that_was_evicted_for_another_does_not_repair():
    owner = job("train", 1, "team")
    world = cluster(
        queue("team", 1, spares=SELECTOR), nodes("a"), spare(), owner, worker(0, owner, priority=1)
    )
    carry_out(world, world.plan())
    world.plan()
    world.add(pod("urgent", queue="team", priority=9, created=5))
    assert evicted(world.plan()) == ["w0"]
    world.remove(world.get("pods", "w0"))
    running_now = pod("urgent", queue="team", priority=9, created=5, node="a")
    world.add(running_now, worker(1, owner, priority=1, created=6))
    assert placed(world.plan()) == {}


def test_what_was_tried_without_spares_is_undone_before_they_are_used():
    """Without the spare, which is to be reclaimed, the larger pod fits and the smaller does not."""
    owner = job("train", 2, "team")
    world = cluster(
        queue("team", 8, spares=SELECTOR),
        queue("guest", 0),
        node("a", 3),
        spare(),
        owner,
        [pod(f"w{gpus}", gpus, owner=owner) for gpus in (2, 1)],
        pod("taken", queue="guest", node="spare"),
    )
    carry_out(world, world.plan())
    world.plan()
    lost = [each for each in world.all("pods") if each.spec.node_name == "a"]
    world.remove(world.get("nodes", "a", ""), *lost).add(node("b", 2))
    world.add([pod(f"again{gpus}", gpus, owner=owner) for gpus in (2, 1)])
    plan = world.plan()
    assert not plan.set_aside
    assert nominated(plan) == {"again2": "b", "again1": "spare"}
    assert {each.queue: each.allocated["gpu"] for each in plan.queues} == {
        "team": 3.0,
        "guest": 0.0,
    }


def group(name, node=""):
    """One of several gangs of one owner, as a LeaderWorkerSet makes them."""
    owner = Owner("v1", "LeaderWorkerSet", "default", "serve", "uid")
    return replace(gang(f"serve-{name}", pods=1, node=node), owner=owner)


def test_a_group_that_is_new_does_not_repair_because_another_one_runs():
    started = StartedGangs()
    started.observe([group(0, "a")], 0.0)
    started.observe([group(0, "a"), group(1)], 10.0)
    assert not started.repairs(group(1))
    started.observe([group(0), group(1)], 20.0)
    assert started.repairs(group(0))
    assert not started.repairs(group(1))


def test_a_group_that_was_evicted_does_not_repair_because_another_one_runs():
    started = StartedGangs()
    started.observe([group(0, "a"), group(1, "b")], 0.0)
    started.record_evicted([group(1, "b")], 0.0)
    started.observe([group(0, "a"), group(1)], 10.0)
    assert not started.repairs(group(1))
    started.observe([group(0), group(1)], 20.0)
    assert started.repairs(group(0))


@pytest.mark.parametrize("was_evicted", [True, False])
def test_a_gang_in_place_of_one_that_is_gone_counts_as_that_one(was_evicted):
    """A RayJob that starts again has a cluster, and so a gang, of another name."""
    started = StartedGangs()
    started.observe([group("first", "a")], 0.0)
    if was_evicted:
        started.record_evicted([group("first", "a")], 0.0)
    for now in (10.0, 1000.0, 1900.0):
        started.observe([group("second"), group("third")], now)
        assert started.repairs(group("second")) is not was_evicted
        assert not started.repairs(group("third"))
    started.observe([], 3000.0)
    started.observe([group("second")], 3001.0)
    assert not started.repairs(group("second"))


def test_an_error_in_what_is_computed_does_not_make_gangs_forgotten():
    memory = CycleMemory(ClusterDevices())
    memory.started.observe([group(0, "a")], 0.0)
    memory.forget_results()
    assert memory.started.repairs(group(0))


def test_after_a_restart_of_the_scheduler_a_gang_is_known_by_what_is_left_of_it():
    world, owner = started()
    lose(world, owner, "b", 7)
    again = cluster(*world.all())
    assert placed(again.plan()) == {"w7": "spare"}


def test_many_equal_pods_leave_the_spares_alone():
    pods = [pod(f"p{i}", queue="team") for i in range(40)]
    world = cluster(queue("team", 80, spares=SELECTOR), node("a", 32), spare(), pods)
    assert set(placed(world.plan()).values()) == {"a"}


def test_the_explanation_of_the_queue_names_its_spares():
    world, _ = started()
    explained = explain_queue(world.snapshot(), world.plan(), "team")
    assert "Spare nodes, which only repairs use: spare." in explained.sentences


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, {"matchExpressions": []}])
def test_a_selector_of_all_nodes_is_refused(selector):
    document = {"metadata": {"name": "team"}, "spec": {"spares": selector}}
    with pytest.raises(InvalidQueueError, match="set matchLabels or matchExpressions"):
        read_queue(document)


def test_expressions_select_spares():
    selector = {"matchExpressions": [{"key": "kai/spare", "operator": "Exists"}]}
    world = cluster(queue("team", 8, spares=selector), spare(), pod("p", queue="team"))
    assert placed(world.plan()) == {}
