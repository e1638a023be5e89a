"""ResourceClaims: what never changes, what can only be cleared, which users may be removed."""

from typing import Any

import pytest

from tests.cluster.conformance.place import Json, Place, allocation, claim, pod, refusal
from tests.support.cluster.api import STRATEGIC_MERGE_PATCH


async def test_claims_keep_their_spec_and_their_allocation(place: Place):
    api = place.api
    created = await api.post(place.claims, claim("c", finalizers=["example.com/hold"]))
    exactly = created["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    changed = {**created, "spec": {"devices": {"requests": []}}}
    assert (await refusal(api.put(f"{place.claims}/c", changed))).code == 422

    async def status(**fields: Any) -> Json:
        return await api.patch(f"{place.claims}/c/status", {"status": fields})

    user = await api.post(place.pods, pod("p"))
    consumer = {"resource": "pods", "name": "p", "uid": user["metadata"]["uid"]}
    error = await refusal(status(reservedFor=[consumer]))
    assert "status.reservedFor: Forbidden" in str(error)
    other = allocation("d")
    other["devices"]["results"][0]["request"] = "other"
    assert (await refusal(status(allocation=other))).code == 422
    await status(allocation=allocation("gpu-0"), reservedFor=[consumer])
    error = await refusal(status(allocation=allocation("gpu-1"), reservedFor=[consumer]))
    assert error.code == 422
    assert (await refusal(status(allocation=None))).code == 422


async def test_one_consumer_leaves_a_claim_by_its_uid(place: Place):
    api = place.api
    pods = [await api.post(place.pods, pod(name)) for name in ("a", "b")]
    consumers = [
        {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in pods
    ]
    created = await api.post(place.claims, claim("c"))
    status = {"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers}}
    await api.patch(f"{place.claims}/c/status", status)
    body = {
        "metadata": {"uid": created["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": consumers[0]["uid"]}]},
    }
    shown = await api.patch(f"{place.claims}/c/status", body, content_type=STRATEGIC_MERGE_PATCH)
    assert [each["name"] for each in shown["status"]["reservedFor"]] == ["b"]
    body["metadata"]["uid"] = "other"
    error = await refusal(
        api.patch(f"{place.claims}/c/status", body, content_type=STRATEGIC_MERGE_PATCH)
    )
    assert error.code == 422


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"name": "g", "exactly": {"count": 1}}, "exactly.deviceClassName: Required value"),
        (
            {"name": "g", "exactly": {"deviceClassName": "x", "allocationMode": "Some"}},
            "exactly.allocationMode",
        ),
        (
            {"name": "g", "exactly": {"deviceClassName": "x", "allocationMode": "All", "count": 2}},
            "exactly.count: Invalid value",
        ),
        ({"name": "g"}, "spec.devices.requests[0]"),
    ],
)
async def test_impossible_claims_are_refused(place: Place, request_: Json, field: str):
    given = claim("c")
    given["spec"]["devices"]["requests"] = [request_]
    error = await refusal(place.api.post(place.claims, given))
    assert error.code == 422
    assert field in str(error)


EXACTLY = {"name": "g", "exactly": {"deviceClassName": "x"}}
ONE_OF = [{"name": "a", "deviceClassName": "x"}, {"name": "b", "deviceClassName": "x"}]
TWICE = [ONE_OF[0], ONE_OF[0]]


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        ({"requests": [EXACTLY, EXACTLY]}, "requests[1]"),
        ({"requests": [EXACTLY | {"firstAvailable": ONE_OF}]}, "requests[0]: Invalid value"),
        ({"requests": [EXACTLY | {"name": "G_0"}]}, "requests[0].name: Invalid value"),
        ({"requests": [{"name": "g", "firstAvailable": TWICE}]}, "firstAvailable[1]"),
        ({"requests": [{"name": "g", "firstAvailable": ONE_OF * 5}]}, "firstAvailable: Too many"),
        (
            {"requests": [EXACTLY | {"name": f"g{i}"} for i in range(33)]},
            "devices.requests: Too many",
        ),
        ({"constraints": [{"requests": ["g"]}]}, "constraints[0]"),
        (
            {"constraints": [{"matchAttribute": "a.b/c", "requests": ["h"]}]},
            "constraints[0].requests[0]: Invalid value",
        ),
        ({"constraints": [{"matchAttribute": "c"}]}, "constraints[0].matchAttribute"),
        ({"config": [{"requests": ["g"]}]}, "config[0].opaque: Required value"),
    ],
)
async def test_impossible_combinations_of_requests_are_refused(
    place: Place, devices: Json, field: str
):
    given = claim("c")
    given["spec"]["devices"] = {"requests": [EXACTLY], **devices}
    error = await refusal(place.api.post(place.claims, given))
    assert error.code == 422
    assert field in str(error)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"allNodes": True}, "spec: Invalid value"),
        ({"nodeName": None}, "spec: Required value"),
        ({"nodeName": None, "allNodes": False}, "spec.allNodes: Invalid value"),
        ({"pool": {"name": "p", "generation": 1}}, "spec.pool.resourceSliceCount"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "spec.devices[1]"),
        ({"devices": [{"name": "A_"}]}, "spec.devices[0].name"),
        ({"devices": [{"name": f"d{i}"} for i in range(129)]}, "spec.devices: Too many"),
        ({"devices": [{"name": "a", "nodeName": "n"}]}, "spec.devices[0]: Invalid value"),
        ({"devices": [{"name": "a", "attributes": {"x": {}}}]}, "attributes[x]"),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"version": "1"}}}]},
            "attributes[x].version",
        ),
        (
            {
                "devices": [
                    {
                        "name": "a",
                        "capacity": {"x": {"value": "1", "requestPolicy": {"default": "1"}}},
                    }
                ]
            },
            "capacity[x].requestPolicy: Forbidden",
        ),
    ],
)
async def test_impossible_slices_are_refused(place: Place, spec: Json, field: str):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    given = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "refused"},
        "spec": {"driver": "example.com", "nodeName": "n", "pool": pool, **spec},
    }
    error = await refusal(place.api.post("/apis/resource.k8s.io/v1/resourceslices", given))
    assert error.code == 422
    assert field in str(error)
