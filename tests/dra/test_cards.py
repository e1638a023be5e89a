"""Cards of which nothing is left look alike, whatever is held of them, and change no answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass
from kai_py.dra.allocator import Allocation, allocate
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.examples import examples
from tests.support.records import from_json
from tests.support.scenario import claim_of, partitions

NODES = tuple(Node(metadata=ObjectMeta(name=f"n{i}")) for i in range(3))
CLASSES = {
    "part": from_json(DeviceClass, {"metadata": {"name": "part"}, "spec": {"selectors": []}})
}
PARTS = {"small": 1, "large": 2, "whole": 4}
"""Profile to slots, of the four that a card has."""


def slices(node, cards=2, slots=4):
    devices = [
        {
            "name": f"{card}-{profile}-{start}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [
                {
                    "counterSet": f"card-{card}",
                    "counters": {f"slot-{start + i}": {"value": "1"} for i in range(size)},
                }
            ],
        }
        for card in range(cards)
        for profile, size in PARTS.items()
        for start in range(0, slots - size + 1, size)
    ]
    counters = {f"card-{card}": {f"slot-{i}": 1 for i in range(slots)} for card in range(cards)}
    return partitions(node, devices, counters, driver="gpu.example.com")


def claim(profile, *, admin=False):
    text = f"device.attributes['gpu.example.com'].profile == '{profile}'"
    exactly = {"deviceClassName": "part", "selectors": [{"cel": {"expression": text}}]}
    request = {"name": "part", "exactly": exactly | ({"adminAccess": True} if admin else {})}
    return claim_of(profile, request)


STEPS = st.lists(
    st.tuples(st.sampled_from([*PARTS, "free"]), st.integers(0, len(NODES) - 1), st.booleans()),
    max_size=40,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, choice=st.sampled_from(AllocationStrategy))
def test_a_walk_of_the_fleet_is_that_of_the_allocator(steps, choice):
    pieces = [piece for node in NODES for piece in slices(node.metadata.name)]
    inventory = Inventory.of(pieces, strategy=choice)
    fleet, state, held = ClusterAllocator(inventory, CLASSES), DeviceState(inventory.device), []
    for profile, row, admin in steps:
        if profile == "free":
            if held:
                state.release(held.pop(row % len(held)))
            continue
        wanted = [claim(profile, admin=admin)]
        plain = allocate(wanted, NODES[row], inventory, state, CLASSES)
        assert fleet.allocate(wanted, NODES, row, state) == plain
        fits = fleet.count_fits(wanted, NODES, state, limit=1)
        assert bool(fits[row]) is isinstance(plain, Allocation)
        if isinstance(plain, Allocation) and not admin:
            held += plain.allocations
            state.mark_allocated(plain.allocations[0])


def test_what_is_held_of_a_spent_card_makes_no_difference():
    inventory = Inventory.of([piece for n in NODES for piece in slices(n.metadata.name)])
    fleet, state = ClusterAllocator(inventory, CLASSES), DeviceState(inventory.device)
    for row, profiles in enumerate((["whole"], ["large", "large"], ["large", "small"])):
        for profile in profiles:
            answer = fleet.allocate([claim(profile)], NODES, row, state)
            state.mark_allocated(answer.allocations[0])
    _, numbers = fleet.query([claim("small")], NODES, state)
    assert numbers[0] == numbers[1] != numbers[2]
    small = fleet.count_fits([claim("small")], NODES, state, limit=9)
    assert small.tolist() == [4, 4, 5]


@pytest.mark.parametrize(("held", "best"), [(0, 1), (1, 0), (2, 3), (3, 2)])
def test_a_small_part_is_taken_where_the_large_one_is_lost_anyway(held, best):
    """Of a large part only one of two slots is gone; it is lost nevertheless."""
    inventory = Inventory.of(slices("n0", cards=1))
    state = DeviceState(inventory.device)
    taken = DeviceID("gpu.example.com", "n0", f"0-small-{held}")
    set_device_allocation(state, taken, DeviceAllocation(exclusive_holders=1))
    answer = allocate([claim("small")], NODES[0], inventory, state, CLASSES)
    assert isinstance(answer, Allocation)
    [result] = answer.allocations[0].devices.results
    assert result.device == f"0-small-{best}"
