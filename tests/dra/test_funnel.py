"""The record of why devices are not found: counts add up, the sentence names what stops."""

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, DeviceConstraint
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.eligibility import DeviceCheck
from kai_py.dra.explain.diagnosis import diagnose_allocation
from kai_py.dra.explain.diagnosis_message import diagnosis_message
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError, DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.examples import examples
from tests.support.records import from_json
from tests.support.scenario import claim_of, device_slice, partitions

from .instances import CLASSES
from .test_fleet import build, fleets

DRIVER = "gpu.nvidia.com"
CLASS = from_json(
    DeviceClass,
    {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    },
)


def gpu(name, product="H100", **more):
    attributes = {"productName": {"string": product}, "type": {"string": "gpu"}}
    return {"name": name, "attributes": attributes} | more


def claim_for(count=1, *selectors, **exactly):
    texts = [{"cel": {"expression": each}} for each in selectors]
    request = {"deviceClassName": "gpu", "count": count, "selectors": texts} | exactly
    return claim_of("c", {"name": "gpus", "exactly": request})


def funnel_of(slices, claims, *, held=(), among=None):
    names = sorted({piece.spec.node_name or "n0" for piece in slices})
    nodes = tuple(Node(metadata=ObjectMeta(name=name)) for name in names)
    inventory = Inventory.of(slices)
    state = DeviceState(inventory.device)
    for device in held:
        set_device_allocation(
            state, DeviceID(DRIVER, *device), DeviceAllocation(exclusive_holders=1)
        )
    rows = np.arange(len(nodes), dtype=np.int64) if among is None else np.array(among)
    return diagnose_allocation(
        ClusterAllocator(inventory, {"gpu": CLASS}), claims, nodes, state, rows
    )


def removed(funnel, step):
    return sum(each.devices for o in funnel.options for each in o.rejected if each.check is step)


def test_the_failing_condition_and_the_nearest_device_are_named():
    product = f'device.attributes["{DRIVER}"].productName'
    wanted = claim_for(1, f'device.attributes["{DRIVER}"].type == "gpu" && {product} == "H200"')
    slices = [device_slice("n0", [gpu("a"), gpu("b")]), device_slice("n1", [gpu("c", "A100")])]
    funnel = funnel_of(slices, [wanted])
    [option] = funnel.options
    assert (option.matching, option.free) == (0, 0)
    assert removed(funnel, DeviceCheck.SELECTOR) == funnel.devices == 3
    assert option.closest.condition == f'{product} == "H200"'
    assert option.closest.values == ((f"{DRIVER}/productName", '"H100"'),)
    text = diagnosis_message(funnel, [wanted])
    assert text.startswith(
        "claim default/c, request gpus: no device matches selector: of 3 devices 3 "
    )
    assert f'3 fail selector #0 ({product} == "H200")' in text
    assert f'nearest is {DRIVER}/n0/a, where {DRIVER}/productName is "H100"' in text


@pytest.mark.parametrize(
    ("attribute", "held", "error"),
    [("nvlink", "missing", "no such key: nvlink"), ("type", '"gpu"', "no such overload")],
)
def test_a_selector_that_throws_is_told_apart_from_one_that_says_no(attribute, held, error):
    wanted = claim_for(1, f'device.attributes["{DRIVER}"].{attribute} > 3')
    funnel = funnel_of([device_slice("n0", [gpu("a")])], [wanted])
    assert funnel.options[0].rejected[0].cause.endswith(f"{attribute} > 3, error: {error})")
    assert funnel.options[0].closest.values == ((f"{DRIVER}/{attribute}", held),)


def test_devices_in_use_tainted_and_free_are_told_apart():
    taints = [{"key": "xid", "value": "79", "effect": "NoSchedule"}]
    slices = [device_slice("n0", [gpu("a"), gpu("b", taints=taints), gpu("c"), gpu("d")])]
    wanted = claim_for(3)
    funnel = funnel_of(slices, [wanted], held=[("n0", "a"), ("n0", "c")])
    assert (removed(funnel, DeviceCheck.IN_USE), removed(funnel, DeviceCheck.TAINT)) == (2, 1)
    assert (funnel.options[0].free, funnel.options[0].max_on_one_node) == (1, 1)
    text = diagnosis_message(funnel, [wanted])
    assert "insufficient allocatable devices: requested 3 of class gpu, at most 1 on a node" in text
    assert "of 4 devices 1 tainted xid=79:NoSchedule, 2 in use" in text


def test_partitions_without_counters_left_are_told():
    draws = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    parts = [gpu(f"part-{i}", consumesCounters=draws) for i in range(4)]
    counters = {"card": {"slots": 2}}
    slices = partitions("n0", parts, counters)
    funnel = funnel_of(slices, [claim_for(3)], held=[("n0", "part-0"), ("n0", "part-1")])
    assert (removed(funnel, DeviceCheck.IN_USE), removed(funnel, DeviceCheck.COUNTERS)) == (2, 2)
    assert "2 have insufficient counters" in diagnosis_message(funnel, [claim_for(3)])


def test_a_pool_that_keeps_all_devices_from_one_node_is_not_the_reason_of_the_others():
    """Requests for all devices need complete pools, each node those that it sees."""
    claims = [claim_for(allocationMode="All")]
    partial = device_slice("n0", [gpu("g0")], of=2)
    of_n0 = funnel_of([partial], claims)
    assert isinstance(of_n0, AllocationError)
    assert "is currently being updated" in str(of_n0)
    busy = device_slice("n1", [gpu("g0"), gpu("g1")])
    funnel = funnel_of([partial, busy], claims, held=[("n1", "g0")])
    text = diagnosis_message(funnel, claims)
    assert "1 in use" in text
    assert f"pool {DRIVER}/n0 incomplete (1 of 2 slices)" in text


def test_incomplete_pools_are_named_and_their_devices_not_counted():
    funnel = funnel_of([device_slice("n0", [gpu("a")], of=3)], [claim_for()])
    assert funnel.devices == 0
    text = diagnosis_message(funnel, [claim_for()])
    assert "insufficient allocatable devices: no device is published" in text
    assert f"pool {DRIVER}/n0 incomplete (1 of 3 slices)" in text


def test_each_request_alone_but_not_together():
    claims = [claim_for(1), claim_for(1)]
    text = diagnosis_message(funnel_of([device_slice("n0", [gpu("a")])], claims), claims)
    assert "insufficient allocatable devices: not enough for all requests" in text


def test_devices_that_cannot_be_had_together_share_counters():
    counters = {"card": {"slices": 3}}
    drawn = [{"counterSet": "card", "counters": {"slices": {"value": "2"}}}]
    parts = [gpu(f"part-{n}", consumesCounters=drawn) for n in range(2)]
    slices = partitions("n0", parts, counters)
    assert "enough on a node, but not together, since devices share counters, 2 free" in text_of(
        slices, claim_for(2)
    )
    assert "not enough for more pods, 2 free" in text_of(slices, claim_for(1))


def test_what_is_counted_names_no_claim_since_equal_claims_share_it():
    slices = [device_slice("n0", [gpu("a")])]
    funnel = funnel_of(slices, [claim_for(1, "device.driver == 'other'")])
    other = replace(claim_for(1), metadata=ObjectMeta(name="other", namespace="ns"))
    text = diagnosis_message(funnel, [other])
    assert text.startswith("claim ns/other, ")
    assert "default/c" not in text


def text_of(slices, wanted, **options):
    return diagnosis_message(funnel_of(slices, [wanted], **options), [wanted])


def constrained(wanted, *constraints):
    devices = replace(wanted.spec.devices, constraints=tuple(constraints))
    return replace(wanted, spec=replace(wanted.spec, devices=devices))


def test_the_constraint_that_prevents_an_allocation_is_named():
    devices = [
        gpu("a", "H100"),
        gpu("b", "A100"),
        gpu("c", "L40"),
    ]
    product = DeviceConstraint(match_attribute=f"{DRIVER}/productName")
    kind = DeviceConstraint(match_attribute=f"{DRIVER}/type")
    for constraints in ([product], [kind, product]):
        text = text_of([device_slice("n0", devices)], constrained(claim_for(2), *constraints))
        assert f"enough on a node, but not with matchAttribute {DRIVER}/productName" in text
        assert "/type" not in text
    distinct = DeviceConstraint(distinct_attribute=f"{DRIVER}/type")
    text = text_of([device_slice("n0", devices)], constrained(claim_for(2), distinct))
    assert f"not with distinctAttribute {DRIVER}/type" in text


def test_constraints_are_not_named_where_devices_are_too_few_anyway():
    product = DeviceConstraint(match_attribute=f"{DRIVER}/productName")
    wanted = constrained(claim_for(2), product)
    text = text_of([device_slice("n0", [gpu("a"), gpu("b")])], wanted, held=[("n0", "a")])
    assert "matchAttribute" not in text
    assert "1 in use" in text


def test_an_attribute_that_no_device_has_is_named():
    wanted = constrained(claim_for(2), DeviceConstraint(match_attribute=f"{DRIVER}/numa"))
    text = text_of([device_slice("n0", [gpu("a"), gpu("b")])], wanted)
    assert f"2 lack the attribute of matchAttribute {DRIVER}/numa" in text


def test_all_devices_of_a_node_are_requested_but_some_are_in_use():
    wanted = claim_for(1, allocationMode="All")
    slices = [device_slice("n0", [gpu("a"), gpu("b")])]
    text = text_of(slices, wanted, held=[("n0", "a")])
    assert "requested all of class gpu, at most 1 on a node and not all" in text
    assert funnel_of(slices, [wanted]).blocked is None


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        ({"memory": "81Gi"}, "1 have too small a capacity of memory."),
        ({"cores": "1"}, "1 have too small a capacity of cores, which they do not publish."),
    ],
)
def test_the_capacity_that_is_too_small_is_named(requested, reason):
    shares = gpu("a", capacity={"memory": {"value": "80Gi"}}, allowMultipleAllocations=True)
    wanted = claim_for(1, capacity={"requests": requested})
    assert reason.rstrip(".") in text_of([device_slice("n0", [shares])], wanted)


def test_nodes_left_out_are_not_counted():
    slices = [device_slice("n0", [gpu("a")]), device_slice("n1", [gpu("b"), gpu("c")])]
    assert funnel_of(slices, [claim_for(5)], among=[1]).devices == 2


def test_a_device_that_many_nodes_see_counts_once():
    shared = device_slice("rack", [gpu("a"), gpu("b")], nodeName="", allNodes=True)
    local = [device_slice("n0", [gpu("x")]), device_slice("n1", [gpu("x")])]
    funnel = funnel_of([shared, *local], [claim_for(9)])
    assert (funnel.devices, funnel.options[0].free, funnel.options[0].max_on_one_node) == (4, 4, 3)


def test_a_fault_in_the_claim_comes_instead():
    found = funnel_of([device_slice("n0", [gpu("a")])], [claim_for(1, "device.driver ==")])
    assert isinstance(found, AllocationError)
    assert "CEL compile error" in str(found)


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(on_nodes=fleets())
def test_every_device_is_counted_once_per_option(on_nodes):
    nodes, inventory, state, claims = build(on_nodes, AllocationStrategy.BEST_FIT)
    rows = np.arange(len(nodes), dtype=np.int64)
    funnel = diagnose_allocation(ClusterAllocator(inventory, CLASSES), claims, nodes, state, rows)
    if isinstance(funnel, AllocationError):
        return
    for option in funnel.options:
        assert option.free + sum(each.devices for each in option.rejected) == funnel.devices
        assert option.max_on_one_node <= option.free <= option.matching
        assert (option.closest is None) == bool(option.matching or not funnel.devices)
    assert diagnosis_message(funnel, claims)
