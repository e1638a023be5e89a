"""What no other fast test noticed of how devices and claims are read, each by its smallest case."""

from types import SimpleNamespace

import pytest

from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, ObjectMeta, SelectorRequirement
from kai_py.api.records.node import Node
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import (
    AllocationResult,
    CELDeviceSelector,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceSelector,
    ResourceSlice,
)
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.cluster_layout import LayoutCache
from kai_py.dra.counters import groups_with_device, overdrawn_pools
from kai_py.dra.device_kinds import selector_texts
from kai_py.dra.device_state import DeviceState
from kai_py.dra.divisible_gpus import MIB, DivisibleGpu, memory_mib, serving
from kai_py.dra.eligibility import ExpressionCompileError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError, PoolID
from kai_py.dra.inventory import Inventory
from kai_py.dra.rows import UNGROUPED, Consumption, node_selector_matches
from kai_py.dra.selectors.device import AttributeList
from kai_py.dra.selectors.selector import attribute_value
from kai_py.dra.spending import SelectorAllowance, SelectorsTooExpensiveError
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.device_objects import DeviceObjects
from tests.dialects.feeding import Cluster, node, placed
from tests.mutation.test_survivors import in_team, team
from tests.support.records import from_json
from tests.support.scenario import claim_of


def device(name, **fields):
    return {"name": name, **fields}


POOL_OF_ONE = {"name": "n", "generation": 1, "resourceSliceCount": 1}


def claims_of(count, exactly, *devices, **pool):
    """A node with these devices, and pods with a claim each."""
    meta = {"name": "n-devices"}
    spec = {
        "driver": "d",
        "nodeName": "n",
        "pool": POOL_OF_ONE,
        "devices": list(devices),
        **pool,
    }
    api = {"apiVersion": "resource.k8s.io/v1"}
    yield {**api, "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    yield {**api, "kind": "ResourceSlice", "metadata": meta, "spec": spec}
    request = {"name": "r", "exactly": {"deviceClassName": "any", **exactly}}
    for number in range(count):
        claim_spec = {"devices": {"requests": [request]}}
        made = {"metadata": {"name": f"c{number}"}, "spec": claim_spec}
        yield {**api, "kind": "ResourceClaim", **made}
        uses = [{"name": "r", "resourceClaimName": f"c{number}"}]
        yield in_team(f"p{number}", 0, resourceClaims=uses)


def starting(objects):
    return len(placed(Cluster(team(deserved=100), node("n", 0), list(objects)).plan()))


def test_counters_that_one_device_consumes_are_not_there_for_another():
    counters = [{"name": "card", "counters": {"slices": {"value": "7"}}}]

    def part(name, slices):
        use = {"counterSet": "card", "counters": {"slices": {"value": str(slices)}}}
        return device(name, consumesCounters=[use])

    assert starting(claims_of(2, {}, part("a", 4), part("b", 4), sharedCounters=counters)) == 1
    assert starting(claims_of(2, {}, part("a", 4), part("b", 3), sharedCounters=counters)) == 2


@pytest.mark.parametrize(("units", "pods"), [(5, 2), (6, 1), (10, 1), (11, 0)])
def test_capacity_is_shared_up_to_the_last_unit(units, pods):
    shared = device("a", allowMultipleAllocations=True, capacity={"mem": {"value": "10"}})
    exactly = {"capacity": {"requests": {"mem": str(units)}}}
    assert starting(claims_of(3, exactly, shared)) == pods


@pytest.mark.parametrize(("count", "starts"), [(32, 1), (33, 0)])
def test_a_claim_has_at_most_32_devices(count, starts):
    devices = [device(f"d{number}") for number in range(40)]
    assert starting(claims_of(1, {"count": count}, *devices)) == starts


@pytest.mark.parametrize(("incomplete", "pods"), [("other", 1), ("d", 0)])
def test_a_claim_of_all_devices_waits_for_pools_of_their_drivers_only(incomplete, pods):
    ours = [{"cel": {"expression": "device.driver == 'd'"}}]
    exactly = {"allocationMode": "All", "selectors": ours}
    part = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "part"},
        "spec": {
            "driver": incomplete,
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
            "devices": [device("x")],
        },
    }
    assert starting([*claims_of(1, exactly, device("a")), part]) == pods


def test_selectors_without_an_expression_have_no_text():
    selectors = [DeviceSelector(cel=CELDeviceSelector(expression="true")), DeviceSelector()]
    assert selector_texts(selectors) == ["true"]


@pytest.mark.parametrize(("gpus", "served"), [(1, ["x", "y"]), (2, ["x"])])
def test_parts_of_several_gpus_are_of_those_that_one_attribute_identifies(gpus, served):
    sizes = [DivisibleGpu("d", memory=0, capacities=(), identifier=name) for name in "xy"]
    found = serving(sizes, GpuShare(fraction=0.5, devices=gpus))
    assert [each.identifier for each in found] == served


@pytest.mark.parametrize(
    ("types", "has_channels"),
    [("channel", True), ("channel daemon", True), ("daemon", False)],
)
def test_a_class_has_channels_unless_all_that_it_selects_are_daemons(types, has_channels):
    driver = "compute-domain.nvidia.com"
    selects = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    named = {"metadata": {"name": "class"}, "spec": selects}
    listed = [device(kind, attributes={"type": {"string": kind}}) for kind in types.split()]
    spec = {"driver": driver, "nodeName": "n", "pool": POOL_OF_ONE, "devices": listed}
    published = convert_record({"metadata": {"name": "slice"}, "spec": spec}, ResourceSlice)
    devices = ClusterDevices()
    classes = {"class": convert_record(named, DeviceClass)}
    devices.sync(DeviceObjects(slices={"slice": published}, classes=classes, generation=1))
    assert devices.channel_classes() == ({"class"} if has_channels else set())


@pytest.mark.parametrize(("claims", "remembered"), [(b"a", True), (b"", False)])
def test_claims_that_are_too_expensive_stay_so_if_they_are_known(claims, remembered):
    allowance = SelectorAllowance(per_claims=10)
    allowance.begin(claims)
    allowance.spend(10)
    with pytest.raises(SelectorsTooExpensiveError):
        allowance.require()
    allowance.start_cycle()
    assert allowance.size == remembered


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        ({}, False),
        ({"match_fields": ["n"]}, True),
        ({"match_fields": ["other"]}, False),
        ({"match_expressions": ["n"]}, True),
        ({"match_expressions": ["n"], "match_fields": ["other"]}, False),
    ],
)
def test_terms_of_the_nodes_of_devices(term, matches):
    keys = {"match_fields": "metadata.name", "match_expressions": "name"}
    given = {
        part: (SelectorRequirement(key=keys[part], operator="In", values=tuple(values)),)
        for part, values in term.items()
    }
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(**given),))
    labelled = Node(metadata=ObjectMeta(name="n", labels={"name": "n"}))
    assert node_selector_matches(selector, labelled) is matches


@pytest.mark.parametrize(
    ("label", "bounds", "more", "less"),
    [
        ("5", ["4"], True, False),
        ("5", ["5"], False, False),
        ("5", ["6"], False, True),
        (None, ["6"], False, False),
        ("many", ["6"], False, False),
        ("5", ["many"], False, False),
        ("5", ["4", "6"], False, False),
        ("5", [], False, False),
    ],
)
def test_nodes_of_devices_are_compared_by_number(label, bounds, more, less):
    labels = {} if label is None else {"size": label}
    labelled = Node(metadata=ObjectMeta(name="n", labels=labels))
    found = []
    for operator in ("Gt", "Lt"):
        term = SelectorRequirement(key="size", operator=operator, values=tuple(bounds))
        selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(term,)),))
        found.append(node_selector_matches(selector, labelled))
    assert found == [more, less]


def test_a_pool_is_overdrawn_only_below_zero():
    layout = SimpleNamespace(numbers={(0, ("set", "x")): 0, (1, ("set", "x")): 1})
    assert overdrawn_pools(layout, [0, -1]) == {1}


def test_an_error_that_is_remembered_names_the_claim_that_it_is_asked_for():
    fails = [{"cel": {"expression": "device.attributes['d'].missing"}}]
    request = {"name": "r", "exactly": {"deviceClassName": "any", "selectors": fails}}
    classes = {"any": from_json(DeviceClass, {"metadata": {"name": "any"}, "spec": {}})}
    spec = {"driver": "d", "nodeName": "n", "pool": POOL_OF_ONE, "devices": [device("x")]}
    offered = from_json(ResourceSlice, {"metadata": {"name": "s"}, "spec": spec})
    inventory = Inventory.of([offered], strategy=AllocationStrategy.FIRST_FIT)
    fleet, state = ClusterAllocator(inventory, classes), DeviceState(inventory.device)
    nodes = (Node(metadata=ObjectMeta(name="n")),)
    for name in ("first", "second"):
        answer = fleet.allocate([claim_of(name, request)], nodes, 0, state)
        assert isinstance(answer, AllocationError)
        assert f"claim default/{name}:" in str(answer)


def test_a_derived_attribute_that_does_not_compile_says_so():
    with pytest.raises(ExpressionCompileError):
        CompiledExpressions().derive("1 +", None)


def test_an_alternative_that_no_claim_has_capacity_for_leaves_the_others():
    objects = list(claims_of(1, {}, device("a")))
    (request,) = objects[2]["spec"]["devices"]["requests"]
    del request["exactly"]
    request["firstAvailable"] = [
        {"name": name, "deviceClassName": "any", "count": count}
        for name, count in (("many", 33), ("one", 1))
    ]
    assert starting(objects) == 1


def test_devices_of_one_counter_set_need_a_group_in_common_or_none_at_all():
    def joins(groups, common=None):
        draws = Consumption("card", (), frozenset(groups) or UNGROUPED)
        before = {} if common is None else {(0, "card"): frozenset(common) or UNGROUPED}
        found = groups_with_device(0, [draws], before)
        return None if found is None else sorted(found[0, "card"])

    assert joins("ab") == ["a", "b"]
    assert joins("ab", common="bc") == ["b"]
    assert joins("", common="") == [""]
    for groups, common in (("a", "b"), ("a", ""), ("", "a")):
        assert joins(groups, common) is None


def test_the_elements_of_a_derived_list_have_one_type():
    assert attribute_value((1, 2)) == AttributeList("ints", (1, 2))
    with pytest.raises(CELRuntimeError, match="expected list element at index 1 to be int64"):
        attribute_value((1, "a"))


def test_partitions_of_a_counter_set_add_up_to_one_gpu_each():
    driver, counters = "gpu.nvidia.com", {"slices": {"value": "4"}}
    cards = [{"name": card, "counters": counters} for card in ("a", "b")]
    halves = [
        device(
            f"{card}{number}",
            attributes={"type": {"string": "mig"}},
            consumesCounters=[{"counterSet": card, "counters": {"slices": {"value": "2"}}}],
        )
        for card in "ab"
        for number in range(2)
    ]
    spec = {
        "driver": driver,
        "nodeName": "n",
        "pool": POOL_OF_ONE,
        "devices": halves,
        "sharedCounters": cards,
    }
    published = convert_record({"metadata": {"name": "slice"}, "spec": spec}, ResourceSlice)
    devices = ClusterDevices()
    devices.sync(DeviceObjects(slices={"slice": published}, classes={}, generation=1))
    assert devices.node_gpus(Cluster(node("n", 0)).snapshot().nodes).tolist() == [2.0]


def test_shares_go_to_the_fullest_device_that_can_still_give_them():
    shared = [
        device(name, allowMultipleAllocations=True, capacity={"mem": {"value": "10"}})
        for name in "ab"
    ]
    objects = list(claims_of(4, {}, *shared))
    sizes = {"c0": 4, "c1": 7, "c2": 3, "c3": 6}
    for each in objects:
        if each["kind"] == "ResourceClaim":
            wanted = {"requests": {"mem": str(sizes[each["metadata"]["name"]])}}
            exactly = {"deviceClassName": "any", "capacity": wanted}
            each["spec"] = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    assert starting(objects) == 4


def test_the_smallest_memory_that_is_known_counts():
    sizes = [DivisibleGpu("d", size * MIB, capacities=(), identifier="") for size in (0, 80, 40)]
    assert memory_mib(sizes) == 40.0
    assert memory_mib(sizes[:1]) == 0.0


def test_devices_of_a_binding_that_is_being_written_are_taken_until_it_is_withdrawn():
    cluster = Cluster(team(), node("n", 0), list(claims_of(2, {}, device("a"))))
    result = DeviceRequestAllocationResult(request="r", driver="d", pool="n", device="a")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    builder = cluster.planner.builder
    assert len(placed(cluster.plan())) == 1
    builder.assume(AssumedBinding("uid-Pod-p0", "n", {"uid-ResourceClaim-c0": allocation}))
    assert placed(cluster.plan()) == {}
    builder.forget("uid-Pod-p0")
    assert len(placed(cluster.plan())) == 1


def test_the_shares_of_a_device_consume_its_counters_once():
    use = {"counterSet": "card", "counters": {"slices": {"value": "4"}}}
    spec = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [device("a", consumesCounters=[use], allowMultipleAllocations=True)],
    }
    inventory = Inventory()
    inventory.put(convert_record({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice))
    state, pool = DeviceState(inventory.device), PoolID("d", "n")
    seen, undone = [state.usage(pool).counters], []
    for share in ("first", "second"):
        result = DeviceRequestAllocationResult(
            request="r", driver="d", pool="n", device="a", share_id=share
        )
        shares = DeviceAllocationResult(results=(result,))
        undone.append(state.mark_allocated(AllocationResult(devices=shares)))
        seen.append(state.usage(pool).counters)
    assert seen[0] != seen[1] == seen[2]
    for undo, counters in zip(reversed(undone), (seen[1], seen[0]), strict=True):
        undo()
        assert state.usage(pool).counters == counters


@pytest.mark.parametrize(("published", "faults"), [(1, 1), (2, 0)])
def test_a_pool_that_lacks_slices_is_reported_until_all_are_there(published, faults):
    inventory = Inventory()
    for number in range(published):
        spec = {
            "driver": "d",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
            "devices": [{"name": f"x{number}"}],
        }
        made = {"metadata": {"name": f"s{number}"}, "spec": spec}
        inventory.put(convert_record(made, ResourceSlice))
    found = [
        (each.metadata.name, "resourceSliceCount" in text) for each, text in inventory.faults()
    ]
    assert found == [("s0", True)] * faults


def test_a_fault_of_a_pool_is_shown_at_a_slice_of_its_newest_generation():
    inventory = Inventory()
    for name, generation in (("a", 1), ("c", 2), ("b", 2)):
        pool = {"name": "p", "generation": generation, "resourceSliceCount": 3}
        spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": [{"name": name}]}
        made = {"metadata": {"name": name}, "spec": spec}
        inventory.put(convert_record(made, ResourceSlice))
    assert [each.metadata.name for each, _ in inventory.faults()] == ["b"]


def test_all_numbers_that_outlive_a_layout_count_towards_its_size():
    cache = LayoutCache()
    for name in "ab":
        assert cache.view_signatures[name]
    assert cache.kinds["a"]
    assert cache.size == 3


@pytest.mark.parametrize(("other", "devices"), [("any", {"b", "c"}), ("nics", {"a", "d"})])
def test_a_group_of_devices_is_chosen_by_what_the_pod_requests_of_their_class(other, devices):
    def on(numa, name, kind="gpu"):
        attributes = {
            "resource.kubernetes.io/numaNode": {"int": numa},
            "type": {"string": kind},
        }
        return device(name, attributes=attributes)

    nodes = on(0, "a"), on(1, "b"), on(1, "c"), on(2, "d", "nic")
    objects = list(claims_of(1, {}, *nodes))
    nics = [{"cel": {"expression": "device.attributes['d'].type == 'nic'"}}]
    named = {**objects[0], "metadata": {"name": "nics"}, "spec": {"selectors": nics}}
    objects[2]["spec"]["devices"]["requests"].append(
        {"name": "other", "exactly": {"deviceClassName": other}}
    )
    plan = Cluster(team(deserved=100), node("n", 0), named, objects).plan()
    ((placement,),) = (gang.pods for gang in plan.placements)
    (new,) = placement.allocate
    assert {result.device for result in new.allocation.devices.results} == devices
