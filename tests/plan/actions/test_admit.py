"""Our scheduling gate: lifted from gangs that their queue has capacity for, and from no others."""

from tests.dialects.feeding import Cluster, node, placed, pod

GATE = {"name": "scheduling.kai.io/queue-admission"}


def queue(most):
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"deservedGPUs": most, "maxGPUs": most},
    }


def members(gang, count, *, gates=(GATE,), floor=None, **parts):
    marks = {
        "scheduling.kai.io/queue-name": "team",
        "scheduling.kai.io/pod-group": gang,
        "scheduling.kai.io/min-available": str(count if floor is None else floor),
    }
    return [
        pod(f"{gang}-{i}", annotations=marks, schedulingGates=list(gates), **parts)
        for i in range(count)
    ]


def admitted(cluster):
    return {a.gang.rpartition("/")[2]: len(a.pods) for a in cluster.plan().admissions}


def test_a_gang_within_its_queue_is_admitted_whether_or_not_there_are_nodes():
    cluster = Cluster(queue(4), members("g", 4))
    assert admitted(cluster) == {"g": 4}
    assert placed(cluster.plan()) == {}


def test_a_gang_above_its_queue_stays_gated_and_is_told_why():
    cluster = Cluster(queue(4), node("n"), members("g", 5))
    assert admitted(cluster) == {}
    assert cluster.why()["default/PodGroup/g"][0] == "QueueMax"


def test_gangs_are_admitted_up_to_what_the_queue_may_have():
    cluster = Cluster(queue(5), members("a", 2), members("b", 2), members("c", 2))
    assert admitted(cluster) == {"a": 2, "b": 2}


def test_what_was_admitted_before_and_waits_counts():
    cluster = Cluster(queue(5), members("a", 4, gates=()), members("b", 2))
    assert admitted(cluster) == {}
    assert admitted(cluster.add(members("c", 1))) == {"c": 1}


def test_what_runs_counts():
    running = members("a", 4, gates=(), nodeName="n")
    assert admitted(Cluster(queue(5), node("n"), running, members("b", 2))) == {}


def test_the_more_important_gang_is_admitted_first():
    cluster = Cluster(queue(2), members("a", 2), members("b", 2, priority=5))
    assert admitted(cluster) == {"b": 2}


def test_half_a_gang_and_pods_behind_other_gates_stay_gated():
    theirs = {"name": "example.com/theirs"}
    cluster = Cluster(
        queue(8), members("half", 2, floor=3), members("both", 1, gates=(GATE, theirs))
    )
    assert admitted(cluster) == {}


def test_an_elastic_gang_is_admitted_as_far_as_its_queue_reaches():
    assert admitted(Cluster(queue(8), members("g", 4, floor=2))) == {"g": 4}
    assert admitted(Cluster(queue(3), members("g", 4, floor=2))) == {"g": 2}
    running = members("g", 2, gates=(), floor=2, nodeName="n")
    more = members("g", 4, floor=2)[2:]
    assert admitted(Cluster(queue(3), node("n"), running, more)) == {"g": 1}


def test_admission_charges_no_queue_in_what_is_shown():
    share = Cluster(queue(4), members("g", 4)).plan().queues[0]
    assert share.allocated["gpu"] == 0
