"""The gang of a single pod, for views that show more pods than a cycle looks at."""

from tests.dialects.feeding import Cluster, pod
from tests.dialects.kai.objects import QUEUE, job, member, pod_group, with_pods

MPI_JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "ring", "labels": {"kai.scheduler/queue": "q"}},
    "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}},
}


def test_a_pod_is_grouped_as_cycles_group_it():
    group, owner = pod_group("g", minMember=2), job("train", 3, {"kai.scheduler/queue": "q"})
    pods = [member("a", "g"), *with_pods(owner, 1)[1:], pod("alone"), pod("ring-0", owner=MPI_JOB)]
    cluster = Cluster(QUEUE, group, owner, MPI_JOB, pods)
    cycle = {
        each.pod.name: (gang.key, gang.queue, gang.tree)
        for gang in cluster.snapshot().gangs.values()
        for each in gang.members
    }
    for document in pods:
        found = cluster.planner.builder.gang_of(cluster.record(document))
        assert (found.key, found.queue, found.tree) == cycle[document["metadata"]["name"]]
    assert cycle["ring-0"][0] == "default/MPIJob/ring"


def test_a_pod_of_another_scheduler_is_in_no_gang():
    other = pod("other", schedulerName="default-scheduler")
    cluster = Cluster(other)
    assert cluster.planner.builder.gang_of(cluster.record(other)) is None
