"""What devices take of their node, in amounts of any size."""

import pytest

from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from kai_py.dra.node_resources import node_resources
from kai_py.snapshot.resources import MAX_BYTES

HUGE = "9" * 4000


def test_no_product_or_sum_of_amounts_is_too_long_to_be_read_and_written():
    mapping = NodeAllocatableMapping(capacity_key="memory", capacity_multiplier=HUGE)
    overhead = NodeAllocatableOverhead(per_pod=HUGE, per_container=HUGE)
    memory = NodeAllocatableResource(mapping=mapping, overhead=overhead)
    device = Device(name="d", node_allocatable_resources={"memory": memory})
    result = DeviceRequestAllocationResult(device="d", consumed_capacity={"memory": HUGE})
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result, result)))
    found = node_resources(allocation, lambda *_: device)
    assert found.of_pod(2) == {"memory": MAX_BYTES}
    assert found.status("claim")["mapping"]


def mapping(**fields):
    return {
        "node_allocatable_resources": {
            "cpu": NodeAllocatableResource(mapping=NodeAllocatableMapping(**fields))
        }
    }


def former(**fields):
    return {"node_allocatable_resource_mappings": {"cpu": NodeAllocatableResourceMapping(**fields)}}


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        (mapping(capacity_key="cores", capacity_multiplier="2"), 6),
        (mapping(capacity_key="cores"), None),
        (mapping(capacity_key="other", capacity_multiplier="2"), None),
        (mapping(capacity_key="none", capacity_multiplier="2"), None),
        (mapping(device_multiplier="5"), 5),
        (mapping(device_multiplier="0"), None),
        (mapping(), None),
        (former(capacity_key="cores", allocation_multiplier="2"), 6),
        (former(capacity_key="cores"), 3),
        (former(capacity_key="other", allocation_multiplier="2"), None),
        (former(capacity_key="none", allocation_multiplier="2"), None),
        (former(allocation_multiplier="5"), 5),
        (former(), None),
    ],
)
def test_a_mapping_counts_once_or_times_what_is_consumed(fields, taken):
    device = Device(name="d", **fields)
    result = DeviceRequestAllocationResult(device="d", consumed_capacity={"cores": "3", "none": 0})
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    found = node_resources(allocation, lambda *_: device)
    assert found.of_pod(1) == ({} if taken is None else {"cpu": 1000 * taken})
    assert bool(found) is (taken is not None)


def test_overhead_counts_for_pods_and_for_containers():
    def taken(containers, **overhead):
        memory = NodeAllocatableResource(overhead=NodeAllocatableOverhead(**overhead))
        device = Device(name="d", node_allocatable_resources={"memory": memory})
        result = DeviceRequestAllocationResult(device="d")
        allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
        return node_resources(allocation, lambda *_: device).of_pod(containers)

    assert taken(2) == {}
    assert taken(2, per_pod="4Ki") == {"memory": 4096}
    assert taken(2, per_container="4Ki") == {"memory": 8192}
    assert taken(2, per_pod="4Ki", per_container="4Ki") == {"memory": 3 * 4096}
    assert taken(0, per_container="4Ki") == {}
