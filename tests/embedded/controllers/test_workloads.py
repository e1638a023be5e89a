"""Deployments, ReplicaSets, StatefulSets."""

import pytest

from kai_py.embedded.controllers.deployments import resolve_int_or_string
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import uid_of
from kai_py.embedded.resources import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS, VOLUME_CLAIMS
from tests.embedded.manifests import node
from tests.embedded.placing import bind_all, names, phases


@pytest.fixture
def busy(cluster):
    cluster.create(node("n"))
    return cluster


def workload(kind, name, image="nginx:1", **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            **spec,
        },
    }


def run(cluster, seconds):
    """Let time pass while every pod is bound as soon as it is there."""
    for _ in range(int(seconds)):
        cluster.clock.advance(1)
        bind_all(cluster)


def set_spec(cluster, resource, name, **spec):
    def change(present):
        return {**present, "spec": {**present["spec"], **spec}}

    cluster.api.edit(resource, name, "default", change)


def images(cluster):
    return sorted(pod["spec"]["containers"][0]["image"] for pod in cluster.api.list(PODS))


def test_a_deployment_runs_through_one_replica_set(busy):
    busy.create(workload("Deployment", "web", replicas=3))
    run(busy, 5)
    assert phases(busy) == ["Running"] * 3
    replica_set = busy.api.list(REPLICA_SETS)[0]
    hashed = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{hashed}"
    status = busy.api.get(DEPLOYMENTS, "web", "default")["status"]
    assert (status["readyReplicas"], status["updatedReplicas"]) == (3, 3)
    assert status["conditions"][0]["status"] == "True"


def test_a_deployment_rolls_without_dropping_below_its_bound(busy):
    busy.create(workload("Deployment", "web", replicas=4))
    run(busy, 5)
    template = workload("Deployment", "web", image="nginx:2")["spec"]["template"]
    set_spec(busy, DEPLOYMENTS, "web", template=template)
    least, most = 4, 4
    for _ in range(40):
        run(busy, 1)
        pods = [p for p in busy.api.list(PODS) if "deletionTimestamp" not in p["metadata"]]
        ready = [p for p in pods if p["status"]["phase"] == "Running"]
        least, most = min(least, len(ready)), max(most, len(pods))
    assert images(busy) == ["nginx:2"] * 4
    assert least >= 3
    assert most <= 5
    sizes = [each["spec"]["replicas"] for each in busy.api.list(REPLICA_SETS)]
    assert sorted(sizes) == [0, 4]


def test_recreate_never_runs_two_versions(busy):
    busy.create(workload("Deployment", "web", replicas=2, strategy={"type": "Recreate"}))
    run(busy, 5)
    template = workload("Deployment", "web", image="nginx:2")["spec"]["template"]
    set_spec(busy, DEPLOYMENTS, "web", template=template)
    for _ in range(10):
        run(busy, 1)
        live = [p for p in busy.api.list(PODS) if "deletionTimestamp" not in p["metadata"]]
        assert len({p["spec"]["containers"][0]["image"] for p in live}) <= 1
    assert images(busy) == ["nginx:2"] * 2


def test_scaling_and_deleting_a_deployment(busy):
    busy.create(workload("Deployment", "web", replicas=3))
    run(busy, 5)
    set_spec(busy, DEPLOYMENTS, "web", replicas=1)
    run(busy, 5)
    assert phases(busy) == ["Running"]
    delete(busy.api, DEPLOYMENTS, "web", "default", DeleteOptions(policy="Foreground"))
    run(busy, 5)
    assert (names(busy, DEPLOYMENTS), names(busy, REPLICA_SETS), names(busy, PODS)) == ([], [], [])


def test_a_stateful_set_starts_and_shrinks_in_order(busy):
    busy.create(workload("StatefulSet", "db", replicas=3))
    busy.clock.advance(1)
    assert names(busy, PODS) == ["db-0"]
    run(busy, 10)
    assert names(busy, PODS) == ["db-0", "db-1", "db-2"]
    labels = busy.api.get(PODS, "db-2", "default")["metadata"]["labels"]
    assert labels["apps.kubernetes.io/pod-index"] == "2"
    set_spec(busy, STATEFUL_SETS, "db", replicas=1)
    run(busy, 10)
    assert names(busy, PODS) == ["db-0"]


def test_a_parallel_stateful_set_starts_at_once_and_makes_its_volume_claims(busy):
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    more = {"podManagementPolicy": "Parallel", "volumeClaimTemplates": [template]}
    busy.create(workload("StatefulSet", "db", replicas=2, **more))
    busy.clock.advance(1)
    assert names(busy, PODS) == ["db-0", "db-1"]
    assert names(busy, VOLUME_CLAIMS) == ["data-db-0", "data-db-1"]
    volumes = busy.api.get(PODS, "db-1", "default")["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == "data-db-1"


def test_a_claim_of_a_stateful_set_takes_the_place_of_the_volume_of_its_name(busy):
    class_ = {"volume.beta.kubernetes.io/storage-class": "fast"}
    template = {
        "metadata": {"name": "data", "labels": {"app": "db"}, "annotations": class_},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    document = workload("StatefulSet", "db", replicas=1, volumeClaimTemplates=[template])
    document["spec"]["template"]["spec"]["volumes"] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    busy.create(document)
    busy.clock.advance(1)
    assert busy.api.get(PODS, "db-0", "default")["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    metadata = busy.api.get(VOLUME_CLAIMS, "data-db-0", "default")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"app": "db"}, class_)


def test_the_first_pod_of_a_stateful_set_may_have_another_number(busy):
    busy.create(workload("StatefulSet", "db", replicas=2, ordinals={"start": 3}))
    run(busy, 10)
    assert names(busy, PODS) == ["db-3", "db-4"]
    set_spec(busy, STATEFUL_SETS, "db", ordinals={"start": 4})
    run(busy, 20)
    assert names(busy, PODS) == ["db-4", "db-5"]


def test_a_stateful_set_rolls_from_the_last_pod_down(busy):
    busy.create(workload("StatefulSet", "db", replicas=2))
    run(busy, 10)
    template = workload("StatefulSet", "db", image="nginx:2")["spec"]["template"]
    set_spec(busy, STATEFUL_SETS, "db", template=template)
    busy.clock.advance(0.5)
    leaving = [
        p["metadata"]["name"] for p in busy.api.list(PODS) if "deletionTimestamp" in p["metadata"]
    ]
    assert leaving == ["db-1"]
    run(busy, 20)
    assert images(busy) == ["nginx:2"] * 2


@pytest.mark.parametrize(
    ("value", "round_up", "expected"),
    [(2, True, 2), ("25%", True, 2), ("25%", False, 1), ("100%", False, 5), ("0%", True, 0)],
)
def test_absolute(value, round_up, expected):
    assert resolve_int_or_string(value, 5, round_up=round_up) == expected


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_dependents_that_it_did_not_create_stop_no_controller(busy, kind, caplog):
    """Anyone may name a workload as the owner of what is not labelled as its own objects are."""
    made = busy.create(workload(kind, "web", replicas=1, revisionHistoryLimit=0))
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "controller": True}
    metadata = {"namespace": "default", "ownerReferences": [reference | {"uid": uid_of(made)}]}
    pod = {"containers": [{"name": "main", "image": "none"}]}
    for name in ("stray", "web-7", "web-x"):
        busy.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"name": name}, "spec": pod}
        )
    stray = workload("ReplicaSet", "old", replicas=0)
    busy.create({**stray, "metadata": {**metadata, "name": "old"}})
    run(busy, 5)
    status = busy.api.get(WORKLOADS[kind], "web", "default")["status"]
    assert status["readyReplicas"] >= 1
    assert "could not be reconciled" not in caplog.text


WORKLOADS = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}
