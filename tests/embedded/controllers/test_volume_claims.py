"""Volume claims: of ephemeral volumes, and their classes."""

import pytest

from kai_py.embedded.deletion import delete
from kai_py.embedded.resources import PODS, VOLUME_CLAIMS

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def storage_class(name, default):
    annotation = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotation},
        "provisioner": "csi.example.com",
    }


def claim(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": SPEC | spec,
    }


def with_scratch(name, **spec):
    template = {"metadata": {"labels": {"app": "a"}}, "spec": SPEC}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "i"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}],
            **spec,
        },
    }


def made(cluster):
    return {each["metadata"]["name"]: each for each in cluster.api.list(VOLUME_CLAIMS)}


def test_an_ephemeral_volume_gets_a_claim_that_goes_with_its_pod(cluster):
    cluster.create(storage_class("fast", True))
    pod = cluster.create(with_scratch("a"))
    cluster.clock.advance(1)
    found = made(cluster)["a-scratch"]
    assert found["metadata"]["labels"] == {"app": "a"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert found["spec"]["storageClassName"] == "fast"
    delete(cluster.api, PODS, "a", "default")
    cluster.clock.advance(1)
    assert made(cluster) == {}


def test_a_claim_of_that_name_is_left_as_it_is(cluster):
    cluster.create(claim("a-scratch"))
    cluster.create(with_scratch("a"))
    cluster.clock.advance(1)
    assert "ownerReferences" not in made(cluster)["a-scratch"]["metadata"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({}, "b-fast"), ({"storageClassName": "a-slow"}, "a-slow"), ({"storageClassName": ""}, "")],
)
def test_the_default_class_is_that_of_claims_that_name_none(cluster, spec, expected):
    for name, default in (("a-slow", False), ("c-fast", True), ("b-fast", True)):
        cluster.create(storage_class(name, default))
    cluster.create(claim("data", **spec))
    assert made(cluster)["data"]["spec"]["storageClassName"] == expected


def test_without_a_default_class_a_claim_has_none(cluster):
    cluster.create(storage_class("a-slow", False))
    cluster.create(claim("data"))
    assert "storageClassName" not in made(cluster)["data"]["spec"]


def test_ports_of_a_pod_in_the_hosts_network_are_the_hosts(cluster):
    ports = [{"containerPort": 9000}, {"containerPort": 9001, "hostPort": 9001}]
    inside = [{"name": "main", "image": "i", "ports": ports}]
    pod = cluster.create(with_scratch("a", hostNetwork=True, containers=inside))
    found = pod["spec"]["containers"][0]["ports"]
    assert [each["hostPort"] for each in found] == [9000, 9001]
    own = cluster.create(with_scratch("b", containers=inside))
    assert "hostPort" not in own["spec"]["containers"][0]["ports"][0]
