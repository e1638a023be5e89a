"""What one cycle decides: gangs whole or not at all, within bounds, by priority, explained."""

import pytest

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.storage import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
)
from kai_py.api.records.volume import ClaimVolumeSource, Volume
from kai_py.plan.actions.registry import ACTIONS
from kai_py.plan.plan import Stage
from kai_py.plan.session.settings import CycleSettings
from tests.support.scenario import (
    START,
    cluster,
    evicted,
    job,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
)


def test_a_gang_starts_whole_on_the_fewest_nodes():
    plan = cluster(
        node("a", 2),
        node("b", 8),
        node("c", 8),
        queue("team", 8, 16),
        job_with_pods("train", 8, queue="team"),
    ).plan()
    assert set(placed(plan).values()) == {"b"}
    assert len(plan.placements) == 1
    assert len(plan.placements[0].pods) == 8


def test_a_gang_that_does_not_fit_starts_not_at_all_and_says_why():
    plan = cluster(
        node("a", 7), queue("team", 8, 16), job_with_pods("train", 8, queue="team")
    ).plan()
    assert placed(plan) == {}
    [unplaced] = plan.unplaced
    assert unplaced.stage is Stage.RESOURCES
    assert unplaced.message == (
        "Infeasible: with nothing else on them, the nodes hold 7 of the 8 pods. "
        "8 pods must start together but only 7 can be scheduled: "
        "1 Insufficient nvidia.com/gpu (1 requested)."
    )
    assert len(unplaced.pods) == 8


@pytest.mark.parametrize("sizes", [{"a": 2, "b": 4}, {"a": 1, "b": 4}, {"a": 4, "b": 2}])
def test_every_gang_that_does_not_fit_names_the_number_of_its_own_pods(sizes):
    taken = job_with_pods("taken", 8, queue="team", node="n")
    gangs = [job_with_pods(name, count, queue="team") for name, count in sizes.items()]
    plan = cluster(node("n", 8), queue("team", 16), taken, *gangs).plan()
    messages = {each.gang.rpartition("/")[2]: each.message for each in plan.unplaced}
    for name, count in sizes.items():
        head = f"{count} pods must start together but only 0 can" if count > 1 else "0/1 nodes are"
        assert messages[name].startswith(head)


def test_a_gang_waits_for_all_its_pods():
    owner, *pods = job_with_pods("train", 3, queue="team")
    plan = cluster(node("a"), queue("team", 8), owner, pods[:2]).plan()
    [unplaced] = plan.unplaced
    assert unplaced.stage is Stage.BELOW_MIN_MEMBER
    assert unplaced.message == "minMember is 3; existing pods: 2."


def test_a_queue_may_refuse_a_namespace():
    closed = queue("team", 8, namespaces={"names": ["ml"]})
    plan = cluster(node("a"), closed, pod("p", queue="team")).plan()
    assert placed(plan) == {}
    assert plan.unplaced[0].stage is Stage.INVALID
    assert plan.unplaced[0].message == (
        'queue "team" does not accept workloads from namespace "default"; use another queue, or '
        'change spec.namespaces of queue "team".'
    )
    opened = queue("team", 8, namespaces={"names": ["ml", "default"]})
    assert placed(cluster(node("a"), opened, pod("p", queue="team")).plan()) == {"p": "a"}


def test_a_queue_never_passes_its_max():
    small = cluster(node("a"), queue("team", 2, 4), job_with_pods("train", 5, queue="team")).plan()
    assert placed(small) == {}
    assert small.unplaced[0].stage is Stage.QUEUE_MAX
    singles = cluster(
        node("a"), queue("team", 2, 4), [pod(f"p{i}", queue="team") for i in range(6)]
    ).plan()
    assert len(placed(singles)) == 4


def test_an_ancestor_bounds_its_children():
    plan = cluster(
        node("a"),
        queue("org", 4, 4),
        queue("x", 2, parent="org"),
        queue("y", 2, parent="org"),
        [pod(f"x{i}", queue="x") for i in range(4)],
        [pod(f"y{i}", queue="y") for i in range(4)],
    ).plan()
    assert sorted(placed(plan)) == ["x0", "x1", "y0", "y1"]


def test_a_pod_of_an_unknown_queue_is_told_so_and_no_gang_waits_for_it():
    plan = cluster(
        node("a"),
        queue("team", 8),
        pod("lost", queue="nowhere"),
        pod("none"),
        pod("good", queue="team"),
    ).plan()
    assert placed(plan) == {"good": "a"}
    assert {u.gang: u.stage for u in plan.unplaced} == {
        "default/Pod/lost": Stage.QUEUE_NOT_FOUND,
        "default/Pod/none": Stage.QUEUE_NOT_FOUND,
    }


def test_higher_priority_comes_first_inside_a_queue():
    plan = cluster(
        node("a", 1),
        queue("team", 8),
        pod("old", queue="team", created=0),
        pod("urgent", queue="team", created=9, priority=10),
    ).plan()
    assert placed(plan) == {"urgent": "a"}


def test_the_queue_below_its_share_comes_first():
    plan = cluster(
        node("a", 4),
        queue("rich", 2),
        queue("poor", 2),
        [pod(f"r{i}", queue="rich", node="a") for i in range(2)],
        [pod(f"w{i}", queue="rich", created=1) for i in range(2)],
        [pod(f"p{i}", queue="poor", created=5) for i in range(2)],
    ).plan()
    assert sorted(placed(plan)) == ["p0", "p1"]


def test_preemption_takes_the_fewest_of_the_lowest_priority():
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        [pod(f"low{i}", queue="team", node="a", priority=1, created=i) for i in range(4)],
        [pod(f"mid{i}", queue="team", node="b", priority=5) for i in range(4)],
        job_with_pods("big", 2, 1, queue="team", priority=10, created=50),
    ).plan()
    assert evicted(plan) == ["low2", "low3"], "the youngest of the lowest priority"
    assert {n.pod.name: n.node for n in plan.nominations} == {"big-0": "a", "big-1": "a"}
    assert "higher priority workload default/big (priority 10 > 1)" in plan.evictions[0].reason


def test_preemption_never_crosses_queues_or_equal_priority():
    plan = cluster(
        node("a", 2),
        queue("team", 2),
        queue("other", 2),
        pod("mine", queue="team", node="a", priority=10),
        pod("theirs", queue="other", node="a", priority=0),
        pod("new", queue="team", priority=10),
    ).plan()
    assert evicted(plan) == []


def test_a_gang_is_evicted_whole():
    owner = job("low", 8, "team")
    nodes = ["a"] * 4 + ["b"] * 4
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        owner,
        [pod(f"low-{i}", owner=owner, node=n, priority=1) for i, n in enumerate(nodes)],
        pod("urgent", 2, queue="team", priority=10),
    ).plan()
    assert len(evicted(plan)) == 8


def test_capacity_that_is_being_freed_is_promised_and_kept():
    world = cluster(
        node("a", 4),
        queue("team", 8),
        [pod(f"gone{i}", queue="team", node="a", leaving=True) for i in range(4)],
        pod("next", 4, queue="team", created=1),
    )
    plan = world.plan()
    assert placed(plan) == {}
    [nomination] = plan.nominations
    assert (nomination.pod.name, nomination.node) == ("next", "a")
    world.builder.nominate(nomination.pod.uid, "a", 1_800_001_000.0)
    world.add(pod("quick", 1, queue="team", created=0, priority=99))
    again = world.plan(now=1001)
    assert placed(again) == {}, "held capacity is not given to others, whatever their priority"


def test_a_broken_pod_stops_no_other():
    plan = cluster(
        node("a"),
        node("bad", 8, cpu="-5"),
        queue("team", 8),
        pod("broken", queue="team", requests={"cpu": "many"}),
        pod("good", queue="team"),
    ).plan()
    assert placed(plan) == {"good": "a"}
    assert plan.unplaced[0].stage is Stage.INVALID
    assert "many" in plan.unplaced[0].message


def test_the_same_snapshot_gives_the_same_plan():
    world = cluster(
        *[node(f"n{i}", 8) for i in range(5)],
        queue("x", 8),
        queue("y", 8, priority=200),
        *[job_with_pods(f"g{i}", 3 + i % 3, queue="xy"[i % 2], created=i) for i in range(9)],
    )
    assert world.plan() == world.plan()


def test_reclaim_takes_only_what_is_above_the_fair_share():
    plan = cluster(
        node("a", 8),
        queue("rich", 4),
        queue("poor", 4),
        [pod(f"r{i}", queue="rich", node="a", created=i) for i in range(8)],
        [pod(f"p{i}", queue="poor", created=50 + i) for i in range(6)],
    ).plan()
    assert evicted(plan) == ["r4", "r5", "r6", "r7"]
    assert len(plan.nominations) == 4
    assert "reclaimed by workload default/p" in plan.evictions[0].reason


def test_reclaim_names_the_resource_that_is_reclaimed():
    plan = cluster(
        node("a", 0, cpu="8"),
        queue("rich", resources={"cpu": {"deserved": "4"}}),
        queue("poor", resources={"cpu": {"deserved": "4"}}),
        [pod(f"r{i}", 0, queue="rich", node="a", created=i) for i in range(8)],
        [pod("p", 0, queue="poor", created=50)],
    ).plan()
    assert [each.reason.split(": ")[1] for each in plan.evictions] == [
        "queue poor has 0 CPU cores allocated, fair share 1; "
        "queue rich has 8 CPU cores allocated, fair share 7"
    ]


def test_reclaim_empties_whole_nodes_for_whole_node_pods():
    nodes = [node(f"n{i}", 4) for i in range(4)]
    running = [pod(f"r{i:02}", queue="rich", node=f"n{i % 4}", created=i) for i in range(16)]
    plan = cluster(
        *nodes,
        queue("rich", 8),
        queue("poor", 8),
        *running,
        job_with_pods("big", 2, 4, queue="poor", created=50),
    ).plan()
    assert len(evicted(plan)) == 8
    assert len({n.node for n in plan.nominations}) == 2


def test_priority_protects_no_pod_from_other_queues():
    plan = cluster(
        node("a", 4),
        queue("rich", 0),
        queue("poor", 4),
        [pod(f"r{i}", queue="rich", node="a", priority=200, created=i) for i in range(4)],
        pod("p", queue="poor", created=9),
    ).plan()
    assert evicted(plan) == ["r3"]


def test_a_gang_whose_start_failed_leaves_its_capacity_to_others_for_a_while():
    world = cluster(
        node("a", 1),
        queue("team", 8),
        pod("failing", queue="team", created=0),
        pod("next", queue="team", created=1),
    )
    world.builder.back_off("default/Pod/failing", START + 1005)
    plan = world.plan(now=1000)
    assert placed(plan) == {"next": "a"}
    assert plan.unplaced[0].stage is Stage.SCHEDULER_ERROR
    assert placed(world.plan(now=1005)) == {"failing": "a"}


FITTING = {"scheduling.kai.io/topology-fitting-placement": "rack"}


def racks_of_two(*more):
    nodes = [node(f"{rack}{i}", 1, labels={"rack": rack}) for rack in "xy" for i in range(2)]
    return cluster(*nodes, queue("team", 8), *more)


def fitting_job(pods):
    owner = job("train", pods, "team", **FITTING)
    return [owner, *(pod(f"train-{i}", owner=owner) for i in range(pods))]


def test_a_level_that_could_hold_the_gang_is_required():
    """One node of each rack is taken: the gang waits for a rack rather than to be torn apart."""
    taken = [pod(f"old-{each}", queue="team", node=f"{each}0") for each in "xy"]
    assert placed(racks_of_two(fitting_job(2)).plan()).keys() == {"train-0", "train-1"}
    plan = racks_of_two(fitting_job(2), *taken).plan()
    assert placed(plan) == {}


def test_a_gang_larger_than_any_domain_of_the_level_only_prefers_it():
    plan = racks_of_two(fitting_job(3)).plan()
    nodes = sorted(placed(plan).values())
    assert len(nodes) == 3
    assert [name[0] for name in nodes] in (["x", "x", "y"], ["x", "y", "y"])


def test_nvlink_domains_are_a_level():
    clique = "nvidia.com/gpu.clique"
    marks = {"kai.scheduler/topology-required-placement": clique}
    owner = job("train", 2, "team", **marks)
    pods = [pod(f"train-{i}", 4, owner=owner) for i in range(2)]
    nodes = [
        node(name, 4, labels={clique: domain} if domain else {})
        for name, domain in (("a", "c.1"), ("b", "c.2"), ("d", "c.2"), ("e", ""))
    ]
    plan = cluster(*nodes, queue("team", 16), owner, *pods).plan()
    assert set(placed(plan).values()) == {"b", "d"}


def test_volume_claims_to_provision_go_with_the_placement():
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default", uid="claim"),
        spec=PersistentVolumeClaimSpec(storage_class_name="local"),
    )
    storage = StorageClass(
        metadata=ObjectMeta(name="local"), volume_binding_mode="WaitForFirstConsumer"
    )
    volume = Volume(name="v", persistent_volume_claim=ClaimVolumeSource(claim_name="data"))
    world = cluster(node("a"), queue("team", 8), pod("p", queue="team", volumes=(volume,)))
    assert placed(world.plan()) == {}
    world.builder.apply("persistentvolumeclaims", None, claim)
    world.builder.apply("storageclasses", None, storage)
    [gang] = world.plan().placements
    assert gang.pods[0].provision == ("data",)


def test_by_default_every_action_runs_in_its_order():
    assert CycleSettings().actions == tuple(ACTIONS)
