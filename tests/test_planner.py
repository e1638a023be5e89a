"""Every setting that planning follows must reach the plan."""

from kai_py.api.queue import read_queue
from kai_py.api.records.core import ObjectMeta
from kai_py.config import parse_configuration
from kai_py.observe.share_steps import share_steps
from kai_py.planner import Planner, cycle_settings
from kai_py.snapshot.accounting import GPU
from kai_py.watch.kinds import WatchedQueue
from tests.support.scenario import START, node, placed, pod, shared

QUEUES = ("a", "b")


def planner_with(text, *objects):
    planner = Planner(parse_configuration(text))
    for name in QUEUES:
        document = {"metadata": {"name": name}, "spec": {"deservedGPUs": 2}}
        queue = WatchedQueue(ObjectMeta(name=name, uid=name), read_queue(document))
        planner.builder.apply("queues", None, queue)
    for each in objects:
        planner.builder.apply({"Pod": "pods", "Node": "nodes"}[type(each).__name__], None, each)
    return planner


def plan_with(text, *objects, now=1000.0):
    planner = planner_with(text, *objects)
    return planner.decide(planner.freeze(START + now))


def test_the_quota_told_to_people_is_that_of_the_cycle():
    pods = (pod("huge", 9, queue="a"), pod("runs", 1, queue="a"), pod("more", 4, queue="b"))
    planner = planner_with("", node("n", 4), *pods)
    snapshot = planner.freeze(START + 1000.0)
    shares = {each.queue: each.fair_share[GPU] for each in planner.decide(snapshot).queues}
    (step,) = share_steps(planner.quota(snapshot), "a")
    assert {each.queue: each.fair_share for each in step.siblings} == shares == {"a": 1, "b": 3}


def test_the_default_queue_takes_pods_that_name_none():
    lost = (node("n"), pod("p"))
    assert placed(plan_with("", *lost)) == {}
    assert placed(plan_with("defaultQueue: a", *lost)) == {"p": "n"}


def test_the_scheduler_name_decides_whose_pods_are_placed():
    pods = (node("n"), pod("p", queue="a", scheduler_name="mine"), pod("q", queue="a"))
    assert placed(plan_with("schedulerName: mine", *pods)) == {"p": "n"}
    both = "schedulerName: mine\nschedulerAliases: [kai-scheduler, third]"
    assert placed(plan_with(both, *pods)) == {"p": "n", "q": "n"}


def test_a_pool_sees_its_nodes_and_pods_only():
    label = {"kai.scheduler/node-pool": "west"}
    world = (
        node("n-west", labels=label),
        node("n-rest"),
        pod("p-west", queue="a", labels=label),
        pod("p-rest", queue="a"),
    )
    assert placed(plan_with("nodePool: {name: west}", *world)) == {"p-west": "n-west"}
    assert placed(plan_with("", *world)) == {"p-rest": "n-rest"}


def running(queue, count, **options):
    return [pod(f"{queue}{i}", queue=queue, node="n", created=i, **options) for i in range(count)]


def test_reclaim_can_be_switched_off_and_waits_for_the_min_runtime():
    world = (node("n", 4), *running("a", 4), pod("new", queue="b", created=900))
    assert len(plan_with("", *world).evictions) == 1
    assert plan_with("eviction: {reclaim: false}", *world).evictions == ()


def test_mig_devices_count_by_slices_and_for_kai_each_as_a_gpu():
    """Queue a holds 3 of its 2 GPUs for KAI, and 3/7 of one natively."""
    kept = node("n", 0)
    kept.status.allocatable["nvidia.com/mig-1g.10gb"] = "3"
    asks = {"requests": {"nvidia.com/mig-1g.10gb": "1"}}
    world = (
        kept,
        *(pod(f"a{i}", 0, queue="a", node="n", created=i, **asks) for i in range(3)),
        pod("new", 0, queue="b", created=900, **asks),
    )
    assert plan_with("", *world).evictions == ()
    assert [e.pod.name for e in plan_with("rules: kai", *world).evictions] == ["a2"]


def test_placement_follows_the_strategy():
    pods = [pod(f"p{i}", queue="a") for i in range(2)]
    world = (node("n"), node("m"), *pods)
    assert len(set(placed(plan_with("", *world)).values())) == 1
    assert len(set(placed(plan_with("placement: {gpu: spread}", *world)).values())) == 2


def test_pods_that_could_strand_gpus_are_placed_by_score_unless_told_otherwise():
    one = pod("one", 1, queue="a", requests={"cpu": "1"})
    big = pod("big", 2, queue="b", created=5, requests={"cpu": "8"})
    whole = (node("fits-big", 2, cpu="64"), node("short-of-cpu", 4, cpu="3"), one, big)
    half = shared(pod("half", 0, queue="b", node="sharing"), "0.5", group="g")
    parts = (*whole, node("sharing", 1), half)
    both = {"one": "short-of-cpu", "big": "fits-big"}
    assert placed(plan_with("", *whole)) == placed(plan_with("", *parts)) == both
    for strategy in ("fgd", "frugal"):
        assert placed(plan_with(f"placement: {{strategy: {strategy}}}", *whole)) == both
    for world in (whole, parts):
        assert placed(plan_with("rules: kai", *world)) == {"one": "fits-big"}
    for told in ("strategy: together", "sharedGPUs: spread", "cpu: spread"):
        for world in (whole, parts):
            assert placed(plan_with(f"placement: {{{told}}}", *world)) == {"one": "fits-big"}


def test_the_configuration_says_whose_min_runtime_protects_from_other_queues():
    for method in ("lca", "queue"):
        chosen = parse_configuration(f"eviction: {{reclaimResolveMethod: {method}}}")
        assert cycle_settings(chosen).rules.min_runtime_method == method
