"""Volume claims for one pod that several pods use."""

import pytest

from tests.audit.objects import NOW, pod, volume_claim
from tests.support.audits import audit


def found(*objects):
    return audit(objects, now=NOW)


def test_a_volume_for_one_pod_that_two_use():
    users = pod("a", volumes=["v"]), pod("b", volumes=["v", "w"], node="node-b")
    [finding] = found(volume_claim("v"), volume_claim("w"), *users)
    assert finding.kind.value == "volume-used-twice"
    assert finding.objects == (
        "PersistentVolumeClaim default/v",
        "Pod default/a",
        "Pod default/b",
    )
    assert finding.message == (
        "volume claim default/v is for one pod only (ReadWriteOncePod), but 2 pods use it: "
        "default/a, default/b"
    )


def test_a_pod_may_mount_its_volume_twice():
    assert found(volume_claim("v"), pod("a", volumes=["v", "v"])) == []


def test_other_access_modes_are_for_several_pods():
    users = pod("a", volumes=["v"]), pod("b", volumes=["v"])
    assert found(volume_claim("v", "ReadWriteOnce"), *users) == []
    assert found(*users) == [], "volume claims were not read"


def test_a_claim_of_the_same_name_elsewhere_is_another():
    elsewhere = pod("b", volumes=["v"])
    elsewhere["metadata"]["namespace"] = "other"
    claims = volume_claim("v"), volume_claim("v", namespace="other")
    assert found(*claims, pod("a", volumes=["v"]), elsewhere) == []


def test_the_volume_of_a_pod_itself_is_known_by_its_name():
    owner = pod("a")
    template = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOncePod"]}}}
    owner["spec"]["volumes"] = [{"name": "scratch", "ephemeral": template}]
    assert found(volume_claim("a-scratch"), owner) == []
    [finding] = found(volume_claim("a-scratch"), owner, pod("b", volumes=["a-scratch"]))
    assert finding.kind.value == "volume-used-twice"


@pytest.mark.parametrize(
    "passing", [{"leaving": True}, {"phase": "Succeeded"}, {"bound": NOW - 10}, {"node": ""}]
)
def test_a_pod_may_follow_another(passing):
    assert (
        found(volume_claim("v"), pod("a", volumes=["v"], **passing), pod("b", volumes=["v"])) == []
    )
