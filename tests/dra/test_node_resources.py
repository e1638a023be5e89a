"""What devices take of their node, in amounts of any size."""

from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
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
