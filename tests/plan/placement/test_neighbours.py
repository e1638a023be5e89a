"""Rules between pods, as a user writes them, over what runs and what the same cycle places."""

from unittest.mock import patch

import msgspec
import pytest

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kai_py.api.records.node import Taint
from kai_py.plan.victims.search import VictimSearch
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.scenario import at, cluster, evicted, job_with_pods, node, placed, pod, queue

WEB = {"app": "web"}
HOST = "kubernetes.io/hostname"


def racks(count=2, per_rack=2):
    return [
        node(f"r{r}n{n}", labels={"rack": f"r{r}"}) for r in range(count) for n in range(per_rack)
    ]


def term(key="rack", labels=None):
    selector = LabelSelector(match_labels=labels or WEB)
    return PodAffinityTerm(label_selector=selector, topology_key=key)


def near(key="rack"):
    return Affinity(pod_affinity=PodAffinity(required=(term(key),)))


def away(key="rack"):
    return Affinity(pod_anti_affinity=PodAffinity(required=(term(key),)))


def test_affinity_follows_the_pods_it_selects():
    plan = cluster(
        *racks(),
        queue("q", 8),
        pod("web", queue="q", node="r1n0", labels=WEB),
        pod("new", queue="q", affinity=near()),
    ).plan()
    assert placed(plan)["new"].startswith("r1")


def test_one_pod_must_be_selected_by_all_terms_of_an_affinity():
    both = Affinity(pod_affinity=PodAffinity(required=(term(), term(labels={"tier": "front"}))))
    front = {"tier": "front"}
    apart = [
        pod("web", queue="q", node="r1n0", labels=WEB),
        pod("front", queue="q", node="r1n0", labels=front),
    ]
    asked = pod("new", queue="q", affinity=both)
    assert placed(cluster(*racks(), queue("q", 8), apart, asked).plan()) == {}
    one = pod("both", queue="q", node="r0n0", labels=WEB | front)
    assert placed(cluster(*racks(), queue("q", 8), apart, one, asked).plan())["new"][:2] == "r0"


def test_affinity_to_no_pod_waits_and_says_why():
    plan = cluster(*racks(), queue("q", 8), pod("new", queue="q", affinity=near())).plan()
    assert placed(plan) == {}
    assert "4 didn't match pod affinity rules" in plan.unplaced[0].message


def test_a_group_with_affinity_to_itself_can_begin():
    pods = [pod(f"w{i}", 4, queue="q", labels=WEB, affinity=near()) for i in range(4)]
    plan = cluster(*racks(), queue("q", 16), pods).plan()
    assert len(placed(plan)) == 4
    assert len({name[:2] for name in placed(plan).values()}) == 1


def test_anti_affinity_counts_pods_of_the_same_cycle():
    pods = [pod(f"w{i}", queue="q", labels=WEB, affinity=away(), created=i) for i in range(3)]
    plan = cluster(*racks(), queue("q", 8), pods).plan()
    assert sorted(placed(plan)) == ["w0", "w1"]
    assert len({name[:2] for name in placed(plan).values()}) == 2


def test_pods_that_run_may_refuse_newcomers():
    loner = pod("loner", queue="q", node="r0n0", labels=WEB, affinity=away())
    plan = cluster(*racks(1), queue("q", 8), loner, pod("web", queue="q", labels=WEB)).plan()
    assert placed(plan) == {}
    assert "existing pods anti-affinity" in plan.unplaced[0].message
    other = cluster(*racks(1), queue("q", 8), loner, pod("db", queue="q", labels={"app": "db"}))
    assert list(placed(other.plan())) == ["db"]


def test_a_refusal_that_comes_late_holds_for_pods_that_wait_already():
    world = cluster(*racks(1), queue("q", 8), pod("web", queue="q", labels=WEB))
    world.add(pod("loner", queue="q", node="r0n0", labels=WEB, affinity=away()))
    assert placed(world.plan()) == {}


def spread_over_hosts(**policies):
    """Node a holds a pod; the new one may go to a, and tolerates no taint of c."""
    rule = TopologySpreadConstraint(
        topology_key=HOST, label_selector=LabelSelector(match_labels=WEB), **policies
    )
    up = {"up": "yes"}
    new = pod("new", queue="q", labels=WEB, node_selector=up, topology_spread_constraints=(rule,))
    return placed(
        cluster(
            node("a", labels=up),
            node("b"),
            node("c", labels=up, taints=(Taint(key="t", effect="NoSchedule"),)),
            queue("q", 9),
            pod("on-a", node="a", queue="q", labels=WEB),
            new,
        ).plan()
    )


def test_tainted_nodes_count_for_spread_unless_their_taints_are_honoured():
    assert spread_over_hosts() == {}, "c is empty, and counts"
    assert spread_over_hosts(node_taints_policy="Honor") == {"new": "a"}


def test_nodes_out_of_the_pods_choice_count_for_spread_only_where_it_is_ignored():
    honoured = {"node_taints_policy": "Honor"}
    assert spread_over_hosts(node_affinity_policy="Honor", **honoured) == {"new": "a"}
    assert spread_over_hosts(node_affinity_policy="Ignore", **honoured) == {}, "b is empty"


def test_nodes_without_the_labels_of_all_rules_do_not_count_for_any():
    """Node b has no rack: it is no empty host to be level with."""
    both = tuple(
        TopologySpreadConstraint(topology_key=key, label_selector=LabelSelector(match_labels=WEB))
        for key in (HOST, "rack")
    )
    new = pod("new", queue="q", labels=WEB, topology_spread_constraints=both)
    standing = pod("on-a", node="a", queue="q", labels=WEB)
    nodes = (node("a", labels={"rack": "r"}), node("b"))
    assert placed(cluster(*nodes, queue("q", 9), standing, new).plan()) == {"new": "a"}


def test_spread_keeps_domains_level():
    rule = TopologySpreadConstraint(
        max_skew=1, topology_key="rack", label_selector=LabelSelector(match_labels=WEB)
    )
    pods = [
        pod(f"w{i}", queue="q", labels=WEB, topology_spread_constraints=(rule,)) for i in range(6)
    ]
    plan = cluster(*racks(3, 1), queue("q", 8), pods).plan()
    counts = [list(placed(plan).values()).count(f"r{r}n0") for r in range(3)]
    assert counts == [2, 2, 2]


def test_preferred_affinity_attracts_but_does_not_bind():
    preferred = WeightedPodAffinityTerm(weight=50, pod_affinity_term=term(HOST))
    wish = Affinity(pod_affinity=PodAffinity(preferred=(preferred,)))
    world = (*racks(1, 3), queue("q", 30), pod("web", queue="q", node="r0n2", labels=WEB))
    assert placed(cluster(*world, pod("new", queue="q", affinity=wish)).plan())["new"] == "r0n2"
    big = pod("new", 8, queue="q", affinity=wish)
    assert placed(cluster(*world, big).plan())["new"] != "r0n2"


def test_no_pod_is_evicted_for_pods_that_need_more_domains_than_there_are():
    def waits(pods, per_rack=2):
        gang = job_with_pods("g", pods, 2, queue="mine", labels=WEB, affinity=away(), created=99)
        running = [
            pod(f"r{i}", 8, queue="theirs", node=f"r{i // per_rack}n{i % per_rack}")
            for i in range(2 * per_rack)
        ]
        nodes = racks(2, per_rack)
        return cluster(*nodes, queue("mine", 32), queue("theirs"), running, gang).plan()

    with patch.object(VictimSearch, "run", autospec=True, side_effect=VictimSearch.run) as search:
        assert evicted(waits(3)) == []
        assert search.call_count == 0
        assert len(evicted(waits(2))) == 2


def test_nodes_without_the_label_hold_any_number_of_pods_that_refuse_each_other():
    nodes = [*racks(), node("bare")]
    gang = job_with_pods("g", 4, 2, queue="mine", labels=WEB, affinity=away(), created=99)
    running = [pod("r", 8, queue="theirs", node="bare")]
    plan = cluster(*nodes, queue("mine", 32), queue("theirs"), running, gang).plan()
    assert evicted(plan) == ["r"]


def test_a_victim_of_a_pod_that_refuses_it_does_not_stay():
    """Whoever is told of first, the pod that refuses or the pod that runs."""
    runs = pod("web", queue="q", node="a", labels=WEB)
    waits = pod("new", queue="q", affinity=away(HOST), node_selector={HOST: "a"})
    nodes = [node(name, labels={HOST: name}) for name in "ab"]
    for told in ([runs, waits], [waits, runs]):
        plan = cluster(*nodes, queue("q", 8), *told).plan()
        assert [(e.pod.name, e.relocated_to) for e in plan.evictions] == [("web", "b")]
        assert [(n.pod.name, n.node) for n in plan.nominations] == [("new", "a")]


def test_pods_of_a_gang_that_a_newcomer_refuses_do_not_stay_with_it():
    runs = job_with_pods("web", 2, queue="q", node="a", labels=WEB)
    waits = pod("new", queue="q", affinity=away(HOST), node_selector={HOST: "a"})
    nodes = [node(name, labels={HOST: name}) for name in "ab"]
    plan = cluster(*nodes, queue("q", 8), runs, waits).plan()
    assert {e.relocated_to for e in plan.evictions} == {"b"}
    assert len(plan.evictions) == 2


def test_pods_that_refuse_each_other_never_share_an_empty_node():
    shy = pod("shy", queue="q", labels={"app": "db"}, affinity=away(HOST))
    for first in (0, 1):
        web = [pod(f"web-{i}", queue="q", labels=WEB, created=2.0 * first) for i in range(2)]
        waiting = [*web, msgspec.structs.replace(shy, metadata=created(shy, 1.0))]
        plan = cluster(node("a"), queue("q", 8), waiting).plan()
        assert sorted(placed(plan)) == (["web-0", "web-1"] if not first else ["shy"])
        plan = cluster(node("a"), node("b"), queue("q", 8), waiting).plan()
        where = placed(plan)
        assert len(where) == 3
        assert where["shy"] not in (where["web-0"], where["web-1"])


def test_a_gang_whose_pods_refuse_each_other_is_not_promised_capacity_that_does_not_help():
    job = job_with_pods("gang", 2, queue="q", priority=9)
    labelled = [
        msgspec.structs.replace(
            each,
            metadata=msgspec.structs.replace(each.metadata, labels=labels),
            spec=msgspec.structs.replace(each.spec, affinity=affinity),
        )
        for each, labels, affinity in zip(
            job[1:], ({"app": "db"}, WEB), (away(HOST), None), strict=True
        )
    ]
    waits = cluster(node("a"), queue("q", 8), job[0], labelled).plan()
    assert placed(waits) == {}
    assert not waits.nominations
    runs = pod("low", 8, queue="q", node="a")
    plan = cluster(node("a"), queue("q", 8), runs, job[0], labelled).plan()
    assert evicted(plan) == []
    assert not plan.nominations


def created(each, seconds):
    return msgspec.structs.replace(each.metadata, creation_timestamp=at(seconds))


def test_no_pod_is_moved_to_where_the_spread_of_the_beneficiary_breaks():
    rule = TopologySpreadConstraint(
        topology_key=HOST, label_selector=LabelSelector(match_labels=WEB)
    )
    plan = cluster(
        node("a"),
        node("b", unschedulable=True),
        queue("q", 9),
        pod("on-a", node="a", queue="q", labels=WEB),
        pod("new", queue="q", labels=WEB, topology_spread_constraints=(rule,)),
    ).plan()
    assert placed(plan) == {}
    assert evicted(plan) == []
    assert not plan.nominations


def test_an_empty_selector_of_a_spread_constraint_counts_no_pod():
    rule = TopologySpreadConstraint(topology_key=HOST, label_selector=LabelSelector())
    new = pod("new", queue="q", labels=WEB, topology_spread_constraints=(rule,))
    runs = [pod(f"runs-{i}", node="a", queue="q", labels=WEB) for i in range(3)]
    nodes = (node("a"), node("b", unschedulable=True))
    assert placed(cluster(*nodes, queue("q", 9), runs, new).plan()) == {"new": "a"}


def test_a_pod_that_is_stuck_terminating_refuses_and_does_not_count_for_spread():
    even = TopologySpreadConstraint(
        topology_key=HOST, label_selector=LabelSelector(match_labels=WEB)
    )
    nodes = (node("a"), node("b", unschedulable=True))
    stuck = pod("stuck", node="a", queue="q", labels=WEB, leaving=True)
    spreads = pod("new", queue="q", labels=WEB, topology_spread_constraints=(even,))
    assert placed(cluster(*nodes, queue("q", 9), stuck, spreads).plan(now=90_000)) == {"new": "a"}
    refuses = pod("new", queue="q", labels=WEB, affinity=away(HOST))
    assert placed(cluster(*nodes, queue("q", 9), stuck, refuses).plan(now=90_000)) == {}


@pytest.mark.slow
def test_each_of_thousands_of_spread_constraints_costs_the_same():
    keys = [f"zone-{i}" for i in range(6000)]
    spread = tuple(
        TopologySpreadConstraint(topology_key=key, label_selector=LabelSelector(match_labels=WEB))
        for key in keys
    )
    new = pod("new", queue="q", topology_spread_constraints=spread)
    labelled = node("labelled", labels=dict.fromkeys(keys, "one"))
    with cpu_limit(processor_seconds(10.0)):
        plan = cluster(labelled, node("bare"), queue("q", 9), new).plan()
    assert placed(plan) == {"new": "labelled"}


@pytest.mark.parametrize("keys", [1, 6000], ids=["one-key", "a-key-each"])
def test_each_of_thousands_of_affinity_terms_costs_the_same(keys):
    terms = tuple(term(HOST if i % keys == 0 else f"key-{i}", {"n": str(i)}) for i in range(6000))
    affinity = Affinity(pod_affinity=PodAffinity(required=terms))
    new = pod("new", queue="q", affinity=affinity)
    with cpu_limit(processor_seconds(10.0)):
        plan = cluster(node("a"), node("b"), queue("q", 9), new, pod("other", queue="q")).plan()
    assert set(placed(plan)) == {"other"}
