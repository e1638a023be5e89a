import pytest

from kai_py.embedded.nodes import DRIVER, h100_slices
from kai_py.embedded.resources import CLAIMS, PODS, SLICES, TAINT_RULES
from tests.embedded.manifests import allocation, claim, consumer, node, pod
from tests.embedded.placing import bind_all, names

TAINT = {"key": "gpu.example.com/lost", "value": "79", "effect": "NoExecute"}


@pytest.fixture
def two(cluster):
    """Pods a and b on a node, with claims on gpu-0 and gpu-1; b tolerates the taint for 60 s."""
    cluster.create(node("n"))
    cluster.create_all(h100_slices("n"))
    for number, name in enumerate("ab"):
        cluster.create(claim(name))
        reference = {"name": "gpu", "resourceClaimName": name}
        user = cluster.create(pod(name, resourceClaims=[reference]))
        given = allocation(f"gpu-{number}")
        if name == "b":
            toleration = {"operator": "Exists", "tolerationSeconds": 60}
            given["devices"]["results"][0]["tolerations"] = [toleration]
        status = {"allocation": given, "reservedFor": [consumer(user)]}
        cluster.api.patch_status(CLAIMS, cluster.api.get(CLAIMS, name, "default"), status)
    bind_all(cluster)
    cluster.clock.advance(3)
    return cluster


def rule(effect="NoExecute", **selector):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": selector, "taint": {**TAINT, "effect": effect}},
    }


def test_a_rule_evicts_pods_that_do_not_tolerate_it(two):
    two.create(rule(driver=DRIVER))
    two.clock.advance(0.5)
    conditions = two.api.get(PODS, "a", "default")["status"]["conditions"]
    assert conditions[-1]["reason"] == "DeletionByDeviceTaintManager"
    two.clock.advance(3)
    assert names(two, PODS) == ["b"]
    two.clock.advance(60)
    assert names(two, PODS) == []


def test_a_rule_without_a_time_of_its_creation_applies_now(two):
    made = rule(driver=DRIVER)
    made["metadata"] = {"name": "old", "uid": "old"}
    two.store.insert(TAINT_RULES.storage, made)
    two.clock.advance(3.5)
    assert names(two, PODS) == ["b"]


def test_a_rule_for_another_device_or_another_effect_evicts_no_pod(two):
    two.create(rule(driver=DRIVER, device="gpu-5"))
    other = rule("NoSchedule", driver=DRIVER)
    other["metadata"]["name"] = "other"
    two.create(other)
    two.clock.advance(100)
    assert names(two, PODS) == ["a", "b"]


def test_a_taint_in_a_slice_evicts_too(two):
    name = names(two, SLICES)[0]

    def taint(present):
        first, *rest = present["spec"]["devices"]
        devices = [{**first, "taints": [TAINT]}, *rest]
        return {**present, "spec": {**present["spec"], "devices": devices}}

    two.api.edit(SLICES, name, "", taint)
    two.clock.advance(3)
    assert names(two, PODS) == ["b"]
