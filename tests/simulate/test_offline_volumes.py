"""Volume claims of plans from files: which claims are made, and of which class they are."""

import pytest

from kai_py.simulate.files.complete_objects import VOLUME_CLAIM, complete_objects
from kai_py.simulate.files.object_files import ObjectKey
from tests.simulate.manifests import QUEUE, node, placed_on, plan, pod

CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def storage_class(name, default=False, created="2026-01-01T00:00:00Z"):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations, "creationTimestamp": created},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def in_zone(name, zone):
    """A class whose volumes can be reached in one zone only."""
    allowed = {"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}
    return storage_class(name, True) | {"allowedTopologies": [allowed]}


def volume_claim(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": CLAIM_SPEC | spec,
    }


def stateful_set(**claim_spec):
    template = pod("unused")
    template["spec"]["containers"][0]["image"] = "i"
    labels = template["metadata"]["labels"] | {"app": "db"}
    claim = {"metadata": {"name": "data"}, "spec": CLAIM_SPEC | claim_spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            "volumeClaimTemplates": [claim],
        },
    }


def using(name, claim):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return pod(name, volumes=[volume])


def with_scratch(name, **claim_spec):
    template = {"spec": CLAIM_SPEC | claim_spec}
    return pod(name, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])


@pytest.mark.parametrize("named", [{}, {"storageClassName": "fast"}])
def test_pods_of_a_stateful_set_get_its_volume_claims(named):
    found = plan(node("n0"), QUEUE, storage_class("fast", default=True), stateful_set(**named))
    assert placed_on(found) == {"default/db-0": "n0", "default/db-1": "n0"}


def test_a_volume_claim_that_files_hold_is_not_replaced():
    made = volume_claim("data-db-0", storageClassName="none")
    found = plan(node("n0"), QUEUE, storage_class("fast", default=True), stateful_set(), made)
    assert placed_on(found) == {"default/db-1": "n0"}
    [pending] = found["pending"]
    assert 'storage class "none" does not exist' in pending["message"]


def test_an_ephemeral_volume_gets_its_claim():
    asking = with_scratch("a", storageClassName="fast")
    found = plan(node("n0"), QUEUE, storage_class("fast"), asking)
    assert placed_on(found) == {"default/a": "n0"}


def test_the_claim_of_a_volume_has_what_its_controller_gives_it():
    asking = with_scratch("a")
    asking["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["metadata"] = {
        "labels": {"app": "a"},
    }
    odd = [None, {"name": 1}, {"name": "x", "ephemeral": []}]
    asking["spec"]["volumes"] += [*odd, {"name": "y", "ephemeral": {"volumeClaimTemplate": {}}}]
    found, *_ = complete_objects([asking], 0.0)
    claims = [key for key in found if key[:2] == VOLUME_CLAIM]
    assert claims == [ObjectKey(*VOLUME_CLAIM, "default", "a-scratch")]
    metadata, owner = found[claims[0]]["metadata"], asking["metadata"]["name"]
    assert metadata["labels"] == {"app": "a"}
    assert [each["name"] for each in metadata["ownerReferences"]] == [owner]


@pytest.mark.parametrize("asking", [using("a", "open"), with_scratch("a")])
def test_a_claim_without_a_class_gets_the_default_one(asking):
    nodes = [node("n0"), node("n1")]
    nodes[1]["metadata"]["labels"] = {"zone": "b"}
    found = plan(*nodes, QUEUE, in_zone("zonal", "b"), volume_claim("open"), asking)
    assert placed_on(found) == {"default/a": "n1"}


def test_the_newest_default_class_is_used():
    nodes = [node("n0"), node("n1")]
    nodes[0]["metadata"]["labels"], nodes[1]["metadata"]["labels"] = {"zone": "a"}, {"zone": "b"}
    newer = in_zone("a-newer", "b")
    newer["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    classes = [in_zone("z-older", "a"), newer]
    found = plan(*nodes, QUEUE, *classes, volume_claim("open"), using("a", "open"))
    assert placed_on(found) == {"default/a": "n1"}


@pytest.mark.parametrize(
    "claim",
    [volume_claim("open", storageClassName=""), volume_claim("open", volumeName="by-hand")],
)
def test_a_claim_that_wants_no_class_gets_none(claim):
    elsewhere = in_zone("zonal", "nowhere")
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "by-hand"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    }
    found = plan(node("n0"), QUEUE, elsewhere, volume, claim, using("a", "open"))
    # Of the default class it would have a volume that no node reaches.
    assert placed_on(found) == {"default/a": "n0"}


BY_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


@pytest.mark.parametrize(("named", "nodes"), [("zonal", {"n1"}), ("other", {"n0", "n1"})])
def test_the_annotation_of_a_claim_names_its_class_first(named, nodes):
    hosts = [node(each, gpus=1) for each in ("n0", "n1")]
    hosts[1]["metadata"]["labels"] = {"zone": "b"}
    classes = [in_zone("zonal", "b"), storage_class("other")]
    claim = volume_claim("data", storageClassName="none")
    claim["metadata"]["annotations"] = {BY_ANNOTATION: named}
    found = plan(*hosts, QUEUE, *classes, claim, using("a", "data"))
    assert set(placed_on(found).values()) <= nodes
    assert len(placed_on(found)) == 1


def test_an_empty_annotation_means_no_class():
    claim = volume_claim("data")
    claim["metadata"]["annotations"] = {BY_ANNOTATION: ""}
    found = plan(node("n0"), QUEUE, storage_class("fast", True), claim, using("a", "data"))
    [pending] = found["pending"]
    assert pending["message"].endswith('persistentvolumeclaim "data" is not bound.')


def test_the_annotation_of_a_volume_names_its_class_first():
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v", "annotations": {BY_ANNOTATION: "local"}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    }
    local = storage_class("local") | {"provisioner": "kubernetes.io/no-provisioner"}
    claim = volume_claim("data", storageClassName="local")
    found = plan(node("n0"), QUEUE, local, volume, claim, using("a", "data"))
    assert placed_on(found) == {"default/a": "n0"}


@pytest.mark.parametrize("volumes", ["x", [None], [{"ephemeral": 1}], [{"ephemeral": {}}]])
def test_volumes_that_cannot_be_read_harm_only_their_pod(volumes):
    found = plan(node("n0"), QUEUE, pod("bad", volumes=volumes), pod("good"))
    assert placed_on(found)["default/good"] == "n0"


@pytest.mark.parametrize("status", ["Bound", ["Bound"], 1, None])
def test_what_is_no_status_is_written_again(status):
    local = storage_class("local") | {"provisioner": "kubernetes.io/no-provisioner"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": spec | {"storageClassName": "local"},
        "status": status,
    }
    claim = volume_claim("data", storageClassName="local") | {"status": status}
    found = plan(node("n0"), QUEUE, local, volume, claim, using("p", "data"))
    assert placed_on(found) == {"default/p": "n0"}
