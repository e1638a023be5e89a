"""Each device of a request is chosen with regard to those chosen before it."""

import pytest

from kai_py.dra.allocator import Allocation, allocate
from kai_py.dra.device_state import DeviceState
from kai_py.dra.inventory import Inventory
from tests.support.scenario import claim_of, device_slice, partitions

from .test_cards import CLASSES, NODES

SLOTS = 5
"""Of a GPU; small partitions take one, the large one takes the first four."""


def gpus(count):
    """Slices of GPUs on which a small partition costs least in the last slot."""
    devices = [
        {
            "name": f"{gpu}-{profile}-{start}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [
                {
                    "counterSet": f"gpu-{gpu}",
                    "counters": {f"slot-{start + i}": {"value": "1"} for i in range(size)},
                }
            ],
        }
        for gpu in range(count)
        for profile, size, starts in (
            ("small", 1, range(SLOTS)),
            ("large", SLOTS - 1, (0,)),
            ("whole", SLOTS, (0,)),
        )
        for start in starts
    ]
    counters = {f"gpu-{gpu}": {f"slot-{i}": 1 for i in range(SLOTS)} for gpu in range(count)}
    return partitions("n0", devices, counters, driver="gpu.example.com")


def devices_of(inventory, count, selector="true"):
    exactly = {
        "deviceClassName": "part",
        "count": count,
        "selectors": [{"cel": {"expression": selector}}],
    }
    claim = claim_of("c", {"name": "part", "exactly": exactly})
    answer = allocate([claim], NODES[0], inventory, DeviceState(inventory.device), CLASSES)
    assert isinstance(answer, Allocation)
    return [result.device for result in answer.allocations[0].devices.results]


@pytest.mark.parametrize(("count", "cards"), [(2, 1), (5, 1), (6, 2)])
def test_partitions_of_one_request_leave_other_gpus_whole(count, cards):
    selector = "device.attributes['gpu.example.com'].profile == 'small'"
    names = devices_of(Inventory.of(gpus(3)), count, selector)
    assert len({name.split("-")[0] for name in names}) == cards


def test_devices_of_one_request_share_a_numa_node_though_not_a_root():
    devices = [
        {
            "name": f"numa{number % 2}-{number}",
            "attributes": {
                "resource.kubernetes.io/pcieRoot": {"string": f"pci{number}"},
                "resource.kubernetes.io/numaNode": {"int": number % 2},
            },
        }
        for number in range(6)
    ]
    names = devices_of(Inventory.of([device_slice("n0", devices, driver="gpu.example.com")]), 3)
    assert len({name.split("-")[0] for name in names}) == 1
