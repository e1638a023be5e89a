"""Which bound pods count as damaged, as they may be evicted for it: each condition alone."""

from types import SimpleNamespace

import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.maintenance import Maintenance
from kai_py.commit.upkeep.lost_devices import DamagedPod, claim_names, find_damaged_pods

ALLOCATED = {"allocation": {"devices": {"results": []}}}


def pod(spec=None, status=None, **meta):
    named = [{"name": "gpu", "resourceClaimName": "c"}]
    whole = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **meta},
        "spec": {"schedulerName": "ours", "nodeName": "a", "resourceClaims": named, **(spec or {})},
        "status": {"phase": "Running", **(status or {})},
    }
    return convert_record(whole, Pod)


def claim(status, **meta):
    metadata = {"name": "c", "namespace": "n", "uid": "claim", **meta}
    return convert_record({"metadata": metadata, "status": status}, ResourceClaim)


def damaged(made, held):
    claims = {(held.metadata.namespace, held.metadata.name): held}
    return [each.claim.uid for each in find_damaged_pods([made], claims, {"ours", "too"})]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"spec": {"schedulerName": "too"}}, True),
        ({"spec": {"schedulerName": "other"}}, False),
        ({"spec": {"nodeName": ""}}, False),
        ({"spec": {"resourceClaims": []}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"deletionTimestamp": "2027-01-01T00:00:00Z"}, False),
        ({"namespace": "elsewhere"}, False),
    ],
)
def test_only_running_pods_of_ours_are_damaged(changes, found):
    assert damaged(pod(**changes), claim({})) == (["claim"] if found else [])


GROUPED = {"schedulingGroup": {"podGroupName": "g"}}


@pytest.mark.parametrize(
    ("consumer", "spec", "held"),
    [
        ({"resource": "pods", "name": "p", "uid": "u"}, {}, True),
        ({"resource": "pods", "name": "p", "uid": "earlier"}, {}, False),
        ({"resource": "podgroups", "name": "g", "uid": "x"}, GROUPED, True),
        ({"resource": "podgroups", "name": "other", "uid": "x"}, GROUPED, False),
        ({"resource": "podgroups", "name": "g", "uid": "x"}, {}, False),
        ({"resource": "pods", "name": "g", "uid": "x"}, GROUPED, False),
    ],
)
def test_a_claim_is_held_if_it_is_allocated_and_reserved_for_the_pod(consumer, spec, held):
    other = {"resource": "pods", "name": "other", "uid": "other"}
    reserved = {**ALLOCATED, "reservedFor": [other, consumer]}
    assert damaged(pod(spec), claim(reserved)) == ([] if held else ["claim"])
    assert damaged(pod(spec), claim({"reservedFor": [consumer]})) == ["claim"]
    assert damaged(pod(spec), claim(ALLOCATED)) == ["claim"]


@pytest.mark.parametrize(
    ("releasing", "committing", "is_written"),
    [("", "", False), ("c", "", True), ("", "c", True), ("", "p", True), ("p", "other", False)],
)
def test_nothing_is_repaired_that_is_written_to(releasing, committing, is_written):
    maintenance = object.__new__(Maintenance)
    maintenance._committer = SimpleNamespace(releasing={releasing}, is_committing=committing.__eq__)
    seen = DamagedPod(PodRef("n", "p", "p"), ClaimRef("n", "c", "c"))
    assert maintenance._is_written(seen) is is_written


def test_the_claims_of_a_pod_are_named_made_for_it_or_of_its_extended_resources():
    claims = [{"name": "a", "resourceClaimName": "named"}, {"name": "b"}, {"name": "late"}]
    status = {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
    }
    found = claim_names(pod({"resourceClaims": claims}, status))
    assert found == ["named", "made", "extended"]
    assert claim_names(pod({"resourceClaims": claims[:1] * 2})) == ["named"]
