"""Of all answers that there are the allocator finds one, and says no only where there is none."""

import pytest
from hypothesis import given, settings

from kai_py.api.quantity import NANO
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.dra.allocator import Allocation, Infeasible, allocate
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.examples import examples
from tests.support.scenario import claim_of, partitions

from .crowds import CLASSES, as_objects, crowds
from .feasible import assignments, is_valid

NODE = Node(metadata=ObjectMeta(name="n", labels={"rack": "r"}))


@pytest.mark.slow
@settings(max_examples=examples(600), deadline=None)
@given(question=crowds())
def test_an_answer_is_found_where_there_is_one(question):
    claims, inventory, state = as_objects(question)
    answer = allocate(claims, NODE, inventory, state, CLASSES)
    possible = assignments(question["claims"], question["devices"])
    if not isinstance(answer, Allocation):
        assert isinstance(answer, Infeasible), answer
        assert not any(is_valid(picks, question) for picks in possible)
        return
    assert is_valid(chosen(question, answer), question)


def chosen(question, answer):
    """The answer as an assignment."""
    devices = {device["name"]: device for device in question["devices"]}
    return [
        (claim, option_of(claim, result.request), devices[result.device])
        for claim, allocation in zip(question["claims"], answer.allocations, strict=True)
        for result in allocation.devices.results
    ]


def option_of(claim, name):
    [option] = [o for request in claim["requests"] for o in request if o["name"] == name]
    return option


@pytest.mark.parametrize(("sign", "chosen_share"), [(1, "z"), (-1, "y")])
def test_amounts_that_no_float_holds_leave_the_other_devices(sign, chosen_share):
    amount = sign * 10**400
    shared = {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}
    draws = [{"counterSet": "s", "counters": {"c": {"value": str(amount)}}}]
    slices = partitions(
        "n",
        [
            {"name": "x", "consumesCounters": draws},
            {"name": "y", **shared},
            {"name": "z", **shared},
        ],
        {"s": {"c": 1}},
        driver="d",
    )
    inventory = Inventory.of(slices)
    state = DeviceState(inventory.device)
    used = DeviceAllocation(0, 1, (("m", amount * NANO),))
    set_device_allocation(state, DeviceID("d", "n", "y"), used)
    request = {"deviceClassName": "any", "capacity": {"requests": {"m": "1"}}}
    claims = [claim_of("c", {"name": "r", "exactly": request})]
    answer = allocate(claims, NODE, inventory, state, CLASSES)
    assert [each.device for each in answer.allocations[0].devices.results] == [chosen_share]
