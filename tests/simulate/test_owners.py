"""Owners of other frameworks in a saved cluster: their pods are gangs there too."""

from kai_py.config import Configuration
from kai_py.simulate.cluster import SimulatedCluster
from tests.simulate.clusters import NOW, queue, simulated

KIND = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
LABELS = "leaderworkerset.sigs.k8s.io"


def leader_worker_set(size):
    return {
        **KIND,
        "metadata": {
            "name": "serve",
            "namespace": "default",
            "uid": "uid-serve",
            "annotations": {"scheduling.kai.io/queue-name": "team"},
        },
        "spec": {"leaderWorkerTemplate": {"size": size}},
    }


def members(count):
    owner = {**KIND, "name": "serve", "uid": "uid-serve", "controller": True}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"serve-0-{index}",
                "namespace": "default",
                "uid": f"uid-{index}",
                "labels": {f"{LABELS}/group-index": "0", f"{LABELS}/worker-index": str(index)},
                "ownerReferences": [owner],
            },
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "image": "i"}],
            },
            "status": {"phase": "Pending"},
        }
        for index in range(count)
    ]


def loaded(*documents):
    copy = SimulatedCluster(Configuration(), start=NOW, seed=1)
    copy.load([*simulated(queue("team", 8)).documents(), *documents])
    return copy


def test_pods_of_an_owner_in_the_snapshot_are_its_gang():
    cluster = loaded(leader_worker_set(3), *members(2))
    (gang,) = cluster.snapshot().gangs.values()
    assert (gang.key, gang.queue, gang.tree.min_pods()) == (
        "default/LeaderWorkerSet/serve/0",
        "team",
        3,
    )
    course = cluster.settle(60)
    assert course.placements == []
    assert course.last_plan.unplaced[0].message == "minMember is 3; existing pods: 2."


def test_they_start_together_and_their_owner_comes_in_any_order():
    for documents in ([leader_worker_set(2), *members(2)], [*members(2), leader_worker_set(2)]):
        (placement,) = loaded(*documents).settle(60).placements
        assert len(placement.pods) == 2
