import json

import msgspec
import pytest

from kai_py.api.records.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kai_py.api.records.resource_versions import decoder, encode_allocation
from tests.support.records import from_json

BODY = {
    "attributes": {"type": {"string": "gpu"}, "numa": {"ints": [0, 1]}},
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
    "allowMultipleAllocations": True,
    "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}],
}
SLICE = {
    "metadata": {"name": "s", "uid": "u", "creationTimestamp": None},
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node-7", "generation": 3, "resourceSliceCount": 2},
        "nodeName": "node-7",
    },
}
EXACTLY = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "count": 2,
    "tolerations": [{"operator": "Exists"}],
    "capacity": {"requests": {"memory": "1Gi"}},
}
ALTERNATIVE = {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]}


def slice_with(device):
    return SLICE | {"spec": SLICE["spec"] | {"devices": [device]}}


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_slice_of_v1beta1_equals_slice_of_v1(version):
    flat = from_json(ResourceSlice, slice_with({"name": "gpu-0", "basic": BODY}), "v1beta1")
    nested = from_json(ResourceSlice, slice_with({"name": "gpu-0"} | BODY), version)
    assert flat == nested
    assert flat.spec.devices[0].attributes["numa"].int_values == (0, 1)
    assert flat.spec.pool.resource_slice_count == 2


@pytest.mark.parametrize("kind", [ResourceClaim, ResourceClaimTemplate])
def test_claim_of_v1beta1_equals_claim_of_v1(kind):
    def document(request):
        spec = {"devices": {"requests": [request, ALTERNATIVE]}}
        return {"spec": {"spec": spec} if kind is ResourceClaimTemplate else spec}

    flat = from_json(kind, document({"name": "gpus"} | EXACTLY), "v1beta1")
    nested = from_json(kind, document({"name": "gpus", "exactly": EXACTLY}), "v1")
    assert flat == nested


def test_absent_count_and_mode_mean_one_device():
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = from_json(ResourceClaim, {"spec": {"devices": {"requests": [request]}}})
    exactly = claim.spec.devices.requests[0].exactly
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)


def test_an_empty_list_attribute_differs_from_an_unknown_type():
    document = slice_with({"name": "d", "attributes": {"a": {"versions": []}, "b": {}}})
    attributes = from_json(ResourceSlice, document).spec.devices[0].attributes
    assert attributes["a"].version_values == ()
    assert attributes["b"].version_values is None


def test_allocation_survives_encoding():
    allocation = AllocationResult(
        devices=DeviceAllocationResult(
            results=(
                DeviceRequestAllocationResult(
                    request="r",
                    driver="d",
                    pool="p",
                    device="x",
                    share_id="s",
                    consumed_capacity={"memory": "1Gi"},
                    tolerations=(DeviceToleration(key="k", effect="NoExecute"),),
                ),
            )
        )
    )
    encoded = encode_allocation(allocation)
    result = encoded["devices"]["results"][0]
    assert result["shareID"] == "s"
    assert result["consumedCapacity"] == {"memory": "1Gi"}
    assert "adminAccess" not in result
    assert msgspec.json.decode(json.dumps(encoded), type=AllocationResult) == allocation


def test_a_wrong_type_names_the_field():
    with pytest.raises(msgspec.ValidationError, match=r"spec\.devices"):
        decoder(ResourceSlice, "v1")(b'{"spec": {"devices": 3}}')
