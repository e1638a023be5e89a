"""Claims of pods that have ended: whatever changes in whatever order, what is there decides."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.records.core import ObjectMeta, Pod, PodSchedulingGroup, PodSpec, PodStatus
from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.references import ClaimRef
from kai_py.snapshot.pod_claims import POD_GROUPS
from kai_py.snapshot.tables.ended_pods import KEPT_SECONDS, Completions, ReleasableClaims
from tests.support.scenario import START


def pod(uid, phase="Running", *, group="", scheduler="ours", **meta):
    joins = PodSchedulingGroup(pod_group_name=group) if group else None
    spec = PodSpec(scheduler_name=scheduler, scheduling_group=joins)
    status = PodStatus(phase=phase)
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="ns", uid=uid, **meta), spec=spec, status=status
    )


def claim(uid, users, *, allocated=True, resource="pods"):
    references = tuple(
        ResourceClaimConsumerReference(resource=resource, name=each, uid=each) for each in users
    )
    allocation = AllocationResult() if allocated else None
    status = ResourceClaimStatus(allocation=allocation, reserved_for=references)
    return ResourceClaim(metadata=ObjectMeta(name=uid, namespace="ns", uid=uid), status=status)


def table(*, schedulers=None, groups=("g", "h")):
    """``schedulers``: that the pods of each group name."""
    known = SimpleNamespace(of_group=lambda _, group: (schedulers or {}).get(group, ()))
    return ReleasableClaims(known, frozenset({"ours"}), lambda _, name: name in groups)


PODS, CLAIMS = "pqr", "xy"
pod_changes = st.tuples(
    st.sampled_from(PODS), st.sampled_from(["Running", "Succeeded", "Failed", ""])
)
claim_changes = st.tuples(
    st.sampled_from(CLAIMS), st.sets(st.sampled_from(PODS)), st.booleans(), st.booleans()
)


@given(st.lists(pod_changes | claim_changes, max_size=12))
def test_claims_allocated_for_pods_that_do_not_run_are_releasable(changes):
    releasable, pods, claims = table(), {}, {}
    for uid, *change in changes:
        known, kind = (pods, "pods") if uid in PODS else (claims, "resourceclaims")
        old = known.pop(uid, None)
        if uid in PODS:
            new = pod(uid, change[0]) if change[0] else None
        else:
            users, allocated, exists = change
            new = claim(uid, sorted(users), allocated=allocated) if exists else None
        if new is not None:
            known[uid] = new
        if old is not None or new is not None:
            releasable.apply(kind, old, new)
        runs = {uid for uid, each in pods.items() if each.status.phase == "Running"}
        expected = {
            (ClaimRef.of(each.metadata), user.uid)
            for each in claims.values()
            if each.status.allocation is not None
            for user in each.status.reserved_for
            if user.uid not in runs
        }
        found = releasable.snapshot()
        assert set(found) == expected
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("schedulers", "seen", "groups", "is_ours", "is_known"),
    [
        ({"g": ("ours",)}, (), "g", True, True),
        ({"g": ("ours", "theirs")}, (), "g", False, True),
        ({"g": ("theirs",)}, (), "g", False, True),
        ({}, (), "g", False, False),
        ({}, [pod("p", group="g")], "g", True, True),
        ({}, [pod("p", group="g", scheduler="theirs")], "g", False, False),
        ({}, [pod("p", group="new")], ("new",), False, False),  # that group does not exist
        ({"g": ("theirs",)}, [pod("p", group="g")], "g", False, True),
        ({"g": ("ours",)}, (), "gh", False, True),
        ({"g": ("ours",), "h": ("ours",)}, (), "gh", True, True),
    ],
)
def test_a_claim_of_groups_is_ours_if_all_of_their_pods_are(
    schedulers, seen, groups, is_ours, is_known
):
    releasable = table(schedulers=schedulers)
    for each in seen:
        releasable.apply("pods", None, each)
    reserved = claim("x", groups, resource=POD_GROUPS)
    releasable.apply("resourceclaims", None, reserved)
    ref = ClaimRef.of(reserved.metadata)
    assert releasable.group_claim_users(()) == ({ref: frozenset()} if is_ours else {})
    assert releasable.unknown_groups() == ({} if is_known else {ref: frozenset(groups)})
    assert (("ns", groups[0]) in releasable.our_groups()) is (is_ours or groups == "gh")
    releasable.apply("resourceclaims", reserved, None)
    assert releasable.our_groups() == frozenset()


def test_a_group_that_was_deleted_is_not_ours_any_more():
    releasable = table()
    releasable.apply("pods", None, pod("p", group="g"))
    releasable.apply("resourceclaims", None, claim("x", "g", resource=POD_GROUPS))
    group = Unstructured(metadata=ObjectMeta(name="g", namespace="ns"))
    releasable.apply("another kind", group, None)
    releasable.apply(POD_GROUPS, group, group)
    assert releasable.our_groups() == {("ns", "g")}
    releasable.apply(POD_GROUPS, group, None)
    assert releasable.our_groups() == frozenset()


@pytest.mark.parametrize(
    ("later", "is_kept"),
    [(KEPT_SECONDS, True), (KEPT_SECONDS + 1, False), (-60.0, True), (-61.0, False)],
)
def test_a_pod_that_succeeded_is_told_for_a_minute(later, is_kept):
    completions = Completions()
    completions.note(pod("p", "Succeeded"))
    completions.note(pod("q", "Succeeded", deletion_timestamp="2026-01-01T00:00:00Z"))
    assert completions.snapshot(START) == {"p"}
    assert completions.snapshot(START + later) == (frozenset({"p"}) if is_kept else frozenset())
