"""The allocator answers like the reference allocator of Kubernetes, case by case."""

import json
from collections import Counter

import msgspec

from kai_py.api.quantity import parse_quantity
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.api.records.resource_versions import allocation_document
from kai_py.dra.allocator import Allocation, Infeasible, allocate
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.identity import AllocationError, DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.records import from_json

TABLE = "dra-allocator-cases"
SWITCHES = {
    "AdminAccess": "admin_access",
    "PrioritizedList": "prioritized_list",
    "PartitionableDevices": "partitionable_devices",
    "DeviceTaints": "device_taints",
    "DeviceBindingAndStatus": "device_binding_and_status",
    "ConsumableCapacity": "consumable_capacity",
    "FractionalCapacityRange": "fractional_capacity_range",
    "ListTypeAttributes": "list_type_attributes",
    "DerivedAttributes": "derived_attributes",
    "CompatibilityGroups": "compatibility_groups",
    "OptionalNodeOperations": "optional_node_operations",
}


def test_case(case):
    answer = answer_of(case)
    expected = case["expect"]
    if expected["errorSubstrings"] is not None:
        assert isinstance(answer, AllocationError), answer
        for text in expected["errorSubstrings"]:
            assert text in str(answer)
        return
    if not expected["results"]:
        assert answer == Allocation(()) or isinstance(answer, Infeasible), answer
        return
    assert isinstance(answer, Allocation), answer
    got = [as_json(each) for each in answer.allocations]
    assert same_claims(got, expected["results"]), json.dumps(got, indent=1)


def test_devices_are_those_of_upstream_in_order(case):
    observed = case["observed"].get("experimental") or case["observed"].get("incubating")
    if observed["error"] or observed["resultsNil"]:
        return
    answer = answer_of(case)
    got = [as_json(each)["devices"].get("results", []) for each in answer.allocations]
    wanted = [each["devices"].get("results", []) for each in observed["results"]]
    assert [[comparable(r) for r in claim] for claim in got] == [
        [comparable(r) for r in claim] for claim in wanted
    ]


def as_json(allocation):
    return json.loads(json.dumps(allocation_document(allocation)))


def answer_of(case):
    given = case["input"]
    inventory = Inventory.of(
        [from_json(ResourceSlice, each) for each in given["slices"]],
        features=Features.only(*(SWITCHES[name] for name in case["features"])),
        strategy=AllocationStrategy.FIRST_FIT,
    )
    classes = {each["metadata"]["name"]: from_json(DeviceClass, each) for each in given["classes"]}
    claims = [from_json(ResourceClaim, each) for each in given["claims"]]
    node = msgspec.convert(given["node"], Node)
    return allocate(claims, node, inventory, state_of(given, inventory), classes)


def state_of(given, inventory):
    state = DeviceState(inventory.device)
    holdings = {}
    for each in given["allocatedDevices"]:
        holdings[device_id(each)] = DeviceAllocation(exclusive_holders=1)
    for each in given["allocatedSharedDeviceIDs"]:
        before = holdings.get(device_id(each), DeviceAllocation())
        holdings[device_id(each)] = DeviceAllocation(shares=before.shares + 1)
    for each in given["allocatedCapacityDevices"]:
        consumed = {
            name: parse_quantity(amount).nano for name, amount in each["consumedCapacity"].items()
        }
        before = holdings.get(device_id(each), DeviceAllocation())
        holdings[device_id(each)] = DeviceAllocation(
            before.exclusive_holders,
            before.shares,
            tuple(sorted((k, v) for k, v in consumed.items() if v)),
        )
    for device, holding in holdings.items():
        set_device_allocation(state, device, holding)
    return state


def device_id(given):
    return DeviceID(given["driver"], given["pool"], given["device"])


def comparable(result):
    """A result as a hashable value: quantities as numbers, share ids as their presence."""
    plain = dict(result)
    if "shareID" in plain:
        plain["shareID"] = "present"
    plain["consumedCapacity"] = {
        name: parse_quantity(amount).nano
        for name, amount in (plain.get("consumedCapacity") or {}).items()
    }
    plain["tolerations"] = [
        {"operator": "Equal"} | toleration for toleration in plain.get("tolerations") or []
    ]
    return json.dumps(plain, sort_keys=True)


def same_claims(got, wanted):
    """Compare as multisets over claims."""
    rest = list(wanted)
    for allocation in got:
        match = next((each for each in rest if same_allocation(allocation, each)), None)
        if match is None:
            return False
        rest.remove(match)
    return not rest


def same_allocation(got, wanted):
    want = wanted["allocation"]
    results = [comparable(each) for each in got["devices"].get("results", [])]
    expected = [comparable(each) for each in want["devices"].get("results", [])]
    if canonical_selector(got) != canonical_selector(want):
        return False
    config = got["devices"].get("config", [])
    if wanted["deviceOrder"] == "exact":
        return results == expected and config == want["devices"].get("config", [])
    return Counter(results) == Counter(expected) and not config


def canonical_selector(allocation):
    selector = allocation.get("nodeSelector")
    if selector is None:
        return None
    return [
        {
            part: sorted(
                (each["key"], each["operator"], tuple(sorted(each.get("values", []))))
                for each in term.get(part, [])
            )
            for part in ("matchExpressions", "matchFields")
        }
        for term in selector["nodeSelectorTerms"]
    ]
