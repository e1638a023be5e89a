"""What a tenant gains by what it writes on its own objects: nothing."""

from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.plan.plan import Stage
from tests.support.scenario import cluster, job_with_pods, node, placed, pod, queue

MINE = {"namespaces": {"names": ["default"]}}
VICTIMS = {"namespaces": {"names": ["victims"]}}


def of(namespace, objects):
    """The same objects in another namespace."""
    listed = objects if isinstance(objects, list) else [objects]
    return [replace(o, metadata=replace(o.metadata, namespace=namespace)) for o in listed]


def victims(count, **options):
    return of("victims", job_with_pods("work", count, queue="victims", **options))


def two_queues(maximum=4.0):
    return [queue("mine", 4, 4, **MINE), queue("victims", 4, maximum, **VICTIMS)]


def test_a_pod_on_no_node_charges_nothing():
    ghost = pod("ghost", 1000, queue="q", node="ghost-node")
    world = cluster(queue("q", 2, 2), node("a", 2), ghost, pod("late", 2, queue="q"))
    assert placed(world.plan()) == {"late": "a"}
    world.remove(pod("late", 2, queue="q"))
    arrived = world.add(node("ghost-node", 1000), pod("later", 2, queue="q")).plan()
    assert [told.stage for told in arrived.unplaced] == [Stage.QUEUE_MAX]
    world.remove(node("ghost-node"))
    assert placed(world.plan()) == {"later": "a"}


def test_the_order_in_which_pods_and_nodes_arrive_is_of_no_importance():
    running, late = pod("r", 2, queue="q", node="a"), pod("late", 1, queue="q")
    for objects in ((node("a", 4), running), (running, node("a", 4))):
        plan = cluster(*objects, queue("q", 2, 2), late).plan()
        assert [told.stage for told in plan.unplaced] == [Stage.QUEUE_MAX]


def test_a_closed_queue_is_not_charged_for_pods_of_others():
    posing = [pod(f"p{i}", 1, queue="victims", node="a") for i in range(4)]
    world = cluster(two_queues(), node("a", 8), posing, victims(4))
    assert len(placed(world.plan())) == 4
    snapshot = world.snapshot()
    assert not snapshot.queue_allocated.get("victims", {}).get("gpu")


def test_demand_for_a_closed_queue_gives_it_no_share():
    asking = [pod(f"p{i}", 1, queue="victims") for i in range(4)]
    world = cluster(two_queues(), node("a", 8), asking)
    plan = world.plan()
    assert not placed(plan)
    assert {told.stage for told in plan.unplaced} == {Stage.INVALID}
    assert not world.snapshot().queue_requested.get("victims", {}).get("gpu")


def test_a_rule_or_a_label_that_changes_counts_at_once():
    running = pod("r", 4, queue="q", node="a")
    world = cluster(queue("q", 4, 4), node("a", 8), running, pod("late", 1, queue="q"))
    assert world.plan().unplaced
    selecting = {"namespaces": {"selector": {"matchLabels": {"team": "ml"}}}}
    world.add(queue("q", 4, 4, **selecting))
    assert not world.snapshot().queue_allocated["q"].get("gpu")
    meta = ObjectMeta(name="default", uid="ns", labels={"team": "ml"})
    world.builder.apply("namespaces", None, PartialObjectMetadata(metadata=meta))
    assert world.snapshot().queue_allocated["q"]["gpu"] == 4
    assert world.plan().unplaced
