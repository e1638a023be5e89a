"""A gang that would be evicted as soon as it runs does not start ahead of its preemptor."""

from kai_py.plan.plan import Action, Plan
from tests.support.scenario import (
    START,
    Cluster,
    cluster,
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
    assert set(nominated(plan)) == MIDDLE | HIGH
    assert evicted(plan) == sorted(each.metadata.name for each in others)


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
