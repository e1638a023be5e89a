"""Since when a gang runs below its floor, as a process knows that has just started."""

import pytest

from kai_py.api.times import format_time
from tests.dialects.feeding import NOW, Cluster, node, pod

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "annotations": {"scheduling.kai.io/queue-name": "team"},
    },
    "spec": {"parallelism": 2, "completions": 2},
}
QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"deservedGPUs": 8},
}


def ago(seconds):
    return format_time(NOW - seconds)


def runs(name, since):
    made = pod(name, owner=JOB, nodeName="n")
    made["metadata"]["creationTimestamp"] = ago(since)
    made["status"]["startTime"] = ago(since)
    return made


def waits(name, since):
    made = pod(name, 8, owner=JOB)
    made["metadata"]["creationTimestamp"] = ago(since)
    return made


def stale_since(*pods):
    return Cluster(node("n"), QUEUE, JOB, pods).gang("default/Job/train").stale_since


def test_the_successor_of_a_lost_pod_tells_when_it_was_lost():
    assert stale_since(runs("a", 3600), waits("b", 45)) == NOW - 45


def test_of_a_gang_that_started_in_part_the_last_start_counts():
    assert stale_since(runs("a", 30), waits("b", 3600)) == NOW - 30


def test_without_the_successor_the_time_begins_now():
    assert stale_since(runs("a", 3600)) == NOW
    leaving = runs("b", 3600)
    leaving["metadata"]["deletionTimestamp"] = ago(5)
    assert stale_since(runs("a", 3600), leaving) == NOW


def test_a_clock_that_is_behind_gives_no_time_to_come():
    assert stale_since(runs("a", 3600), waits("b", -60)) == NOW


def test_a_gang_that_was_seen_whole_is_timed_from_when_it_is_not():
    cluster = Cluster(node("n"), QUEUE, JOB, runs("a", 3600), runs("b", 3600))
    assert cluster.gang("default/Job/train").stale_since is None
    cluster.remove(runs("b", 3600)).add(waits("c", 20))
    assert cluster.gang("default/Job/train").stale_since == NOW


def test_rest_of_a_gang_is_ended_when_the_grace_began_before_the_restart():
    pods = (runs("a", 3600), waits("b", 120))
    (eviction,) = Cluster(node("n"), QUEUE, JOB, pods).plan().evictions
    assert eviction.pod.name == "a"
    assert Cluster(node("n"), QUEUE, JOB, runs("a", 3600), waits("b", 50)).plan().evictions == ()


def job_with_minimum(minimum, **spec):
    annotations = JOB["metadata"]["annotations"] | {"scheduling.kai.io/min-available": minimum}
    return JOB | {
        "metadata": JOB["metadata"] | {"annotations": annotations},
        "spec": JOB["spec"] | spec,
    }


def admitted(name):
    made = runs(name, 3600)
    made["metadata"]["annotations"] = {
        "scheduling.kai.io/admitted": '{"queue":"team","floors":{"":2}}'
    }
    return made


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_with_minimum("2", parallelism=1), id="made smaller"),
        pytest.param(
            job_with_minimum("9") | {"status": {"active": 1, "succeeded": 1}}, id="half complete"
        ),
    ],
)
def test_a_minimum_that_cannot_be_reached_ends_no_running_pod(job):
    cluster = Cluster(node("n"), QUEUE, job, admitted("a"))
    gang = cluster.gang("default/Job/train")
    assert "can never be reached" in gang.problem
    assert gang.stale_since is None


@pytest.mark.parametrize("succeeded", [1, 0])
def test_a_job_is_finishing_although_its_succeeded_pods_are_gone(succeeded):
    job = job_with_minimum("2", completions=3) | {"status": {"succeeded": succeeded}}
    cluster = Cluster(node("n"), QUEUE, job, admitted("a"))
    gang = cluster.gang("default/Job/train")
    assert gang.succeeded == succeeded
    assert (gang.stale_since is None) == bool(succeeded)
