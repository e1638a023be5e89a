"""Claims reserved for pods that do not name them."""

import pytest

from tests.audit.objects import LONG_AGO, NOW, claim, node, pod, pod_group, result
from tests.support.audits import audit


def found(*objects):
    return audit((node(), *objects), now=NOW)


def reserved(name="c", user="a", **fields):
    return claim(name, result("gpu-0"), users=[user], **fields)


def owned(name="c"):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": True}
    return reserved(name, ownerReferences=[owner])


def extended(name):
    return {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": []}}


@pytest.mark.parametrize("place", ["node-a", ""])
def test_a_claim_that_its_pod_does_not_name(place):
    [finding] = found(pod("a", node=place), reserved())
    assert finding.kind.value == "reservation-without-pod"
    assert finding.objects == ("ResourceClaim default/c", "Pod default/a")
    assert finding.message == (
        "claim default/c is reserved for Pod default/a, which does not use it: its devices are "
        "not given back while the pod exists"
    )


@pytest.mark.parametrize(
    ("user", "name"),
    [
        (pod("a", claims=["c"]), "c"),
        (pod("a", claims=["=template"]), "a-entry-0"),
        (pod("a", **extended("x")), "x"),
    ],
)
def test_a_claim_that_its_pod_names(user, name):
    assert found(user, reserved(name)) == []


def test_a_second_claim_for_extended_resources():
    second = owned("y")
    second["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    [finding] = found(pod("a", **extended("x")), owned("x"), second)
    assert finding.objects[0] == "ResourceClaim default/y"


@pytest.mark.parametrize("passing", [{"node": ""}, {"bound": NOW - 10}])
def test_a_claim_of_its_own_may_come_before_the_status_of_the_pod(passing):
    assert found(pod("a", **passing), owned()) == []
    assert len(found(pod("a"), owned())) == 1


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(pod("a", leaving=True), id="terminating"),
        pytest.param(pod("a", phase="Succeeded"), id="finished"),
        pytest.param(pod("a", phase="Failed"), id="failed"),
    ],
)
def test_a_pod_that_ends_may_keep_its_reservation_for_a_moment(user):
    assert found(user, reserved()) == []


def test_a_claim_in_deletion_or_allocated_just_now_is_not_settled():
    assert found(pod("a"), reserved(since=NOW - 10)) == []
    assert found(pod("a"), reserved(deletionTimestamp="2027-01-15T08:00:00Z")) == []
    assert len(found(pod("a"), reserved(since=LONG_AGO))) == 1


def test_nothing_is_said_of_a_pod_whose_claims_are_not_known():
    waiting = pod("a", claims=["=template"], node="")
    waiting["status"].pop("resourceClaimStatuses")
    assert found(waiting, reserved()) == []
    member = pod("a")
    member["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    assert found(member, reserved()) == []
    assert len(found(member, reserved(), pod_group("workers"))) == 1
