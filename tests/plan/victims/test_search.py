"""Who leaves, who is moved and who stays when a gang takes room of others."""

from msgspec.structs import replace as struct_replace

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle import CycleMemory, CycleSettings, run_cycle
from kai_py.plan.plan import Action, Stage
from kai_py.policy.fairness_rules import KAI, NATIVE, BypassPolicy
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.replacing import replace
from tests.support.scenario import START, cluster, evicted, job, job_with_pods, node, pod, queue
from tests.support.worlds import gang, kept_world, member, subgroup, world

HOST_A = {"kubernetes.io/hostname": "a"}
WHO_FITS = replace(NATIVE, bypass_policy=BypassPolicy.BYPASS_FIRST)


def moves(plan):
    return {e.pod.name: e.relocated_to for e in plan.evictions}


def nominated(plan):
    return {n.pod.name: n.node for n in plan.nominations}


def test_surplus_leaves_before_any_core():
    plan = world(
        {"a": 4},
        gang("old", node="a", pods=2, floor=1, created=0),
        gang("new", node="a", pods=2, floor=2, created=9),
        gang("urgent", pods=1, priority=10),
    ).plan()
    assert evicted(plan) == ["old-1"]


def test_surplus_suffices_where_the_rest_of_a_node_is_free():
    plan = world(
        {"a": 4, "b": 4},
        gang("low", nodes="aaaabb", floor=4),
        gang("urgent", pods=1, gpus=4, priority=10),
    ).plan()
    assert evicted(plan) == ["low-4", "low-5"], "two surplus pods and the free half of b suffice"


def test_a_core_takes_its_surplus_with_it():
    plan = world(
        {"a": 4, "b": 4},
        gang("low", nodes="aaaabb", floor=4),
        gang("urgent", pods=2, gpus=4, priority=10),
    ).plan()
    assert len(evicted(plan)) == 6


def test_a_core_stays_where_other_pods_can_be_the_surplus():
    """The last pod of ``low`` would be its surplus, but is not in the way."""
    plan = world(
        {"a": 2, "b": 1},
        gang("low", nodes="ab", floor=1),
        gang("other", nodes="a", priority=3),
        gang("urgent", pods=1, gpus=2, priority=10),
    ).plan()
    assert evicted(plan) == ["low-0", "other-0"]


def test_a_gang_that_is_safe_gives_the_pods_in_the_way_as_its_surplus():
    def evicts(*others, floor, runtime):
        safe = QueueInfo(name="team", deserved={"gpu": 9.0}, preempt_min_runtime=runtime)
        low = gang("low", nodes="ab", floor=floor)
        urgent = gang("urgent", pods=1, gpus=2, priority=10)
        return evicted(world({"a": 2, "b": 1}, low, *others, urgent, queues=(safe,)).plan())

    other = gang("other", nodes="a", floor=0, priority=3)
    assert evicts(other, floor=1, runtime=1e9) == ["low-0", "other-0"]
    assert evicts(other, floor=2, runtime=1e9) == [], "without surplus it keeps all"
    assert evicts(other, floor=2, runtime=1.0) == ["low-0", "low-1", "other-0"]
    alone = gang("other", nodes="a", priority=3)
    assert evicts(alone, floor=1, runtime=1e9) == [], "the other one has none to give"


def test_the_surplus_of_one_leaf_is_not_that_of_another():
    tree = subgroup("", children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 2, "b": 1},
        gang("low", nodes="aab", leaves="xyy", tree=tree),
        gang("urgent", pods=1, gpus=2, priority=10),
    ).plan()
    assert len(evicted(plan)) == 3, "x has no surplus, so all of it leaves"


def test_an_optional_subgroup_leaves_whole_and_the_others_stay():
    tree = subgroup("", needs=1, children=[subgroup("x", 2), subgroup("y", 2)])
    plan = world(
        {"a": 4},
        gang("low", nodes="aaaa", leaves="xxyy", tree=tree),
        gang("urgent", pods=1, gpus=1, priority=10),
    ).plan()
    assert evicted(plan) in (["low-0", "low-1"], ["low-2", "low-3"])


def test_a_pod_that_is_only_being_started_replaces_no_running_one():
    """Otherwise the gang would run below its floor until that pod is up."""
    before = world(
        {"a": 1, "b": 3},
        gang("low", nodes="bb-", floor=2),
        gang("urgent", pods=1, gpus=2, priority=10, created=9),
        rules=WHO_FITS,
    )
    plan = before.plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-2"]
    assert evicted(plan) == []


def test_a_subgroup_that_is_only_being_started_replaces_no_running_one():
    tree = subgroup("", needs=1, children=[subgroup("x", 2), subgroup("y", 2)])
    before = world(
        {"a": 2, "b": 3},
        gang("low", nodes="bba-", leaves="xxyy", tree=tree),
        gang("urgent", pods=1, gpus=3, priority=10, created=9),
    )
    plan = before.plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-3"]
    assert evicted(plan) == []


def test_a_subgroup_gives_its_surplus_while_another_is_being_started():
    tree = subgroup("", children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 4},
        gang("low", nodes="aaa-", leaves="xxxy", tree=tree),
        gang("urgent", pods=1, gpus=2, priority=10, created=9),
        rules=WHO_FITS,
    ).plan()
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["low-3"]
    assert evicted(plan) == ["low-1", "low-2"]


def test_a_gang_with_optional_subgroups_can_take_room():
    """W1: one of two subgroups is enough, and the search must accept it."""
    tree = subgroup("", needs=1, children=[subgroup("x", 1), subgroup("y", 1)])
    plan = world(
        {"a": 2},
        gang("low", nodes="aa", floor=0),
        gang("urgent", pods=2, leaves="xy", tree=tree, priority=10, gpus=2),
    ).plan()
    assert evicted(plan) == ["low-0", "low-1"]
    assert nominated(plan) == {"urgent-0": "a"}


def test_a_victim_that_fits_elsewhere_is_moved_and_says_where():
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        pod("x", 2, queue="team", node="a", created=0),
        pod("y", 2, queue="team", node="b", created=1),
        pod("big", 4, queue="team", created=2),
    ).plan()
    assert moves(plan) == {"y": "a"}, "the youngest is moved"
    assert nominated(plan) == {"big": "b"}
    assert plan.evictions[0].action is Action.CONSOLIDATE


def test_a_pod_of_the_core_is_moved_where_the_surplus_has_to_stay():
    plan = world(
        {"a": 4, "b": 3},
        gang("low", nodes="ba", gpus=2, floor=1),
        gang("new", pods=1, gpus=3, created=9),
    ).plan()
    assert moves(plan) == {"low-0": "a"}
    assert nominated(plan) == {"new-0": "b"}


def test_a_pod_moves_to_where_another_one_moves_away():
    """Only c may take the new pod; its pod of 4 GPUs fits on b once b's pod is on a."""
    host_c = {"kubernetes.io/hostname": "c"}
    plan = cluster(
        *(node(name, 4) for name in "abc"),
        queue("team", 20),
        pod("x", 2, queue="team", node="a", created=0),
        pod("y", 2, queue="team", node="b", created=1),
        pod("z", 4, queue="team", node="c", created=2),
        pod("new", 3, queue="team", created=3, node_selector=host_c),
    ).plan()
    assert moves(plan) in ({"y": "a", "z": "b"}, {"x": "b", "z": "a"})
    assert nominated(plan) == {"new": "c"}


def test_a_node_with_room_for_one_pod_is_not_cheap_for_the_next():
    """a takes one of the pods as it is, and b one once a single pod has moved."""
    plan = world(
        {"a": 6, "b": 4, "c": 4},
        *(gang(f"on-{n}{i}", node=n, pods=1, created=i) for n in "abc" for i in range(2)),
        gang("new", pods=2, gpus=3, created=9),
    ).plan()
    assert list(moves(plan)) == ["on-b1-0"]
    assert sorted(nominated(plan)) == ["new-0", "new-1"]


def test_surplus_is_moved_before_a_core():
    plan = world(
        {"a": 2, "b": 2},
        gang("elastic", node="a", pods=1, floor=0, created=0),
        gang("fixed", node="b", pods=1, created=5),
        gang("new", pods=1, gpus=2, created=9),
    ).plan()
    assert moves(plan) == {"elastic-0": "b"}


def test_pods_of_one_size_leave_the_only_node_to_the_one_that_needs_it():
    owner, *pods = job_with_pods("new", 3, queue="team", priority=10)
    choosy = struct_replace(pods[2], spec=struct_replace(pods[2].spec, node_selector=HOST_A))
    plan = cluster(
        *(node(name, 1) for name in "abc"),
        queue("team", 8),
        *(pod(f"old-{name}", queue="team", node=name) for name in "abc"),
        [owner, *pods[:2], choosy],
    ).plan()
    assert nominated(plan)["new-2"] == "a"
    assert len(evicted(plan)) == 3


def test_nothing_is_moved_where_somebody_would_be_lost():
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        pod("x", 3, queue="team", node="a"),
        pod("y", 2, queue="team", node="b"),
        pod("big", 3, queue="team", created=2),
    ).plan()
    assert moves(plan) == {}
    assert plan.unplaced[0].stage is Stage.RESOURCES


def test_pods_of_a_moved_gang_stay_where_nobody_needs_their_room():
    plan = world(
        {"a": 4, "b": 4, "c": 1},
        gang("wide", nodes="abbb", floor=4),
        gang("big", pods=1, gpus=4, created=9),
    ).plan()
    assert moves(plan) == {"wide-0": "b"}
    assert nominated(plan) == {"big-0": "a"}


def test_w21_the_node_that_costs_the_fewest_restarts_is_emptied():
    plan = world(
        {"a": 4, "b": 4, "c": 4},
        *(gang(f"a{i}", node="a", pods=1, created=i) for i in range(2)),
        gang("b", node="b", pods=1, gpus=2, created=2),
        *(gang(f"c{i}", node="c", pods=1, created=3 + i) for i in range(2)),
        gang("big", pods=1, gpus=4, created=9),
    ).plan()
    assert list(moves(plan)) == ["b-0"]
    assert nominated(plan) == {"big-0": "b"}


def test_pods_of_a_gang_on_other_nodes_count_no_restart():
    """Of ``wide`` one pod has to move; on node b both of ``pair`` would have to."""
    plan = world(
        {"a": 4, "b": 4},
        gang("wide", nodes="baa", created=1),
        gang("pair", nodes="bb", created=2),
        gang("big", pods=1, gpus=3, created=9),
    ).plan()
    assert len(moves(plan)) == 1
    assert nominated(plan) == {"big-0": "a"}


def test_of_two_nodes_the_one_from_which_fewer_pods_of_a_gang_move_is_emptied():
    plan = world(
        {"a": 4, "b": 4, "c": 2, "d": 5},
        gang("large", nodes="dc", gpus=2, created=0),
        gang("d", nodes="d", created=1),
        gang("two", nodes="a", gpus=2, created=2),
        gang("a", nodes="a", created=3),
        gang("wide", nodes="abb", created=4),
        gang("big", pods=1, gpus=4, created=50),
    ).plan()
    assert len(moves(plan)) == 1


def test_one_pod_of_a_gang_moves_on_to_make_place_for_another_gang():
    plan = world(
        {"a": 2, "b": 4, "c": 2, "d": 4},
        gang("r0", nodes="d", gpus=2, created=0),
        gang("r1", nodes="bcc", created=1),
        gang("r2", nodes="ad", created=2),
        gang("r3", nodes="b", gpus=2, created=3),
        gang("big", pods=1, gpus=3, created=50),
    ).plan()
    assert len(moves(plan)) == 2
    assert list(nominated(plan)) == ["big-0"]


def test_a_gang_of_preemption_policy_never_disturbs_nobody():
    plan = cluster(
        node("a", 1),
        queue("team", 8),
        pod("low", queue="team", node="a"),
        pod("meek", queue="team", priority=10, preemption_policy="Never"),
    ).plan()
    assert evicted(plan) == []


def test_a_gang_below_its_floor_is_ended_after_its_grace():
    broken = gang("broken", nodes="aa", floor=3, stale_since=START)
    assert evicted(world({"a": 4}, broken).plan(now=59)) == []
    plan = world({"a": 4}, broken).plan(now=60)
    assert evicted(plan) == ["broken-0", "broken-1"]
    assert "below minMember for 60 s" in plan.evictions[0].reason


def test_a_gang_below_its_floor_is_refilled_rather_than_ended():
    broken = gang("broken", nodes="aa-", floor=3, stale_since=START)
    plan = world({"a": 4}, broken).plan(now=999)
    assert evicted(plan) == []
    assert [p.pod.name for g in plan.placements for p in g.pods] == ["broken-2"]


def short_gang(*more):
    owner = job("train", 3, "team")
    two = [pod(f"train-{i}", owner=owner, node="a") for i in range(2)]
    return cluster(node("a", 4), queue("team", 8), owner, two, *more)


def test_the_grace_runs_from_when_a_gang_was_first_seen_below_its_floor():
    world = short_gang()
    assert evicted(world.plan(now=1000)) == []
    assert evicted(world.plan(now=1059)) == []
    assert evicted(world.plan(now=1060)) == ["train-0", "train-1"]


def test_a_gang_that_was_refilled_has_its_whole_grace_again():
    world = short_gang()
    world.plan(now=1000)
    owner = job("train", 3, "team")
    third = pod("train-2", owner=owner, node="a")
    world.add(third)
    world.plan(now=1050)
    world.remove(third)
    assert evicted(world.plan(now=1070)) == []
    assert evicted(world.plan(now=1130)) == ["train-0", "train-1"]


def test_a_gang_with_pods_that_ended_well_is_not_short_of_them():
    done = pod("train-2", owner=job("train", 3, "team"), node="a", phase="Succeeded")
    world = short_gang(done)
    world.plan(now=1000)
    assert evicted(world.plan(now=2000)) == []
    world.remove(done)
    assert evicted(world.plan(now=3000)) == [], "deleting what has ended changes nothing"


def three_above_their_due(*more, **settings):
    """8 GPUs full of one-GPU pods; 3 of them may be lost."""
    queues = [
        QueueInfo(name="rich", deserved={"gpu": 5.0}),
        QueueInfo(name="poor", deserved={"gpu": 4.0}),
    ]
    running = [gang(f"r{i}", nodes="ab"[i // 4], queue="rich", created=i) for i in range(8)]
    return world({"a": 4, "b": 4}, *running, *more, queues=queues, rules=KAI, **settings)


def test_too_few_gpus_that_may_be_lost_are_a_no():
    """The search finds out: fairness refuses the fourth, and what is left is not enough."""
    needy = gang("new", pods=1, gpus=4, queue="poor", created=50)
    plan = three_above_their_due(needy).plan()
    assert evicted(plan) == []
    assert [each.stage for each in plan.unplaced] == [Stage.VICTIMS_PROTECTED]


def test_all_that_may_be_lost_can_be_won():
    plan = three_above_their_due(gang("new", pods=1, gpus=3, queue="poor", created=50)).plan()
    assert evicted(plan) == ["r5-0", "r6-0", "r7-0"]


def test_a_search_without_probes_left_says_so():
    plan = world(
        {"a": 1},
        gang("low", node="a", pods=1),
        gang("urgent", pods=1, priority=10),
        victim_probes=1,
        victim_probes_per_gang=1,
        actions=(Action.ALLOCATE, Action.PREEMPT),
    )
    assert evicted(plan.plan()) == ["low-0"]
    none_left = kept_world(plan, victim_probes=0)
    assert none_left.plan().unplaced[0].stage is Stage.SEARCH_BUDGET


def test_job_sizes_are_floors():
    owner = job("low", 4, "team")
    plan = cluster(
        node("a", 4),
        queue("team", 8),
        owner,
        [pod(f"low-{i}", owner=owner, node="a", priority=1) for i in range(4)],
        pod("urgent", 1, queue="team", priority=10),
    ).plan()
    assert len(evicted(plan)) == 4


def test_w20_who_eats_the_budget_does_not_head_the_next_cycle():
    """ "Mixed" needs several trials, and one is all there is; "simple" comes later in the order."""
    mixed = gang("mixed", pods=2, priority=20)
    mixed = replace(mixed, members=(mixed.members[0], member("mixed-1", 2, "", priority=20)))
    full = world(
        {"a": 1, "b": 2},
        *(gang(f"low{i}", node="abb"[i], pods=1, created=i) for i in range(3)),
        mixed,
        gang("simple", pods=1, priority=10),
        victim_probes=1,
        actions=(Action.ALLOCATE, Action.PREEMPT),
    )
    memory = CycleMemory(ClusterDevices())
    cycle_settings = CycleSettings(**full.settings)
    cycles = [run_cycle(full.snapshot(1000.0), cycle_settings, memory) for _ in range(2)]
    beneficiaries = [{each.preemptor for each in plan.evictions} for plan in cycles]
    assert beneficiaries == [set(), {"default/Gang/simple"}]
