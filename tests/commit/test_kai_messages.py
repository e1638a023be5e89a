"""KAI's words for why a gang waits."""

from kai_py.commit.statuses.kai_messages import kai_message, with_kai_messages
from kai_py.plan.plan import Stage
from tests.dialects.feeding import NOW
from tests.dialects.feeding import Cluster as Documents
from tests.dialects.feeding import node as document_node
from tests.dialects.feeding import pod as document_pod
from tests.dialects.kai.objects import QUEUE, kai_queue, member, members, pod_group, priority_class
from tests.support.scenario import cluster, job_with_pods, node, pod, queue


def told(*objects):
    [unplaced] = cluster(*objects).plan().unplaced
    return kai_message(unplaced)


def test_a_gang_says_how_many_found_capacity_and_what_nodes_lack():
    nodes = [node("a", 1), node("b", 1)]
    assert told(*nodes, queue("q", 8), job_with_pods("big", 3, queue="q")) == (
        "Resources were found for 2 pods while 3 are required for gang scheduling. Additional pods "
        "cannot be scheduled due to: no nodes with enough resources were found: 2 node(s) didn't "
        "have enough resources: GPUs."
    )


def test_of_a_gang_with_subgroups_the_one_that_lacks_capacity_is_named():
    subgroups = [{"name": "decode", "minMember": 1}, {"name": "prefill", "minMember": 3}]
    marks = "kai.scheduler/subgroup-name"
    pods = [
        kai_pod("d", annotations=IN_G, labels={marks: "decode"}),
        *(kai_pod(f"p-{i}", 2, annotations=IN_G, labels={marks: "prefill"}) for i in range(3)),
    ]
    group = pod_group("g", subGroups=subgroups)
    plan = reworded(kai_queue("q", **UNLIMITED), document_node("n", 4), group, pods)
    assert plan.unplaced[0].message.startswith(
        "Resources were found for 2 pods from all sub-groups while sub-group prefill requires 3 "
        "pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to: "
    )


SUBGROUP = "kai.scheduler/subgroup-name"


def in_subgroups(floors, nodes, **runs):
    """What a PodGroup says of which subgroup ``s`` has pods ``s-0``, … of one GPU each."""
    leaves = [{"name": name, "minMember": floor} for name, floor in floors.items()]
    pods = [
        kai_pod(f"{name}-{i}", annotations=IN_G, labels={SUBGROUP: name}, **runs.get(name, {}))
        for name, floor in floors.items()
        for i in range(floor)
    ]
    plan = reworded(kai_queue("q", **UNLIMITED), nodes, pod_group("g", subGroups=leaves), pods)
    return plan.unplaced[0].message.partition(" due to: ")[0]


def test_pods_of_all_subgroups_are_counted_and_the_first_that_lacks_capacity_is_named():
    assert in_subgroups({"decode": 1, "prefill": 3}, document_node("n", 2)) == (
        "Resources were found for 2 pods from all sub-groups while sub-group prefill requires 3 "
        "pods for gang scheduling. Additional pods cannot be scheduled in this sub-group"
    )


def test_pods_that_found_capacity_in_a_domain_of_their_own_are_counted():
    rack = {"topology": "racks", "requiredTopologyLevel": "rack"}
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    leaves = [
        {"name": "decode", "minMember": 2, "topologyConstraint": rack},
        {"name": "prefill", "minMember": 3},
    ]
    pods = [
        kai_pod(f"{name}-{i}", annotations=IN_G, labels={SUBGROUP: name})
        for name in ("decode", "prefill")
        for i in range(3)
    ]
    nodes = document_node("n", 3, {"rack": "a"})
    group = pod_group("g", subGroups=leaves)
    plan = reworded(kai_queue("q", **UNLIMITED), topology, nodes, group, pods)
    assert plan.unplaced[0].message.startswith(
        "Resources were found for 3 pods from all sub-groups while sub-group prefill requires 3 "
    )


def test_a_subgroup_of_which_pods_run_requires_what_it_always_did():
    running = {"nodeName": "n"}
    assert in_subgroups({"a": 2, "b": 2}, document_node("n", 2), a=running) == (
        "Resources were found for 0 pods from all sub-groups while sub-group b requires 2 pods for "
        "gang scheduling. Additional pods cannot be scheduled in this sub-group"
    )


def test_where_every_subgroup_needs_one_pod_the_one_that_lacks_capacity_is_named():
    assert in_subgroups({"a": 1, "b": 1}, document_node("n", 1)) == (
        "Resources were not found for pod default/b-0"
    )


def test_a_single_pod_is_named():
    assert told(node("a", 0), queue("q", 8), pod("p", queue="q")) == (
        "Resources were not found for pod default/p due to: no nodes with enough resources were "
        "found: 1 node(s) didn't have enough resources: GPUs."
    )


def test_a_missing_queue_is_quoted_as_kai_does_and_a_limit_is_worded_alike():
    assert told(node("a"), pod("p", queue="gone")) == "Queue 'gone' does not exist"
    limited = told(node("a"), queue("q", 1, 1), pod("p", gpus=2, queue="q"))
    assert limited == (
        "Infeasible: it requests 2 GPUs at once; max of queue q is 1. "
        "q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs "
        "allocated and workload requested 2 GPUs."
    )


Q = {"kai.scheduler/queue": "q"}
UNLIMITED = {"quota": -1, "limit": -1}
IN_G = {"pod-group-name": "g"}
VICTIM_AND_WINNER = (("low", {"nodeName": "n"}), ("high", {}))


def kai_pod(name, gpus=1, **parts):
    labels = parts.pop("labels", {}) | Q
    return document_pod(name, gpus, labels=labels, **parts)


def reworded(*objects, now=NOW, **configuration):
    cluster = Documents(*objects, **configuration)
    snapshot = cluster.snapshot(now)
    return with_kai_messages(cluster.planner.decide(snapshot), snapshot.gangs.values(), now)


def test_only_gangs_whose_users_speak_kai_are_told_in_its_words():
    ours = document_pod("ours", 9, annotations={"scheduling.kai.io/queue-name": "q"})
    objects = (kai_queue("q", quota=-1, limit=-1), document_node("n"), ours, kai_pod("kais", 9))
    told = {each.pods[0].name: each.message for each in reworded(*objects).unplaced}
    assert told["ours"] == (
        "Infeasible: a pod requests nvidia.com/gpu 9; the only node has 8. "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu (9 requested, most free 8 on n)."
    )
    assert told["kais"].startswith("Resources were not found for pod default/kais due to: no nodes")
    under_kai_rules = reworded(*objects, rules="kai").unplaced
    assert all(each.message.startswith("Resources were not found") for each in under_kai_rules)


def test_of_a_gang_that_starts_without_them_gated_pods_are_named():
    pods = kai_pod("g-0", annotations=IN_G), kai_pod("g-1", annotations=IN_G)
    gated = kai_pod("g-2", schedulingGates=[{"name": "later"}], annotations=IN_G)
    objects = kai_queue("q", **UNLIMITED), document_node("n"), pod_group("g", minMember=1)
    for bound in ({}, {"nodeName": "n"}):
        running = [{**each, "spec": {**each["spec"], **bound}} for each in pods]
        [left] = reworded(*objects, running, gated).unplaced
        assert left.stage is Stage.SCHEDULING_GATED
        assert left.message == "gated pods: 1 (by later)."
        assert [each.name for each in left.pods] == ["g-2"]


def test_a_gang_that_waits_for_pods_says_how_many_exist_and_are_gated():
    gated = kai_pod("g-1", schedulingGates=[{"name": "later"}], annotations=IN_G)
    group = pod_group("g", minMember=4)
    [alone] = reworded(QUEUE, group, kai_pod("g-0", annotations=IN_G), gated).unplaced
    assert alone.message == (
        "Job is not ready for scheduling. Waiting for 4 pods, currently 2 exist, 1 are gated"
    )
    leaves = [{"name": "lead", "minMember": 1}, {"name": "work", "minMember": 3}]
    pods = [member("a", "g", "lead"), member("b", "g", "work")]
    [part] = reworded(QUEUE, pod_group("g", subGroups=leaves), pods).unplaced
    assert part.message == (
        "Job is not ready for scheduling. Waiting for 3 pods for SubGroup work, "
        "currently 1 exist, 0 are gated"
    )


def test_a_topology_and_a_preemption_delay_are_worded_as_in_kai():
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    nodes = [document_node(name, 1, {"rack": name}) for name in ("a", "b")]
    wanted = {"topology": "racks", "requiredTopologyLevel": "rack"}
    group = pod_group("g", minMember=2, topologyConstraint=wanted)
    [told] = reworded(QUEUE, topology, nodes, group, members("g", 2)).unplaced
    assert told.message == (
        "topology racks, requirement rack couldn't be satisfied for job <default/g>: "
        "node-group a can allocate only 1 of 2 required pods"
    )
    [delayed] = reworded(
        QUEUE, document_node("n", 0), pod_group("g", preemptionDelay="2h"), member("a", "g")
    ).unplaced
    assert delayed.message.endswith(
        "Workload is within its preemption delay window (2h0m0s) and may not trigger evictions "
        "before 2027-01-15T09:00:00Z"
    )


def test_victims_of_priority_are_told_by_whom():
    classes = [priority_class("low", 10), priority_class("high", 60)]
    marked = [kai_pod(n, labels={"priorityClassName": n}, **o) for n, o in VICTIM_AND_WINNER]
    plan = reworded(kai_queue("q", **UNLIMITED), document_node("n", 1), classes, marked)
    assert [each.reason for each in plan.evictions] == [
        "Pod default/low was preempted by higher priority workload default/high"
    ]


def test_victims_of_reclaim_are_told_how_both_queues_stand():
    queues = [kai_queue(name, quota=1, limit=-1, overQuotaWeight=1) for name in ("borrows", "owns")]
    queues[1]["spec"]["priority"] = 200
    held = [
        document_pod(f"b{i}", labels={"kai.scheduler/queue": "borrows"}, nodeName="n")
        for i in range(2)
    ]
    winner = document_pod("o", labels={"kai.scheduler/queue": "owns"})
    [eviction] = reworded(queues, document_node("n", 2), held, winner, rules="kai").evictions
    first, loser, gains = eviction.reason.split("\n")
    assert first == f"Pod {eviction.pod} was preempted by workload default/o."
    assert loser.startswith("borrows uses <GPU: ")
    assert "with a quota of <GPU: 1, CPU: " in loser
    assert "fair-share of <GPU: 1, CPU: " in loser
    assert loser.endswith("and queue priority of <100>.")
    assert gains.startswith("owns uses <GPU: ")
    assert gains.endswith("and queue priority of <200>.")


def test_what_is_left_of_a_short_gang_is_told_its_floor():
    cluster = Documents(
        QUEUE, document_node("n"), pod_group("g", minMember=3), members("g", 2, nodeName="n")
    )
    cluster.plan(NOW)
    snapshot = cluster.snapshot(NOW + 60)
    gangs = snapshot.gangs.values()
    plan = with_kai_messages(cluster.planner.decide(snapshot), gangs, NOW + 60)
    assert plan.evictions[0].reason == (
        "Workload doesn't meet the minimum required number of pods (3), evicting remaining pod: "
        "default/g-0"
    )


def test_advice_is_told_in_our_wording_only():
    level = {"kai.scheduler/topology-required-placement": "block"}
    lost = document_pod("lost", 1, labels={"kai.scheduler/queue": "qq"})
    objects = kai_queue("q", **UNLIMITED), document_node("n", 4), kai_pod("p", annotations=level)
    [ours] = Documents(*objects).plan().unplaced
    assert ours.message.endswith("no domain has capacity for 1 pod. No node has label block.")
    [kais] = reworded(*objects).unplaced
    assert kais.message == (
        "requirement block couldn't be satisfied for job <default/p>: "
        "no domain has capacity for 1 pod"
    )
    [misspelt] = Documents(*objects[:2], lost).plan().unplaced
    assert misspelt.message.endswith("Queues for namespace default: q.")
    [kais] = reworded(*objects[:2], lost).unplaced
    assert kais.message == "Queue 'qq' does not exist"
