"""Where pod rules or node limits refuse a pod whatever is evicted, no victims are tried for it."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import (
    Affinity,
    ContainerPort,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from kai_py.plan.victims import never_fits, solver
from kai_py.plan.victims.trials import TrialPlacements
from tests.plan.mixed_worlds import mixed_world
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import cluster, job, node, pod, queue

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SELECTED = LabelSelector(match_labels={"app": "db"})
DB = {"labels": {"app": "db"}}


def near_or_far(field, key, selector=SELECTED):
    term = PodAffinityTerm(label_selector=selector, topology_key=key)
    return {"affinity": Affinity(**{field: PodAffinity(required=(term,))})}


def spread(key):
    rule = TopologySpreadConstraint(
        max_skew=1, topology_key=key, when_unsatisfiable="DoNotSchedule", label_selector=SELECTED
    )
    return {"topology_spread_constraints": (rule,)}


def zones(*added, low="has"):
    """Three zones of two nodes with two GPUs each; ``low`` uses all but one of each zone."""
    nodes = [node(f"n{i}", 2, labels={ZONE: f"z{i % 3}"}) for i in range(6)]
    others = [
        pod(f"runs{i}", queue=low, node=f"n{i % 6 + i // 6 * 3}", created=-9999) for i in range(9)
    ]
    return cluster(queue("has", 0), queue("waits", 12), nodes, others, *added)


def plan_and_trials(world):
    """The plan, and how many placements were tried in it after evictions."""
    tried, original = [], TrialPlacements._place_without

    def place(trials, units):
        tried.extend([units] if units else [])
        return original(trials, units)

    with patch.object(TrialPlacements, "_place_without", place):
        return world.plan(100.0), len(tried)


def replicas(*nodes, **rules):
    """Pods of ``waits`` on these nodes, and one more that waits."""
    running = [
        pod(f"db-{i}", queue="waits", node=name, created=-9999, **DB, **rules)
        for i, name in enumerate(nodes)
    ]
    return [*running, pod("db-waits", queue="waits", **DB, **rules)]


APART_FROM_NEW = "pod_anti_affinity", ZONE, LabelSelector(match_labels={"app": "new"})
APART = near_or_far("pod_anti_affinity", ZONE)
IMPOSSIBLE = {
    "more replicas than zones": replicas("n0", "n1", "n2", **APART),
    "nothing to be near": replicas(
        **near_or_far("pod_affinity", ZONE, LabelSelector(match_labels={"app": "none"}))
    ),
    "skew between zones": [
        *replicas("n0", "n1", "n2", **spread(ZONE)),
        node("n6", 0, labels={ZONE: "z3"}, unschedulable=True),
    ],
}


@pytest.mark.parametrize("pods", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
@pytest.mark.parametrize("low", ["has", "waits"])
def test_no_victims_are_tried_where_a_rule_refuses_all_nodes(pods, low):
    """Neither for reclaim nor, among pods of the same queue, for consolidation."""
    plan, trials = plan_and_trials(zones(*pods, low=low))
    assert not plan.evictions
    assert [each.gang for each in plan.unplaced] == ["default/Pod/db-waits"]
    assert trials == 0


def with_port(made, number):
    main = replace(made.spec.containers[0], ports=(ContainerPort(host_port=number),))
    return replace(made, spec=replace(made.spec, containers=(main,)))


def test_no_victims_are_tried_where_pods_of_others_use_the_port_on_all_nodes():
    agents = [pod(f"agent{i}", 0, node=f"n{i}", scheduler_name="other") for i in range(6)]
    agents = [with_port(each, 80) for each in agents]
    more = [pod(f"more{i}", queue="has", node=f"n{i}", created=-9999) for i in range(3)]
    for number, evicted in ((80, 0), (81, 1)):
        new = with_port(pod("new", queue="waits"), number)
        plan, trials = plan_and_trials(zones(*agents, *more, new))
        assert len(plan.evictions) == evicted
        assert bool(trials) == bool(evicted)


def test_pods_that_refuse_each_other_need_a_domain_each_also_once_they_are_relocated():
    """Each zone has idle GPUs and a replica; in a fourth one no pod can start, but they might."""
    pods = replicas("n0", "n1", "n2", **APART)
    nodes = [node(f"n{i}", 2, labels={ZONE: f"z{i % 3}"}) for i in range(6)]
    more = node("n6", 2, labels={ZONE: "z3"}, unschedulable=True)
    for added, tries in (([], False), ([more], True)):
        plan, trials = plan_and_trials(cluster(queue("waits", 12), nodes, pods, added))
        assert bool(trials) == tries
        assert not plan.evictions


@pytest.mark.parametrize("rules", [{}, APART], ids=["without rules", "with the same rules"])
def test_the_pod_that_is_in_the_way_is_evicted(rules):
    """A replica of another queue is in the zone that is left."""
    mine = replicas("n0", "n1", **APART)
    theirs = pod("theirs", queue="has", node="n2", created=-9999, **DB, **rules)
    plan, _ = plan_and_trials(zones(*mine, theirs))
    assert [each.pod.name for each in plan.evictions] == ["theirs"]


def test_a_pod_that_refuses_others_is_evicted():
    refusing = [
        pod(f"refuses{i}", queue="has", node=f"n{i}", created=-9999, **near_or_far(*APART_FROM_NEW))
        for i in range(3)
    ]
    plan, _ = plan_and_trials(zones(*refusing, pod("new", queue="waits", labels={"app": "new"})))
    assert [each.pod.name for each in plan.evictions] in [[f"refuses{i}"] for i in range(3)]


def test_a_pod_that_uses_the_port_is_evicted():
    using = [
        with_port(pod(f"uses{i}", queue="has", node=f"n{i}", created=-9999), 80) for i in range(3)
    ]
    agents = [pod(f"agent{i}", 0, node=f"n{i}", scheduler_name="other") for i in range(3, 6)]
    new = with_port(pod("new", queue="waits"), 80)
    plan, _ = plan_and_trials(zones(*using, *(with_port(each, 80) for each in agents), new))
    assert [each.pod.name for each in plan.evictions] in [[f"uses{i}"] for i in range(3)]


def tied(name, pods, gpus, key):
    """A Job whose pods must share a domain; each has a size of its own."""
    rule = near_or_far("pod_affinity", key, LabelSelector(match_labels={"job": name}))
    made = job(name, pods, "waits", **{"scheduling.kai.io/min-available": str(pods)})
    each = [
        pod(
            f"{name}-{i}",
            gpus,
            owner=made,
            labels={"job": name},
            requests={"nvidia.com/gpu": str(gpus), "cpu": str(1 + i)},
            **rule,
        )
        for i in range(pods)
    ]
    return [made, *each]


@pytest.mark.parametrize(("pods", "evicts"), [(4, True), (5, False)])
def test_pods_tied_to_one_domain_are_not_searched_for_if_none_is_large_enough(pods, evicts):
    plan, trials = plan_and_trials(zones(*tied("tied", pods, 1, ZONE)))
    assert bool(plan.evictions) == evicts
    assert bool(trials) == evicts


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_plans_are_the_same_if_all_nodes_are_tried(seed):
    plan = mixed_world(seed).plan()
    with (
        patch.object(solver, "possible_nodes", lambda _: {}),
        patch.object(never_fits, "_exceeds_domains", lambda *_: False),
    ):
        assert repr(mixed_world(seed).plan()) == repr(plan)


@pytest.mark.parametrize(("pods", "tries"), [(3, True), (4, False)])
def test_pods_of_several_sizes_that_exclude_each_other_need_a_domain_each(pods, tries):
    rule = near_or_far("pod_anti_affinity", ZONE, LabelSelector(match_labels={"job": "apart"}))
    made = job("apart", pods, "waits", **{"scheduling.kai.io/min-available": str(pods)})
    each = [
        pod(f"apart-{i}", owner=made, labels={"job": "apart"}, requests={"cpu": str(1 + i)}, **rule)
        for i in range(pods)
    ]
    more = [pod(f"more{i}", queue="has", node=f"n{i}", created=-9999) for i in range(3)]
    plan, trials = plan_and_trials(zones(made, *each, *more))
    assert bool(trials) == bool(plan.evictions) == tries
