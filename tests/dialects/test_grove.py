"""Grove's PodGangs: terms, gates, what they want to be near to, on both paths."""

from datetime import UTC, datetime

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured
from kai_py.commit.statuses.group_conditions import pod_gang_patch, pod_gang_reports
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.dialects.kai.objects import kai_queue, pod_group

QUEUE = kai_queue("q", quota=16, limit=-1, overQuotaWeight=1)
KEY = "default/PodGang.scheduler.grove.io/{}"
CLIQUE = "nvidia.com/gpu.clique"
GATE = [{"name": "grove.io/podgang-pending-creation"}]


def pod_gang(name, *floors, annotations=None, **spec):
    """A PodGang with podgroups NAME-0, NAME-1, ... of these floors."""
    return {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {
            "name": name,
            "labels": {"kai.scheduler/queue": "q"},
            "annotations": annotations or {},
        },
        "spec": {
            "podgroups": [
                {"name": f"{name}-{i}", "minReplicas": floor} for i, floor in enumerate(floors)
            ],
            **spec,
        },
    }


def members(gang, count, *, group=0, base="", **parts):
    labels = {
        "kai.scheduler/queue": "q",
        "grove.io/podgang": gang,
        "grove.io/podclique": f"{gang}-{group}",
    } | ({"grove.io/base-podgang": base} if base else {})
    return [pod(f"{gang}-{group}-{i}", labels=labels, **parts) for i in range(count)]


def cliques(count, gpus=4):
    return [node(f"n{i}", gpus, {CLIQUE: f"c{i}"}) for i in range(count)]


def test_a_gang_waits_for_gates_and_starts_whole_without_them():
    cluster = Cluster(
        QUEUE,
        node("n"),
        pod_gang("g", 1, 2),
        members("g", 1, group=0),
        members("g", 2, group=1, schedulingGates=GATE),
    )
    assert cluster.why()[KEY.format("g")][0] == "SchedulingGated"
    cluster.add(members("g", 2, group=1))
    assert len(placed(cluster.plan())) == 3


def test_an_idle_clique_is_not_waited_for():
    cluster = Cluster(QUEUE, node("n"), pod_gang("g", 0, 1), members("g", 1, group=1))
    assert sorted(placed(cluster.plan())) == ["g-1-0"]


def test_a_gang_has_the_times_and_the_priority_that_it_says():
    marks = {
        "kai.scheduler/staleness-grace-period": "-1s",
        "kai.scheduler/preemption-delay": "30s",
    }
    gang = Cluster(
        QUEUE, pod_gang("g", 1, annotations=marks, priorityClassName="inference"), members("g", 1)
    ).gang(KEY.format("g"))
    assert (gang.settings.staleness_grace, gang.settings.preemption_delay) == (-1.0, 30.0)
    assert (gang.priority, gang.preemptible) == (125, False)


def test_a_label_of_the_top_owner_goes_before_the_class_of_the_gang():
    labels = {"priorityClassName": "build", "kai.scheduler/preemptibility": "preemptible"}
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "graph", "labels": labels},
    }
    cliques = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "set", **owned_by(graph)},
    }
    [member] = members("g", 1)
    member["metadata"] |= owned_by(cliques)
    own = pod_gang("g", 1, priorityClassName="inference")
    gang = Cluster(QUEUE, graph, cliques, own, member).gang(KEY.format("g"))
    assert (gang.priority, gang.preemptible) == (100, True)
    own["metadata"]["labels"]["priorityClassName"] = "train"
    assert Cluster(QUEUE, graph, cliques, own, member).gang(KEY.format("g")).priority == 50


def owned_by(owner):
    return {"ownerReferences": pod("", owner=owner)["metadata"]["ownerReferences"]}


def test_a_scaled_gang_joins_the_clique_of_its_base():
    for there in range(3):
        cluster = Cluster(
            QUEUE,
            cliques(3),
            pod_gang("base", 2),
            members("base", 2, nodeName=f"n{there}"),
            pod_gang("more", 2),
            members("more", 2, base="base"),
        )
        assert set(placed(cluster.plan()).values()) == {f"n{there}"}


def test_a_scaled_gang_goes_elsewhere_if_the_clique_of_its_base_is_full():
    cluster = Cluster(
        QUEUE,
        cliques(3),
        pod_gang("base", 2),
        members("base", 2, nodeName="n1"),
        pod_gang("more", 4),
        members("more", 4, base="base"),
    )
    assert len(placed(cluster.plan())) == 4


def test_a_scaled_gang_joins_its_base_within_the_rack_that_both_require():
    rack = {"topologyConstraint": {"packConstraint": {"required": CLIQUE}}}
    cluster = Cluster(
        QUEUE,
        cliques(3),
        pod_gang("base", 2, **rack),
        members("base", 2, nodeName="n2"),
        pod_gang("more", 2, **rack),
        members("more", 2, base="base"),
    )
    assert set(placed(cluster.plan()).values()) == {"n2"}


def test_scaled_gangs_of_the_newer_path_join_their_base_too():
    def member(name, gang, base="", **parts):
        labels = {"grove.io/podgang": gang} | ({"grove.io/base-podgang": base} if base else {})
        return pod(name, labels=labels, annotations={"pod-group-name": gang}, **parts)

    cluster = Cluster(
        QUEUE,
        cliques(3),
        pod_group("base", minMember=1),
        member("b", "base", nodeName="n1"),
        pod_group("more", minMember=1),
        member("m", "more", base="base"),
    )
    assert placed(cluster.plan()) == {"m": "n1"}
    assert not cluster.snapshot().ignored_markers


def test_a_gang_goes_back_to_the_nodes_that_it_names_for_reuse():
    cluster = Cluster(
        QUEUE,
        [node(f"n{i}", 4) for i in range(3)],
        pod_gang("old", 1),
        members("old", 1, nodeName="n2"),
        pod_gang("new", 1, reuseReservationRef={"namespace": "default", "name": "old"}),
        members("new", 1),
        pod("filler", 1, nodeName="n1", labels={"kai.scheduler/queue": "q"}),
        pod("filling", 1, nodeName="n1", labels={"kai.scheduler/queue": "q"}),
    )
    assert placed(cluster.plan()) == {"new-0-0": "n2"}


def test_a_gang_says_that_it_has_started_and_that_it_must_go():
    cluster = Cluster(QUEUE, node("n"), pod_gang("g", 1), members("g", 1, nodeName="n"))
    gang = cluster.gang(KEY.format("g"))
    theirs = {"type": "Initialized", "status": "True", "reason": "PodGangPodsCreated"}
    known = Unstructured(
        metadata=ObjectMeta(name="g", namespace="default", uid="u", resource_version="7"),
        content={"status": {"conditions": [theirs]}},
    )

    def said(disrupted):
        (report,) = pod_gang_reports([gang], disrupted).values()
        patch = pod_gang_patch(report, known, datetime(2026, 5, 1, tzinfo=UTC))
        return {each["type"]: each["reason"] for each in patch["status"]["conditions"]}

    started = {"Initialized": "PodGangPodsCreated", "Scheduled": "PodGangScheduled"}
    assert said({}) == started
    assert said({gang.key: "for b"}) == started | {"DisruptionTarget": "PreemptionByScheduler"}
