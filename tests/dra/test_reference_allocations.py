"""Allocations and errors that the allocator of Kubernetes 1.37 gives, rule by rule."""

import pytest

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.dra.allocator import Allocation, Infeasible, allocate
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.features import ALL_FEATURES, AllocationStrategy, Features
from kai_py.dra.identity import AllocationError, DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.records import from_json

NODE = Node(metadata=ObjectMeta(name="n"))
OPAQUE = {"opaque": {"driver": "d", "parameters": {"kind": "K"}}}
WITHOUT_LISTS = Features.only("device_binding_and_status", "prioritized_list")


def piece(*devices, pool="p", count=1, **fields):
    spec = {"pool": {"name": pool, "generation": 1, "resourceSliceCount": count}}
    spec |= {"driver": "d", "devices": list(devices)} | (fields or {"nodeName": "n"})
    return {"metadata": {"name": f"slice-{pool}"}, "spec": spec}


def device(name, **fields):
    return {"name": name, **fields}


def listing(name, *values):
    return device(name, attributes={"a": {"strings": list(values)}})


def exactly(name, count=1, **fields):
    asked = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": count, **fields}
    return {"name": name, "exactly": asked}


def one_of(name, *alternatives):
    options = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": options}


def answer(
    slices, *requests, features=ALL_FEATURES, class_spec=None, held=None, node=NODE, **devices
):
    """``held``: by name of a device, what is consumed of its capacity ``m``; 0 of it as a whole."""
    claim = {"metadata": {"name": "claim", "namespace": "ns"}}
    claim["spec"] = {"devices": {"requests": list(requests), **devices}}
    inventory = Inventory.of(
        [from_json(ResourceSlice, each) for each in slices],
        features=features,
        strategy=AllocationStrategy.FIRST_FIT,
    )
    classes = {"c": from_json(DeviceClass, {"metadata": {"name": "c"}, "spec": class_spec or {}})}
    claims = [from_json(ResourceClaim, claim)]
    state = DeviceState(inventory.device)
    for name, amount in (held or {}).items():
        shared = DeviceAllocation(0, 1, (("m", amount * 10**9),))
        allocation = shared if amount else DeviceAllocation(1)
        set_device_allocation(state, DeviceID("d", "p", name), allocation)
    return allocate(claims, node, inventory, state, classes)


def devices_of(outcome):
    assert isinstance(outcome, Allocation), outcome
    return [each.device for each in outcome.allocations[0].devices.results]


@pytest.mark.parametrize(
    ("requests", "config", "named"),
    [
        ([exactly("r")], [{"requests": ["r"]}], [(), ()]),
        ([exactly("r")], [{}], [(), ()]),
        ([one_of("r", exactly("s"))], [{"requests": ["r/s"]}], [(), ()]),
        ([exactly("r"), exactly("q")], [{"requests": ["q", "r"]}], [(), ()]),
        ([exactly("r"), exactly("q")], [{"requests": ["q"]}], [(), ("q",)]),
    ],
)
def test_configuration_of_all_requests_names_none(requests, config, named):
    outcome = answer(
        [piece(device("x"), device("y"))],
        *requests,
        class_spec={"config": [OPAQUE]},
        config=[OPAQUE | each for each in config],
    )
    assert [each.requests for each in outcome.allocations[0].devices.config] == named


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_only_the_first_device_may_have_a_list_while_lists_are_disabled(kind):
    slices = [piece(listing("x", "1"), listing("y", "2"))]
    constraints = [{kind: "d/a"}]
    one = answer(slices, exactly("r"), features=WITHOUT_LISTS, constraints=constraints)
    assert devices_of(one) == ["x"]
    two = answer(slices, exactly("r", 2), features=WITHOUT_LISTS, constraints=constraints)
    assert two == Infeasible()


def test_a_first_list_is_taken_after_a_dead_end_too():
    attributes = {"a": {"string": "1"}}
    outcome = answer(
        [piece(device("x", attributes=attributes), listing("y", "1"))],
        one_of("r", exactly("s", 2), exactly("t", selectors=[selector("y")])),
        features=WITHOUT_LISTS,
        constraints=[{"matchAttribute": "d/a"}],
    )
    assert devices_of(outcome) == ["y"]


def selector(name):
    values = {"x": "false", "y": 'type(device.attributes["d"].a) == list'}
    return {"cel": {"expression": values[name]}}


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_with_an_empty_list_satisfies_no_constraint(kind):
    outcome = answer([piece(listing("x"))], exactly("r"), constraints=[{kind: "d/a"}])
    assert outcome == Infeasible()


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [
        ({}, "2", ["x", "y"]),
        ({"x": 2}, "2", ["x", "y"]),
        ({}, "5", None),
        ({"x": 3}, "2", None),
        ({"x": 4}, None, None),
    ],
)
def test_all_includes_devices_with_too_little_capacity_left(held, asked, expected):
    """As in Kubernetes 1.37 (PR 140769); 1.36 leaves such devices out."""
    shared = [
        device(name, allowMultipleAllocations=True, capacity={"m": {"value": "4"}})
        for name in ("x", "y")
    ]
    requests = {"capacity": {"requests": {"m": asked}}} if asked else {}
    every = exactly("r", allocationMode="All", **requests)
    del every["exactly"]["count"]
    outcome = answer([piece(*shared)], every, held=held)
    assert outcome == Infeasible() if expected is None else devices_of(outcome) == expected


def test_an_all_request_against_a_constraint_is_an_error_after_a_dead_end_too():
    outcome = answer(
        [piece(device("x"), device("y"))],
        one_of("r", exactly("s", 3), exactly("t", allocationMode="All")),
        constraints=[{"matchAttribute": "d/a"}],
    )
    assert isinstance(outcome, AllocationError)
    assert str(outcome).startswith("claim ns/claim, request t: cannot add device d/p/x because")


def test_an_all_request_against_a_constraint_is_an_error_once_its_first_device_is_free():
    """With x in use there is no result, however many equal devices are tried in place of y."""
    outcome = answer(
        [piece(device("x"), device("y"), device("z"))],
        exactly("r", 2),
        exactly("s", allocationMode="All"),
        constraints=[{"matchAttribute": "d/a", "requests": ["s"]}],
    )
    assert isinstance(outcome, AllocationError)
    assert "request s: cannot add device d/p/x because" in str(outcome)


def test_an_all_request_against_a_constraint_is_an_error_without_capacity_too():
    full = device("x", allowMultipleAllocations=True, capacity={"m": {"value": "4"}})
    every = exactly("r", allocationMode="All")
    outcome = answer([piece(full)], every, held={"x": 4}, constraints=[{"matchAttribute": "d/a"}])
    assert isinstance(outcome, AllocationError)
    assert "a claim constraint would not be satisfied" in str(outcome)


@pytest.mark.parametrize(
    "capacity",
    [
        {"value": "1", "requestPolicy": {"default": "2"}},
        {"value": "8", "requestPolicy": {"validValues": ["3"]}},
        {"value": "8", "requestPolicy": {"validRange": {"min": "1", "max": "4"}}},
    ],
)
def test_a_whole_device_must_satisfy_its_own_request_policy(capacity):
    slices = [piece(device("x", capacity={"m": capacity}), device("y"))]
    assert devices_of(answer(slices, exactly("r"))) == ["y"]
    assert devices_of(answer(slices, exactly("r", allocationMode="All"))) == ["y"]


def test_an_amount_that_ends_below_zero_is_an_error():
    negative = {"value": "8", "requestPolicy": {"default": "-1"}}
    small = {"value": "1", "requestPolicy": {"default": "2"}}
    outcome = answer(
        [piece(device("x", allowMultipleAllocations=True, capacity={"k": small, "m": negative}))],
        exactly("r"),
    )
    assert isinstance(outcome, AllocationError)
    assert 'capacity "m": capacity value is negative' in str(outcome)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"capacity": {"requests": {"m": "1"}}},
            "claim ns/claim, subrequest s: has capacity requests, but",
        ),
        (
            {"derivedAttributes": [{"name": "d/b", "expression": "1"}]},
            "claim ns/claim, request s: cannot handle request with derived attributes",
        ),
        ({"deviceClassName": "x"}, "claim ns/claim, request s: could not retrieve device class x"),
    ],
)
def test_errors_name_the_alternative_alone(fields, text):
    request = one_of("r", exactly("s", **fields))
    outcome = answer([piece(device("x"))], request, features=WITHOUT_LISTS)
    assert str(outcome).startswith(text)


def test_all_looks_at_pools_in_order_until_the_first_error():
    broken = {"cel": {"expression": 'device.attributes["d"].missing == 1'}}
    request = exactly("r", allocationMode="All", selectors=[broken])
    slices = [piece(device("x")), piece(device("y"), pool="q", count=2)]
    assert "no such key: missing" in str(answer(slices, request))
    slices = [piece(device("x"), count=2), piece(device("y"), pool="q")]
    assert "is currently being updated" in str(answer(slices, request))


def test_an_unusable_pool_stays_in_order_whatever_its_binding_conditions():
    bound = device("x", bindingConditions=["c"], bindingFailureConditions=["f"])
    slices = [piece(bound, bound), piece(device("y"), pool="q", count=2)]
    outcome = answer(slices, exactly("r", allocationMode="All"))
    assert "d/p is currently invalid" in str(outcome)


def grouped_device(name, *groups, **fields):
    draw = {"counterSet": "s", "counters": {}, "compatibilityGroups": list(groups)}
    return device(name, consumesCounters=[draw], **fields)


SHARED = {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}


@pytest.mark.parametrize(
    ("candidate", "held", "allocated"),
    [
        (grouped_device("z"), {"x": 0, "y": 0}, False),
        (grouped_device("z", "g"), {"x": 0, "y": 0}, False),
        (grouped_device("z"), {"x": 0}, False),
        (grouped_device("z"), {"y": 0}, True),
        # Its counters and groups count already.
        (grouped_device("z", "h", **SHARED), {"y": 0, "z": 1}, True),
        (grouped_device("z", "h", **SHARED), {"y": 0}, False),
    ],
)
def test_no_device_joins_those_that_should_not_be_together(candidate, held, allocated):
    """Another scheduler, or a changed slice, may have brought x and y together.

    Kubernetes then asks the first of them alone, x, which has something in common with g.
    """
    counters = piece(pool="p", count=2, nodeName="n", sharedCounters=[{"name": "s"}])
    del counters["spec"]["devices"]
    devices = piece(grouped_device("x", "g"), grouped_device("y"), candidate, count=2)
    request = {"capacity": {"requests": {"m": "1"}}} if "capacity" in candidate else {}
    outcome = answer([counters, devices], exactly("r", **request), held=held)
    assert devices_of(outcome) == ["z"] if allocated else outcome == Infeasible()


def test_a_node_selector_names_each_requirement_once():
    def zones(*values):
        requirement = {"key": "zone", "operator": "In", "values": list(values)}
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}

    slices = [
        piece(device("x"), pool="p", **zones("a", "b")),
        piece(device("y"), pool="q", **zones("b", "a")),
    ]
    node = Node(metadata=ObjectMeta(name="n", labels={"zone": "a"}))
    outcome = answer(slices, exactly("r", 2), node=node)
    (term,) = outcome.allocations[0].node_selector.node_selector_terms
    assert [each.values for each in term.match_expressions] == [("a", "b")]


def test_a_fraction_is_consumed_exactly():
    policy = {"default": "500m", "validRange": {"min": "500m", "step": "1Ki"}}
    capacity = {"m": {"value": "2Ki", "requestPolicy": policy}}
    slices = [piece(device("x", allowMultipleAllocations=True, capacity=capacity))]
    outcome = answer(slices, exactly("r", capacity={"requests": {"m": "4"}}))
    (result,) = outcome.allocations[0].devices.results
    assert result.consumed_capacity == {"m": "1024500m"}


def test_a_consumed_amount_is_written_as_it_was_requested():
    slices = [
        piece(device("x", allowMultipleAllocations=True, capacity={"m": {"value": "8Gi"}})),
    ]
    wanted = exactly("s", capacity={"requests": {"m": "2G"}})
    for request in (exactly("r", capacity={"requests": {"m": "2G"}}), one_of("r", wanted)):
        (result,) = answer(slices, request).allocations[0].devices.results
        assert result.consumed_capacity == {"m": "2G"}
