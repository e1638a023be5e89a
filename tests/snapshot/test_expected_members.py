"""Members for pods that a framework creates later: made once for all of their subgroups."""

from kai_py.snapshot import expected_members
from tests.dialects.feeding import Cluster, pod

LABEL = "leaderworkerset.sigs.k8s.io/"
WORKERS = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


def leader_worker_set(gpus=1):
    limits = {"nvidia.com/gpu": gpus}
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": "serve",
            "annotations": {f"{LABEL}subgroup-exclusive-topology": "zone"},
        },
        "spec": {
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {
                "size": 21,
                "subGroupPolicy": {"subGroupSize": 2},
                "workerTemplate": template,
            },
        },
    }


def test_subgroups_with_one_template_and_pods_of_one_gang_share_the_work(monkeypatch):
    parsed = []

    def counted(*arguments, **options):
        parsed.append(arguments)
        return pod_demand(*arguments, **options)

    pod_demand = expected_members.pod_demand
    monkeypatch.setattr(expected_members, "pod_demand", counted)
    owner = leader_worker_set()
    leaders = [
        pod(f"serve-{i}", owner=owner, labels={f"{LABEL}{name}-index": "0"})
        for i, name in enumerate(("worker", "group"))
    ]
    cluster = Cluster(owner, leaders)
    snapshot = cluster.snapshot()
    assert len(parsed) == 2
    expected = [each for gang in snapshot.gangs.values() for each in gang.placeholders]
    assert len({each.subgroup for each in expected}) == 10
    assert {each.shape.requests["nvidia.com/gpu"] for each in expected} == {1}

    cluster.add(leader_worker_set(gpus=2))
    changed = cluster.snapshot()
    expected = [each for gang in changed.gangs.values() for each in gang.placeholders]
    assert {each.shape.requests["nvidia.com/gpu"] for each in expected} == {2}
