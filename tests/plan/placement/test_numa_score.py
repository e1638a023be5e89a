"""Of nodes that take a pod, it goes where it gets by with the fewest NUMA zones."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.choices import BuiltInScore, FillStrategy
from kai_py.api.records.core import Container, Pod, ResourceRequirements
from kai_py.api.records.node import Taint
from kai_py.policy.score.registry import WeightedScore
from tests.plan.state.limits.test_numa import report, whole
from tests.support.examples import examples
from tests.support.scenario import cluster, job_with_pods, node, placed, queue

FRUGAL, SPREAD = (
    {"default_scores": (WeightedScore(BuiltInScore.FRUGAL),)},
    {"cpu_strategy": FillStrategy.SPREAD},
)
POLICIES = ["best-effort", "none", "restricted", "something-new"]


def aligned(name, *available, policy="best-effort", cpu="8", scope="pod"):
    """A node of which so many CPUs are free in each zone, and its report."""
    return [node(name, 0, cpu=cpu), report(name, *available, policy=policy, scope=scope)]


def world(*objects, **settings):
    return cluster(queue("q", 64), *objects, **settings)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "chosen",
    [{}, FRUGAL, SPREAD, *({"scores": (WeightedScore(each),)} for each in BuiltInScore)],
    ids=str,
)
def test_one_zone_comes_before_two(policy, chosen):
    """The other node is fuller and first by name, so packing alone would take it."""
    tight = aligned("a", 2, 2, policy="best-effort", cpu="4")
    assert placed(world(tight, whole("p", 3), **chosen).plan()) == {"p": "a"}
    one_zone = aligned("b", 4, 0, policy=policy)
    assert placed(world(tight, one_zone, whole("p", 3), **chosen).plan()) == {"p": "b"}


def test_a_node_without_a_report_counts_as_one_zone():
    found = world(aligned("a", 2, 2), node("b", 0, cpu="8"), whole("p", 3)).plan()
    assert placed(found) == {"p": "b"}


def test_the_words_of_the_old_version_tell_the_scope():
    two = with_cpus(whole("p", 3), 3, 3)
    split = [node("a", 0), report("a", 3, 3, old_word="BestEffortContainerLevel")]
    whole_pod = [node("b", 0), report("b", 3, 3, old_word="BestEffortPodLevel")]
    assert placed(world(whole_pod, split, two).plan()) == {"p": "a"}


def containers(*cpus):
    return tuple(
        Container(name=f"c{i}", resources=ResourceRequirements(requests=asked, limits=asked))
        for i, cpu in enumerate(cpus)
        if (asked := {"cpu": str(cpu), "memory": "1Gi"})
    )


def test_what_users_state_comes_first():
    avoided = Taint(key="quiet", effect="PreferNoSchedule")
    one_zone = [node("b", 0, taints=(avoided,)), report("b", 4, 0, policy="none")]
    assert placed(world(aligned("a", 2, 2), one_zone, whole("p", 3)).plan()) == {"p": "a"}


def test_pods_of_one_cycle_use_the_zones_up():
    """Each node has one zone for a pod of 3, and capacity for two of them."""
    nodes = [aligned(name, 4, 2) for name in "abc"]
    found = placed(world(*nodes, [whole(f"p{i}", 3) for i in range(3)]).plan())
    assert sorted(found.values()) == ["a", "b", "c"]
    found = placed(world(*nodes, [whole(f"p{i}", 3) for i in range(5)]).plan())
    assert len(found) == 5, "no pod is refused"


def test_a_victim_frees_the_zone_that_counts():
    """Capacity comes free on both nodes; only one of them has it in one zone."""
    nodes = aligned("a", 2, 0, cpu="4"), aligned("b", 1, 0, cpu="4")
    seen = {"a": "node-1", "b": "node-1"}
    leaving = [
        whole(f"old-{name}", size, node=name, zone=seen[name], leaving=True)
        for name, size in (("a", 2), ("b", 3))
    ]
    found = world(*nodes, leaving, whole("p", 3)).plan()
    assert [(each.pod.name, each.node) for each in found.nominations] == [("p", "b")]


ZONES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3)


@settings(max_examples=examples(40), deadline=None)
@given(ZONES, st.integers(1, 5), st.integers(1, 4), st.sampled_from([{}, FRUGAL, SPREAD]))
def test_a_gang_needs_as_few_zones_as_any_placement(free, cpus, pods, chosen):
    """Against every way to share the pods out; a pod may get what is in no zone."""
    members = [with_cpus(each, cpus) for each in job_with_pods("j", pods, 0, queue="q")]
    nodes = [aligned(f"n{row}", *each) for row, each in enumerate(free)]
    found = placed(world(*nodes, members, **chosen).plan())
    needs = [needs_of(list(each), cpus, 8 // cpus) for each in free]
    ways = [
        sum(sum(needs[row][:count]) for row, count in enumerate(way))
        for way in product(*(range(len(each) + 1) for each in needs))
        if sum(way) == pods
    ]
    assert bool(found) == bool(ways)
    if found:
        counts = [list(found.values()).count(f"n{row}") for row in range(len(free))]
        assert sum(sum(needs[row][:count]) for row, count in enumerate(counts)) == min(ways)


def with_cpus(made, *cpus):
    """The pod with whole CPUs, Guaranteed; anything else as it is."""
    if not isinstance(made, Pod):
        return made
    return replace(made, spec=replace(made.spec, containers=containers(*cpus)))


def needs_of(free, cpus, pods):
    """Zones that one pod after the other needs: one, or both."""
    needs = []
    for _ in range(pods):
        zone = next((at for at in (0, 1) if free[at] >= cpus), None)
        needs.append(1 if zone is not None else 2)
        if zone is not None:
            free[zone] -= cpus
        else:
            lacking = cpus
            for at in (0, 1):
                part = min(lacking, free[at])
                free[at], lacking = free[at] - part, lacking - part
    return needs
