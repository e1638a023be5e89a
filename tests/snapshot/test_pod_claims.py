"""Which claims were created for a pod, by the references of their owners."""

import pytest

from kai_py.api.records.core import ObjectMeta, Pod, PodSchedulingGroup, PodSpec
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.pod_claims import _fully_reserved, _owned_by
from tests.support.records import from_json

POD = {"kind": "Pod", "name": "p", "uid": "p-uid"}
GROUP = {"kind": "PodGroup", "name": "g", "uid": "g-uid"}


@pytest.mark.parametrize(
    ("owner", "group", "is_owned"),
    [
        (POD, "", True),
        (POD | {"uid": "of the pod before"}, "", False),
        (POD | {"controller": False}, "", False),
        (GROUP, "g", True),
        (GROUP, "another", False),
        (GROUP, "", False),
        (GROUP | {"controller": False}, "g", False),
        (GROUP | {"kind": "Job"}, "g", False),
    ],
)
def test_the_controller_of_a_claim_is_its_pod_or_the_group_of_the_pod(owner, group, is_owned):
    references = [{"kind": "Job", "name": "j", "uid": "j"}, {"controller": True} | owner]
    claim = from_json(ResourceClaim, {"metadata": {"name": "c", "ownerReferences": references}})
    named = PodSchedulingGroup(pod_group_name=group) if group else None
    pod = Pod(metadata=ObjectMeta(name="p", uid="p-uid"), spec=PodSpec(scheduling_group=named))
    assert _owned_by(claim, pod) is is_owned


@pytest.mark.parametrize(("users", "is_full"), [(255, False), (256, True)])
def test_a_claim_of_as_many_users_as_the_api_allows_takes_no_other(users, is_full):
    listed = [{"resource": "pods", "name": f"u{n}", "uid": f"u{n}"} for n in range(users)]
    claim = from_json(ResourceClaim, {"metadata": {"name": "c"}, "status": {"reservedFor": listed}})
    text = f'resourceclaim "c" is reserved for {users} pods already, the maximum'
    assert _fully_reserved(claim) == (text if is_full else "")
