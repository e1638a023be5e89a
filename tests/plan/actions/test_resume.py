"""A gang that would be evicted as soon as it runs does not start ahead of its preemptor."""

from contextlib import nullcontext
from types import SimpleNamespace

from kai_py.plan.actions import resume
from kai_py.plan.plan import Action, Plan
from tests.support import worlds
from tests.support.scenario import (
    START,
    Cluster,
    claim,
    claiming,
    cluster,
    device_class,
    device_slice,
    evicted,
    job_with_pods,
    node,
    nominated,
    placed,
    pod,
    queue,
)

PODS = [f"low-{index}" for index in range(8)]
MIDDLE = {f"middle-{index}" for index in range(8)}
HIGH = {f"high-{index}" for index in range(8)}


def carry_out(world: Cluster, plan: Plan, now: float) -> None:
    """Nominate and evict; the victims terminate until ``end`` removes them."""
    for each in plan.nominations:
        world.builder.nominate(each.pod.uid, each.node, START + now)
    for eviction in plan.evictions:
        world.builder.expect_eviction(eviction.pod.uid)


def with_middle_nominated(*others, middle=None, settings=None) -> Cluster:
    """Pods of the lowest priority terminate for gang ``middle``, which is nominated."""
    low = [pod(name, queue="a", node="n") for name in PODS]
    world = cluster(node("n"), queue("a", 8), queue("b", 8), low, **(settings or {}))
    world.add(job_with_pods("middle", 8, queue="a", priority=10, **(middle or {})))
    plan = world.plan(10)
    assert evicted(plan) == PODS
    assert set(nominated(plan)) == MIDDLE
    carry_out(world, plan, 10)
    return world.add(*others)


def high(**options) -> list:
    return job_with_pods("high", 8, queue="a", priority=20, created=15, **options)


def test_a_gang_that_would_preempt_a_nominated_one_takes_its_place() -> None:
    world = with_middle_nominated(high())
    plan = world.plan(20)
    assert set(nominated(plan)) == HIGH
    carry_out(world, plan, 20)
    world.remove(*(pod(name) for name in PODS))
    plan = world.plan(45)
    assert set(placed(plan)) == HIGH
    assert not evicted(plan)


def test_a_nominated_gang_keeps_its_place_where_other_pods_may_be_evicted() -> None:
    others = [pod(f"other-{index}", queue="a", node="m") for index in range(8)]
    world = with_middle_nominated(node("m"), others, high())
    plan = world.plan(20)
    assert nominated(plan) == dict.fromkeys(MIDDLE, "n") | dict.fromkeys(HIGH, "m")
    assert evicted(plan) == sorted(each.metadata.name for each in others)


def test_a_nominated_gang_yields_where_all_others_that_may_be_evicted_are_too_few() -> None:
    others = [pod(f"other-{index}", queue="a", node="m") for index in range(7)]
    plan = with_middle_nominated(node("m", 7), others, high()).plan(20)
    assert set(nominated(plan)) == HIGH
    assert not evicted(plan)


def test_of_more_pods_than_are_evicted_on_trial_enough_may_be_evicted(monkeypatch) -> None:
    monkeypatch.setattr(resume, "MAX_VICTIMS", 6)
    others = [pod(f"other-{index}", queue="a", node="m") for index in range(7)]
    plan = with_middle_nominated(node("m", 7), others, high()).plan(20)
    assert set(nominated(plan)) == MIDDLE


def test_a_nominated_gang_keeps_its_place_where_the_other_fits_beside_it() -> None:
    world = with_middle_nominated(node("m"), high())
    plan = world.plan(20)
    assert set(nominated(plan)) == MIDDLE
    assert set(placed(plan)) == HIGH


def test_a_nominated_gang_yields_only_to_those_that_may_evict_it() -> None:
    lower = job_with_pods("lower", 8, queue="a", priority=10, created=15)
    elsewhere = job_with_pods("elsewhere", 8, queue="b", priority=20, created=15)
    modest = high(preemption_policy="Never")
    for gang in (lower, elsewhere, modest):
        assert set(nominated(with_middle_nominated(gang).plan(20))) == MIDDLE
    lasting = {"annotations": {"scheduling.kai.io/preemptibility": "non-preemptible"}}
    assert set(nominated(with_middle_nominated(high(), middle=lasting).plan(20))) == MIDDLE


def test_a_nominated_gang_keeps_its_place_where_nothing_is_preempted() -> None:
    world = with_middle_nominated(high())
    world.settings = {"actions": (Action.ALLOCATE,)}
    assert set(nominated(world.plan(20))) == MIDDLE


def test_pods_go_to_their_own_nominated_nodes_so_that_later_ones_find_theirs_free() -> None:
    group = {"scheduling.kai.io/pod-group": "g", "scheduling.kai.io/min-available": "1"}
    first = pod("p0", queue="a", annotations=group)
    elastic = pod("p1", queue="a", annotations=group, node_selector={"small": "yes"})
    world = cluster(node("n0", 4), node("n1", 1, labels={"small": "yes"}), queue("a", 8))
    world.add(first, elastic)
    for name, where in (("p0", "n0"), ("p1", "n1")):
        world.builder.nominate(f"pod-{name}", where, START + 10)
    assert placed(world.plan(20)) == {"p0": "n0", "p1": "n1"}


def test_a_pod_whose_own_nominated_node_is_taken_starts_on_that_of_another_pod() -> None:
    world = cluster(node("n0", 1), node("n1", 2), queue("a", 8))
    world.add(pod("other", queue="a", node="n0"), job_with_pods("g", 2, queue="a"))
    for name, where in (("g-0", "n0"), ("g-1", "n1")):
        world.builder.nominate(f"pod-{name}", where, START + 10)
    assert placed(world.plan(20)) == {"g-0": "n1", "g-1": "n1"}


def two_that_share_devices(*gpus) -> Cluster:
    """The first by priority takes the first two devices it finds, ``picky`` needs model T4."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"model": {"string": name}}}
        for i, name in enumerate(gpus)
    ]
    model = 'device.attributes["gpu.nvidia.com"].model == "T4"'
    world = cluster(device_class(), node("n", 0), device_slice("n", devices), queue("a", 8))
    for name, priority, selector in (("first", 10, ""), ("picky", 0, model)):
        world.add(claim(f"{name}-gpu", 2, selector=selector, owner=name))
        world.add(claiming(pod(name, 0, queue="a", priority=priority), f"{name}-gpu"))
        world.builder.nominate(f"pod-{name}", "n", START + 10)
    return world


def test_nominated_gangs_start_in_an_order_in_which_all_find_their_devices() -> None:
    assert set(placed(two_that_share_devices("T4", "T4", "L4", "L4").plan(20))) == {
        "first",
        "picky",
    }


def test_of_nominated_gangs_that_do_not_fit_together_any_more_the_first_starts() -> None:
    assert set(placed(two_that_share_devices("T4", "T4", "L4").plan(20))) == {"first"}


def test_a_nominated_gang_yields_to_one_that_may_reclaim_from_no_queue() -> None:
    """Queue b has just what it deserves."""
    of_b = [pod(f"b-{index}", queue="b", node="m") for index in range(8)]
    plan = with_middle_nominated(node("m"), of_b, high()).plan(20)
    assert set(nominated(plan)) == HIGH
    assert not evicted(plan)


def test_only_gangs_of_one_queue_go_before_nominated_ones_that_yield_to_them(monkeypatch) -> None:
    made = {
        "first": worlds.gang("first", pods=1, queue="a", priority=20),
        "other": worlds.gang("other", pods=1, queue="b", priority=20),
        "fits": worlds.gang("fits", pods=1, queue="a", priority=30),
        "yields": worlds.gang("yields", pods=1, queue="a", priority=10),
        "equal": worlds.gang("equal", pods=1, queue="a", priority=20),
        "fixed": worlds.gang("fixed", pods=1, queue="a", priority=10, preemptible=False),
        "elsewhere": worlds.gang("elsewhere", pods=1, queue="b", priority=10),
    }
    monkeypatch.setattr(resume, "_place", lambda _state, gang: gang is made["fits"])
    state = SimpleNamespace(statement=SimpleNamespace(trial=nullcontext))
    nominated = [made[name] for name in ("yields", "equal", "fixed", "elsewhere")]

    def order(*ahead):
        gangs = resume._with_those_ahead(state, nominated, [made[name] for name in ahead])
        return [each.key.rpartition("/")[2] for each in gangs]

    unchanged = ["yields", "equal", "fixed", "elsewhere"]
    assert order("fits") == unchanged
    assert order("first", "other") == ["equal", "fixed", "elsewhere", "first", "yields"]
    assert order("other", "first") == ["yields", "equal", "fixed", "other", "elsewhere"]


def test_a_pod_whose_nominated_node_was_deleted_starts_on_another() -> None:
    world = cluster(node("n", 2), queue("a", 8))
    world.add(job_with_pods("g", 2, queue="a"))
    for name, where in (("g-0", "deleted"), ("g-1", "n")):
        world.builder.nominate(f"pod-{name}", where, START + 10)
    plan = world.plan(20)
    assert placed(plan) == {"g-0": "n", "g-1": "n"}
    assert not plan.set_aside
