"""Claims for extended resources: made before the pod is bound, told on it, gone with a failure."""

import pytest

from kai_py.api.records.core import ContainerExtendedResourceRequest, ObjectMeta, OwnerReference
from kai_py.api.records.resource import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import CLAIMS, PODS
from kai_py.plan.plan import ClaimToCreate, Placement
from tests.commit.cluster import NAMESPACE, device, first, gang_of, lose_answer, refuse, transaction


def placement(cluster, index=0, count=1, on=""):
    pod = cluster.add_pod(f"worker-{index}")
    allocation = device(on or f"gpu-{index}", "node-a")
    return making_claim(pod, f"made-{index}", "gpu", allocation, count=count)


def making_claim(pod, name, request, allocation, *, resource="nvidia.com/gpu", count=1):
    """A placement on node-a for which a claim with one request is made."""
    exactly = ExactDeviceRequest(device_class_name="gpu", count=count)
    devices = DeviceClaim(requests=(DeviceRequest(name=request, exactly=exactly),))
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    claim = ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid="not-yet",
            annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
            owner_references=(owner,),
        ),
        spec=ResourceClaimSpec(devices=devices),
        status=ResourceClaimStatus(allocation=allocation),
    )
    use = ContainerExtendedResourceRequest("main", resource, request)
    return Placement(pod, "node-a", create_claim=ClaimToCreate(claim, (use,)))


async def run(cluster, *placements):
    return await transaction(cluster, gang_of(*placements)).run()


def assert_served(cluster, index=0):
    name = f"worker-{index}"
    assert cluster.nodes()[name] == "node-a"
    made = cluster.claim(f"made-{index}")
    assert [user.name for user in made.status.reserved_for] == [name]
    assert made.metadata.annotations["resource.kubernetes.io/extended-resource-claim"] == "true"
    told = cluster.pod(name).status.extended_resource_claim_status
    assert told.resource_claim_name == made.metadata.name
    assert [use.request_name for use in told.request_mappings] == ["gpu"]


def assert_nothing_left(cluster):
    assert cluster.nodes() == {}
    assert cluster.claims() == []


async def test_the_claim_is_made_allocated_reserved_and_told_before_the_pod_is_bound(cluster):
    outcome = await run(cluster, placement(cluster, 0), placement(cluster, 1))
    assert outcome.reason == ""
    assert_served(cluster, 0)
    assert_served(cluster, 1)
    kinds = [call.kind for call in cluster.calls]
    assert kinds.index("Pod/binding") > len(kinds) - 1 - kinds[::-1].index("Pod/status")


async def test_an_answer_that_got_lost_makes_no_second_claim(cluster):
    cluster.fail_once("create", "ResourceClaim", lose_answer)
    await run(cluster, placement(cluster))
    assert_served(cluster)
    assert len(cluster.claims()) == 1


async def test_what_an_interrupted_attempt_made_is_used(cluster):
    wanted = placement(cluster)
    await run(cluster, wanted)
    cluster.calls.clear()
    outcome = await run(cluster, wanted)
    assert len(outcome.bound) == 1
    assert cluster.made("patch", "ResourceClaim/status") == 0


async def test_a_leftover_that_asks_for_something_else_is_deleted(cluster):
    wanted = placement(cluster)
    body = {
        "metadata": {
            "name": "made-0",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "worker-0", "uid": wanted.pod.uid}
                | {"controller": True}
            ],
        },
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 3}}]
            }
        },
    }
    cluster.api.create(CLAIMS, body, NAMESPACE)
    outcome = await run(cluster, wanted)
    assert "of an earlier attempt" in outcome.reason
    assert_nothing_left(cluster)
    await run(cluster, wanted)
    assert_served(cluster)


async def test_a_claim_of_that_name_that_is_not_the_pods_is_left_alone(cluster):
    wanted = placement(cluster)
    cluster.add_claim("made-0")
    outcome = await run(cluster, wanted)
    assert "made-0" in outcome.reason
    assert cluster.claim("made-0") is not None
    assert cluster.nodes() == {}


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("create", "ResourceClaim"), ("patch", "ResourceClaim/status"), ("patch", "Pod/status")],
)
async def test_a_refusal_leaves_nothing_behind(cluster, verb, kind):
    cluster.fail_once(verb, kind, refuse(403, "Forbidden"))
    outcome = await run(cluster, placement(cluster, 0), placement(cluster, 1))
    assert outcome.reason
    assert_nothing_left(cluster)


async def test_a_device_that_another_scheduler_took_is_given_back(cluster):
    other = cluster.add_claim("theirs")
    cluster.allocate("theirs", device("gpu-0", "node-a"))
    outcome = await run(cluster, placement(cluster))
    assert "is also allocated" in outcome.reason
    assert [claim.metadata.name for claim in cluster.claims()] == [other.name]


async def test_without_the_feature_the_pod_is_not_bound(cluster):
    wanted = placement(cluster)
    send = cluster.send

    async def forgetful(call, *, timeout_seconds=None):
        answer = await send(call, timeout_seconds=timeout_seconds)
        return answer.replace(b"extendedResourceClaimStatus", b"dropped")

    cluster.send = forgetful
    outcome = await run(cluster, wanted)
    assert "DRAExtendedResource" in outcome.reason
    assert_nothing_left(cluster)


async def test_a_pod_that_went_away_takes_its_claim_along(cluster):
    wanted = placement(cluster)

    def remove():
        delete(cluster.api, PODS, wanted.pod.name, NAMESPACE, DeleteOptions(grace_seconds=0))

    cluster.fail_once("create", "Pod/binding", first(remove))
    outcome = await run(cluster, wanted)
    assert outcome.bound == ()
    assert_nothing_left(cluster)
