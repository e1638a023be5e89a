"""A gang that waits too long gets nodes that empty for it; only short work may use them."""

import msgspec
import pytest

from kai_py.api.records.core import PodStatus
from kai_py.plan.plan import Stage
from kai_py.snapshot.tables.queues import QueueInfo, inherited
from tests.support.records import replace
from tests.support.scenario import at, cluster, evicted, job_with_pods, node, placed, pod, queue
from tests.support.worlds import gang, world

RUNTIME = "scheduling.kai.io/expected-runtime"
LATER = 1000.0


def half_full(*more, after="5m", running="", **spec):
    """Four of eight GPUs run since second 0; a gang that wants all eight waits since then."""
    says = {RUNTIME: running} if running else {}
    return cluster(
        node("a"),
        queue("team", 8, reserveAfter=after, **spec),
        running_since_the_start("old", 4, says),
        job_with_pods("big", 8, queue="team"),
        *more,
    )


def running_since_the_start(name, gpus, says, node="a"):
    begun = pod(name, gpus, queue="team", node=node, annotations=says)
    return msgspec.structs.replace(begun, status=PodStatus(phase="Running", start_time=at(0.0)))


def small(name="small", runtime="", **options):
    says = {RUNTIME: runtime} if runtime else {}
    return pod(name, 1, queue=options.pop("queue", "team"), annotations=says, **options)


def why(plan, gang):
    return next(each for each in plan.unplaced if each.gang == gang)


def test_before_its_time_others_use_the_capacity():
    world = half_full(small(created=1))
    assert placed(world.plan(299.0)) == {"small": "a"}
    assert placed(world.plan(300.0)) == {}


def test_without_reserve_after_nothing_is_kept():
    world = cluster(
        node("a"),
        queue("team", 8),
        pod("old", 4, queue="team", node="a"),
        job_with_pods("big", 8, queue="team"),
        small(created=1),
    )
    assert placed(world.plan(1e9)) == {"small": "a"}


def test_both_sides_are_told():
    plan = half_full(small(created=1)).plan(LATER)
    assert why(plan, "default/Job/big").message.endswith(
        "Nodes are reserved for it as their pods end: a."
    )
    refused = why(plan, "default/Pod/small")
    assert refused.stage is Stage.RESERVED
    assert "1 node is reserved for gangs that have waited longer" in refused.message


@pytest.mark.parametrize(
    ("runtime", "starts"), [("33m", True), ("33m20s", True), ("34m", False), ("", False)]
)
def test_pods_that_end_before_the_start_may_use_the_capacity(runtime, starts):
    """The pod in the way ends at second 3000, which is 2000 s after the cycle."""
    world = half_full(small(runtime=runtime, created=1), running="50m")
    assert placed(world.plan(LATER)) == ({"small": "a"} if starts else {})


def test_no_pod_is_evicted_on_a_reserved_node_for_a_short_one():
    low = pod("low", 4, queue="team", node="a", priority=-1, annotations={RUNTIME: "50m"})
    low = msgspec.structs.replace(low, status=PodStatus(phase="Running", start_time=at(0.0)))
    short = small(runtime="5m", created=1)
    assert evicted(half_full(short, low, running="50m").plan(LATER)) == []
    assert evicted(half_full(short, low, running="50m", after="1h").plan(LATER)) == ["low"]


def test_where_the_start_is_unknown_short_pods_wait_too():
    assert placed(half_full(small(runtime="1m", created=1)).plan(LATER)) == {}


def test_a_pod_that_overstays_its_time_does_not_open_the_node():
    world = half_full(small(runtime="1m", created=1), running="10m")
    assert placed(world.plan(LATER)) == {}


def test_a_runtime_that_is_none_is_told_to_its_pod():
    plan = half_full(small(runtime="soon", created=1)).plan(1.0)
    refused = why(plan, "default/Pod/small")
    assert refused.stage is Stage.INVALID
    assert RUNTIME in refused.message
    assert "30s" in refused.message


def test_only_as_many_nodes_as_the_gang_takes_are_kept():
    world = half_full(small(created=1)).add(
        node("b"), pod("full", 4, queue="team", node="b"), pod("more", 1, queue="team", node="b")
    )
    assert placed(world.plan(LATER)) == {"small": "b"}


def test_the_node_that_is_free_first_is_kept():
    world = half_full(small(created=1), running="10h").add(
        node("b"), running_since_the_start("brief", 6, {RUNTIME: "1h"}, node="b")
    )
    assert placed(world.plan(LATER)) == {"small": "a"}


def test_nodes_whose_pods_never_end_are_not_waited_for():
    """Node b holds less, but what serves there stays."""
    runs_for_ever = gang("serving", nodes="b", gpus=1)
    serving = replace(runs_for_ever, owner=replace(runs_for_ever.owner, kind="Deployment"))
    batch = gang("batch", nodes="a", gpus=2)
    big = gang("big", pods=1, gpus=8)
    small = gang("small", pods=1, gpus=4, created=1)
    kept = QueueInfo(name="team", deserved={"gpu": 16.0}, reserve_after=5.0)
    plan = world({"a": 8, "b": 8}, serving, batch, big, small, queues=[kept]).plan()
    assert placed(plan) == {"small-0": "b"}


def test_inside_the_queue_a_higher_priority_still_goes_first():
    world = half_full(small(created=LATER - 1, priority=1000))
    assert placed(world.plan(LATER)) == {"small": "a"}


def test_in_other_queues_no_priority_helps():
    world = half_full(small(created=1, queue="other", priority=1000)).add(queue("other", 0))
    assert placed(world.plan(LATER)) == {}


def test_more_than_the_queue_may_ever_have_is_not_reserved():
    other = [pod(f"o{i}", 1, queue="other") for i in range(8)]
    world = cluster(
        node("a"),
        queue("team", 2, reserveAfter="5m"),
        queue("other", 6),
        pod("old", 4, queue="other", node="a"),
        job_with_pods("big", 8, queue="team"),
        other,
    )
    assert len(placed(world.plan(LATER))) == 4


def test_the_capacity_below_the_max_of_the_queue_is_kept_too():
    world = cluster(
        node("a"),
        node("b"),
        queue("team", 8, 8, reserveAfter="5m"),
        pod("old", 4, queue="team", node="a"),
        job_with_pods("big", 8, queue="team"),
        small(created=1),
    )
    plan = world.plan(LATER)
    assert placed(plan) == {}
    assert "is reserved for default/Job/big" in why(plan, "default/Pod/small").message


def test_when_the_nodes_are_empty_the_gang_starts():
    world = half_full([small(f"s{i}", created=1) for i in range(8)])
    assert placed(world.plan(LATER)) == {}
    world.remove(pod("old", 4, queue="team", node="a"))
    assert set(placed(world.plan(LATER + 1))) == {f"big-{i}" for i in range(8)}


def test_queues_inherit_it_and_cycles_end():
    specs = (
        QueueInfo(name="org", reserve_after=60.0),
        QueueInfo(name="team", parent="org"),
        QueueInfo(name="own", parent="org", reserve_after=5.0),
        QueueInfo(name="x", parent="y"),
        QueueInfo(name="y", parent="x"),
    )
    assert inherited(specs, lambda spec: spec.reserve_after) == {
        "org": 60.0,
        "team": 60.0,
        "own": 5.0,
    }


def overstaying(*more, **parts):
    """All GPUs are taken by pods that promised to end after a minute."""
    says = {RUNTIME: "1m", **parts}
    return cluster(
        node("a"),
        queue("team", 8, reserveAfter="5m"),
        [running_since_the_start(f"liar-{i}", 1, says) for i in range(8)],
        job_with_pods("big", 8, queue="team"),
        *more,
    )


@pytest.mark.parametrize("kind", ["preemptible", "non-preemptible"])
def test_pods_that_overstay_are_the_first_victims(kind):
    world = overstaying(**{"scheduling.kai.io/preemptibility": kind})
    assert not world.plan(299.0).evictions
    plan = world.plan(300.0)
    assert {each.pod.name for each in plan.evictions} == {f"liar-{i}" for i in range(8)}
    assert "longer than its expected runtime (60 s)" in plan.evictions[0].reason
    assert len(plan.nominations) == 8


def test_pods_within_their_time_are_no_victims():
    punctual = pod("punctual", 1, queue="team", node="b", annotations={RUNTIME: "2h"})
    begun = msgspec.structs.replace(punctual, status=PodStatus(phase="Running", start_time=at(0.0)))
    world = cluster(
        node("b", 8),
        queue("team", 8, reserveAfter="5m"),
        begun,
        job_with_pods("big", 8, queue="team"),
    )
    assert not world.plan(LATER).evictions
    assert world.plan(7200.0).evictions


def test_a_reservation_that_may_never_come_true_ends_and_says_why():
    world = half_full(small(created=1), after="5m")
    assert placed(world.plan(300.0 + 2999.0)) == {}
    plan = world.plan(300.0 + 3000.0)
    assert placed(plan) == {"small": "a"}
    told = why(plan, "default/Job/big").message
    assert told.endswith(
        "No nodes are reserved for it any more: it is not known when pod default/old ends."
    )


def two_queues(*more):
    """``big`` may start, and leaves two GPUs to ``urgent`` of another queue."""
    return cluster(
        node("a"),
        queue("team", 4, reserveAfter="5m"),
        queue("other", 4),
        job_with_pods("big", 4, queue="team"),
        pod("low", 2, queue="other", node="a"),
        pod("urgent", 2, queue="other", priority=5, created=1),
        *more,
    )


def test_what_a_gang_that_may_start_leaves_is_for_others():
    plan = two_queues().plan(LATER)
    assert not plan.evictions
    assert placed(plan).keys() == {"urgent", *(f"big-{i}" for i in range(4))}


def test_a_gang_that_may_start_leaves_its_turn_to_a_higher_priority_of_its_queue():
    first = pod("first", 4, queue="team", priority=5, created=999)
    assert "first" in placed(two_queues(first).plan(LATER))
