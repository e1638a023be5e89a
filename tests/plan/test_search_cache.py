"""A search that failed is not repeated while its inputs are the same; plans stay the same."""

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
)
from kai_py.plan.actions.registry import ACTIONS
from kai_py.plan.placement.gang import Placer
from kai_py.plan.plan import Action, Stage
from kai_py.plan.search_cache.cache import SearchCache
from kai_py.plan.victims.search import VictimSearch
from kai_py.policy.score.registry import WeightedScore
from tests.plan.victims.test_alternatives import asking
from tests.support.examples import examples
from tests.support.executed_plans import carry_out
from tests.support.scenario import (
    budget,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    pod,
    queue,
    shared,
)

NODES, QUEUES = 3, ("a", "b", "c")
HOST = "kubernetes.io/hostname"
APART = Affinity(
    pod_anti_affinity=PodAffinity(
        required=(
            PodAffinityTerm(
                label_selector=LabelSelector(match_labels={"app": "apart"}), topology_key=HOST
            ),
        )
    )
)

pods = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([0, 1, 1, 2, 3]),
        "pods": st.sampled_from([1, 1, 1, 2]),
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from([0, 0, 1, 2]),
        "on": st.sampled_from(["", "", "n0", "n1", "n2"]),
        "fraction": st.sampled_from(["", "", "", "", "0.5"]),
        "apart": st.sampled_from([False] * 8 + [True]),
    }
)
events = st.one_of(
    st.tuples(st.just("comes"), pods),
    st.tuples(st.just("comes"), pods),
    st.tuples(st.just("ends"), st.integers(0, 11)),
    st.tuples(st.just("leaves"), st.integers(0, 11)),
    st.tuples(st.just("node"), st.integers(0, NODES), st.integers(0, 4)),
    st.tuples(st.just("queue"), st.sampled_from(QUEUES), st.integers(0, 6)),
    st.tuples(st.just("budget"), st.integers(0, 2)),
    st.tuples(st.just("nothing"), st.none()),
    st.tuples(st.just("nothing"), st.none()),
)
configurations = st.sampled_from(
    [
        {},
        {"victim_probes": 11, "victim_probes_per_gang": 3, "actions": tuple(ACTIONS)[2:]},
        {"victim_probes": 11, "victim_probes_per_gang": 3},
        {"default_scores": (WeightedScore("frugal"),)},
        {"scores": (WeightedScore("fgd", 2), WeightedScore("best-fit"))},
        {"cooldown": 25.0},
    ]
)


class Course:
    """A cluster in which things happen, and what it did so far."""

    def __init__(self, options, slow):
        written = {"preemptMinRuntime": "35s", "reclaimMinRuntime": "20s"} if slow else {}
        queues = [queue(name, 2, **written) for name in QUEUES]
        nodes = [node(f"n{i}", 3) for i in range(NODES)]
        self.cluster = cluster(*queues, *nodes, **options)
        self.count = 0
        self.written = written

    def happens(self, event):
        match event:
            case ("comes", each):
                self.come(**each)
            case ("ends", number) if pods := self.cluster.all("pods"):
                ended = pods[number % len(pods)]
                self.cluster.add(replace(ended, status=replace(ended.status, phase="Succeeded")))
            case ("leaves", number) if pods := self.cluster.all("pods"):
                self.cluster.remove(pods[number % len(pods)])
            case ("node", number, gpus):
                self.cluster.add(node(f"n{number}", gpus))
            case ("queue", name, deserved):
                self.cluster.add(queue(name, deserved, **self.written))
            case ("budget", allowed):
                self.cluster.add(budget(allowed, "app-1"))

    def come(self, *, gpus, pods, queue, priority, on, fraction, apart):
        self.count += 1
        labels = {"app": "apart"} if apart else {"app": f"app-{self.count % 3}"}
        made = job_with_pods(
            f"j{self.count:02d}",
            pods,
            gpus=0 if fraction else gpus,
            queue=queue,
            priority=priority,
            created=float(self.count),
            node=on,
            labels=labels,
            **({"affinity": APART} if apart else {}),
        )
        if fraction:
            made = [made[0], *(shared(each, fraction) for each in made[1:])]
        self.cluster.add(made)


@pytest.mark.slow
@settings(max_examples=examples(70), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(events, st.sampled_from([0.0, 10.0])), min_size=8, max_size=30),
    configurations,
    st.booleans(),
    st.sampled_from(["carry out", "carry out", "forget"]),
)
def test_plans_with_and_without_the_cache_are_the_same(course, options, slow, after):
    cached, uncached = Course(options, slow), Course(options, slow)
    uncached.cluster.memory.search_cache = SearchCache(enabled=False)
    now = 100.0
    for event, passed in course:
        now += passed
        plans = []
        for each in (cached, uncached):
            each.happens(event)
            plans.append(each.cluster.plan(now))
            if after == "carry out":
                carry_out(each.cluster, plans[-1])
        assert plans[0] == plans[1]


@pytest.fixture
def work():
    """How many attempts to place pods and searches for victims were made, by name."""
    counts = Counter()

    def counted(owner, name):
        real = getattr(owner, name)

        def call(*args, **kwargs):
            counts[name] += 1
            return real(*args, **kwargs)

        return patch.object(owner, name, call)

    with counted(Placer, "place"), counted(VictimSearch, "run"):
        yield counts


def full_cluster(**options):
    """Two gangs of two queues run; one that needs both nodes waits for ever."""
    return cluster(
        queue("a", 2),
        queue("b", 2),
        node("n0", 2),
        node("n1", 2),
        job_with_pods("runs-a", 2, queue="a", node="n0"),
        job_with_pods("runs-b", 2, queue="b", node="n1"),
        job_with_pods("waits", 1, gpus=2, queue="a"),
        **options,
    )


def test_nothing_is_tried_again_while_nothing_changes(work):
    full = full_cluster()
    first = full.plan(100.0)
    assert first.is_empty
    assert work["place"] > 0
    work.clear()
    for seconds in range(1, 4):
        assert full.plan(100.0 + seconds) == first
    assert not work


def test_gangs_that_had_their_answer_have_no_turn_while_nothing_concerns_them(turns):
    full = full_cluster()
    first = full.plan(100.0)
    turns.clear()
    assert full.plan(101.0) == first
    full.add(job_with_pods("never", 1, gpus=2, queue="nowhere", created=50.0))
    second = full.plan(102.0)
    assert {each.gang for each in second.unplaced} == {"default/Job/waits", "default/Job/never"}
    assert turns == []
    full.remove(pod("runs-a-0", 1, queue="a", node="n0"))
    full.plan(103.0)
    assert "default/Job/waits" in turns


def test_a_gang_that_is_gone_is_not_listed_any_more():
    """All others keep their answers, as it was too large to count in the shares of queues."""
    full = full_cluster()
    never = job_with_pods("never", 1, gpus=3, queue="a", created=50.0)
    full.add(never)
    assert len(full.plan(100.0).unplaced) == 2
    for each in never:
        full.remove(each)
    assert [each.gang for each in full.plan(101.0).unplaced] == ["default/Job/waits"]


def test_a_gang_that_is_placed_gives_all_others_a_turn(turns):
    full = full_cluster()
    full.plan(100.0)
    turns.clear()
    full.add(job_with_pods("small", 1, gpus=0, queue="a", created=50.0))
    assert [each.gang for each in full.plan(101.0).placements] == ["default/Job/small"]
    assert "default/Job/waits" in turns


@pytest.mark.parametrize("counts", [(3, 2), (4, 3)])
def test_requests_with_the_same_alternatives_are_searched_once(work, counts):
    searches = []
    for number in (1, 20):
        full = cluster(queue("a", 2), queue("b", 2), node("n0", 0), gpu_slice("n0", 4))
        full.add(device_class(), *(asking(f"runs-{i}", 1, held=(f"gpu-{i}",)) for i in range(4)))
        full.add(*(asking(f"waits-{i}", *counts, queue="a") for i in range(number)))
        work.clear()
        assert full.plan(100.0).is_empty
        searches.append(work["run"])
        work.clear()
        full.plan(101.0)
        assert work["run"] == 0
    assert searches[0] == searches[1]


def test_gangs_that_come_and_ask_the_same_are_told_the_same(work):
    full = full_cluster(actions=(Action.ALLOCATE, Action.CONSOLIDATE, Action.PREEMPT))
    full.plan(100.0)
    work.clear()
    full.add(job_with_pods("waits-too", 1, gpus=2, queue="a", created=50.0))
    told = {each.gang: each.message for each in full.plan(101.0).unplaced}
    assert len(set(told.values())) == 1
    assert len(told) == 2
    assert not work


@pytest.mark.parametrize("pods", [1, 2])
def test_gangs_that_ask_the_same_are_told_of_their_own_pods(pods):
    full = full_cluster(actions=(Action.ALLOCATE,))
    full.add(job_with_pods("pair", 2, gpus=2, queue="a", created=1.0))
    full.add(job_with_pods("later", pods, gpus=2, queue="a", created=50.0))
    for seconds in range(2):
        short = {each.gang: each.shortage for each in full.plan(100.0 + seconds).unplaced}
        assert short["default/Job/pair"].pod.name == "pair-0"
        assert short["default/Job/waits"].pod is None, "it has one pod only"
        named = short["default/Job/later"].pod
        assert named is None if pods == 1 else named.name == "later-0"


def fragmented(**options):
    """One GPU is free on each node; the pods there could be moved, were there any probes."""
    return cluster(
        queue("a", 8),
        *(node(f"n{i}", 3) for i in range(4)),
        *(job_with_pods(f"r{i}", 1, gpus=2, queue="a", node=f"n{i}") for i in range(4)),
        job_with_pods("waits", 1, gpus=3, queue="a", created=9.0),
        actions=(Action.ALLOCATE, Action.CONSOLIDATE),
        victim_probes_per_gang=1,
        **options,
    )


def stage(plan):
    (left,) = plan.unplaced
    return left.stage, left.message.rpartition("; ")[2]


def test_a_search_for_moves_that_ran_out_rests_until_a_pod_has_left(work):
    tight = fragmented()
    rests = (
        Stage.SEARCH_BUDGET,
        "the search is repeated once a pod has ended or a node has been added.",
    )
    assert stage(tight.plan(100.0)) == rests
    assert work["run"] == 1
    work.clear()
    tight.add(job_with_pods("small", 1, gpus=1, queue="a", node="n0"))
    assert stage(tight.plan(101.0)) == rests
    assert work["run"] == 0, "more pods give no gang capacity"
    tight.remove(pod("r3-0", 2, queue="a", node="n3"))
    assert {each.gang: each.pods[0].node for each in tight.plan(102.0).placements} == {
        "default/Job/waits": "n3"
    }


def test_a_gang_whose_search_rests_has_no_turn_while_nothing_changes(work, turns):
    tight = fragmented()
    rests = [tight.plan(100.0 + seconds).unplaced for seconds in range(2)]
    turns.clear()
    work.clear()
    for seconds in range(2, 5):
        assert tight.plan(100.0 + seconds).unplaced == rests[1]
    assert turns == []
    tight.add(job_with_pods("small", 1, gpus=1, queue="a", node="n0"))
    assert "default/Job/waits" in {each.gang for each in tight.plan(105.0).unplaced}
    assert turns == ["default/Job/waits"]
    assert work["run"] == 0, "it rests since before the cycles in which nothing changed"


@pytest.mark.parametrize("change", ["left", "node", "grown"])
def test_what_may_give_capacity_ends_the_rest(work, change):
    tight = fragmented()
    tight.add(job_with_pods("tiny", 1, gpus=0, queue="a", node="n0"))
    tight.plan(100.0)
    work.clear()
    if change == "left":
        tight.remove(pod("tiny-0", 0, queue="a", node="n0"))
    else:
        tight.add(node("n9" if change == "node" else "n0", 1 if change == "node" else 3, cpu="65"))
    tight.plan(101.0)
    assert work["run"] == 1


def test_capacity_that_a_gang_was_given_and_never_took_ends_the_rest(work):
    tight = fragmented()
    first = pod("first", 1, queue="a", priority=1)
    tight.add(first)
    started = tight.plan(100.0)
    assert [gang.gang for gang in started.placements] == ["default/Pod/first"]
    assert [each.stage for each in started.unplaced] == [Stage.SEARCH_BUDGET]
    work.clear()
    tight.remove(first)
    tight.plan(101.0)
    assert work["run"] == 1


def test_a_search_rests_for_pods_that_ask_for_more(work):
    tight = fragmented()
    tight.plan(100.0)
    work.clear()
    for name, cpu in (("more", "2"), ("less", "0.5")):
        tight.add(job_with_pods(name, 1, gpus=3, queue="a", created=9.0, requests={"cpu": cpu}))
        tight.plan(101.0)
        assert work["run"] == (name == "less")
