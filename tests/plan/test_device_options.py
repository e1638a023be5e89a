"""Alternatives, and all devices of a node, are tried against the limits of the queue, too."""

from itertools import product

import pytest
from hypothesis import example, settings
from hypothesis import given as given_examples
from hypothesis import strategies as st

from kai_py.plan.actions import allocate
from kai_py.plan.plan import Stage
from kai_py.plan.session import device_options
from tests.support.examples import examples
from tests.support.scenario import (
    claim_of,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    placed,
    pod,
    queue,
)

GPU = "gpu.nvidia.com"


def listed(*counts, name="gpu", **fields):
    """A request that prefers the first of these numbers of GPUs."""
    options = [
        {"name": f"x{count}", "deviceClassName": GPU, "count": count} | fields for count in counts
    ]
    return {"name": name, "firstAvailable": options}


ALL = {"name": "gpu", "exactly": {"deviceClassName": GPU, "allocationMode": "All"}}


def asking(name, *requests, template=True, **options):
    yield claim_of(name, *requests, owner=name if template else "")
    options = options if "owner" in options else {"queue": "team"} | options
    yield claiming(pod(name, 0, **options), name, template=template)


def world(limit, *given, sizes=(8,), **spec):
    hardware = [each for i, n in enumerate(sizes) for each in (node(f"n{i}", 0), gpus(i, n))]
    return cluster(device_class(), queue("team", 0, limit, **spec), *hardware, *given)


def gpus(number, count):
    return gpu_slice(f"n{number}", count)


def given(plan):
    """Names of the requests, or alternatives, that got devices; how many each."""
    found = {}
    for gang in plan.placements:
        for each in gang.pods:
            for claim in each.allocate:
                for result in claim.allocation.devices.results:
                    key = each.pod.name, result.request
                    found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("template", [True, False], ids=["template", "by name"])
def test_the_first_alternative_within_the_limit_is_taken(template):
    plan = world(4, *asking("p", listed(8, 4, 2), template=template)).plan()
    assert given(plan) == {("p", "gpu/x4"): 4}
    assert [each.allocated["gpu"] for each in plan.queues] == [4.0]


def test_the_first_alternative_that_limit_and_nodes_allow_is_taken():
    plan = world(4, *asking("p", listed(8, 4, 2, 1)), sizes=(3, 2)).plan()
    assert given(plan) == {("p", "gpu/x2"): 2}


def test_within_the_limit_the_first_is_taken():
    assert given(world(8, *asking("p", listed(8, 2))).plan()) == {("p", "gpu/x8"): 8}


@pytest.mark.slow
def test_the_reason_names_the_alternatives_that_the_quota_closed():
    five = {"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 5}}
    first = asking("first", five, queue="other", priority=1)
    [waits] = world(4, queue("other", 8), *first, *asking("p", listed(8, 4))).plan().unplaced
    assert waits.stage is Stage.DEVICES
    assert waits.message.endswith("; alternatives beyond the quota: gpu/x8.")
    [waits] = world(1, *asking("p", listed(8, 4)), sizes=(8,)).plan().unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "workload requested 4 GPUs" in waits.message
    assert "; alternatives beyond the quota: gpu/x8, gpu/x4." in waits.message
    [waits] = world(1, *asking("p", listed(*range(9, 1, -1))), sizes=(16,)).plan().unplaced
    assert waits.message.endswith(": gpu/x9, gpu/x8, gpu/x7, gpu/x6, gpu/x5 and 3 more.")


def test_pods_use_up_the_limit_one_after_the_other():
    pods = [each for i in range(3) for each in asking(f"p{i}", listed(4, 1), created=i)]
    plan = world(5, *pods, sizes=(8, 8)).plan()
    assert given(plan) == {("p0", "gpu/x4"): 4, ("p1", "gpu/x1"): 1}


@pytest.mark.parametrize(("limit", "nodes"), [(8, {"n0", "n1"}), (7, {"n2", "n3"}), (3, set())])
def test_gangs_take_all_devices_of_small_nodes_if_large_ones_exceed_the_limit(limit, nodes):
    """Each pod alone may have a large node: their claims differ."""
    owner = job("gang", 2, "team")
    requests = ALL, ALL | {"name": "other"}
    pods = [each for i in range(2) for each in asking(f"p{i}", requests[i], owner=owner)]
    plan = world(limit, owner, *pods, sizes=(4, 4, 2, 2)).plan()
    assert set(placed(plan).values()) == nodes


lists = st.lists(
    st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True), min_size=1, max_size=3
)


def first_within(lists, most):
    """The first combination, in the order of the lists, that is not above ``most`` together."""
    return next((found for found in product(*lists) if sum(found) <= most), None)


@settings(max_examples=examples(15))
@given_examples(lists, st.integers(1, 16), st.integers(1, 8))
@example([[8, 4, 2], [4, 2, 1], [1]], 6, 8)
@example([[4, 1], [4, 1]], 5, 8)
def test_requests_of_one_claim_take_the_first_combination(asked, limit, devices):
    requests = [listed(*counts, name=f"r{i}") for i, counts in enumerate(asked)]
    plan = world(limit, *asking("p", *requests), sizes=(devices,)).plan()
    found = first_within(asked, min(limit, devices))
    expected = {("p", f"r{i}/x{n}"): n for i, n in enumerate(found or ())}
    assert given(plan) == expected


@settings(max_examples=examples(15))
@given_examples(lists, st.integers(1, 16))
@example([[8, 4, 2], [4, 2], [1]], 7)
def test_pods_of_a_gang_take_the_first_combination(asked, limit):
    owner = job("train", len(asked), "team")
    pods = [
        each
        for i, counts in enumerate(asked)
        for each in asking(f"t{i}", listed(*counts), owner=owner)
    ]
    plan = world(limit, owner, *pods, sizes=(8,) * len(asked)).plan()
    if len({tuple(counts) for counts in asked}) < len(asked):
        assert sum(given(plan).values()) <= limit  # equal claims get equal alternatives
        return
    found = first_within(asked, limit)
    assert given(plan) == {(f"t{i}", f"gpu/x{n}"): n for i, n in enumerate(found or ())}


def test_the_second_of_three_where_the_quota_closes_the_first_and_nodes_the_third():
    third = {"name": "x1", "deviceClassName": "none"}
    asked = listed(8, 4)
    asked["firstAvailable"].append(third)
    owner = job("train", 2, "team")
    pods = [each for i in range(2) for each in asking(f"t{i}", asked, owner=owner)]
    none = device_class("none", "false")
    plan = world(8, owner, none, *pods, sizes=(8, 8)).plan()
    assert given(plan) == {("t0", "gpu/x4"): 4, ("t1", "gpu/x4"): 4}


def test_a_gang_takes_what_all_of_its_pods_may_have():
    owner = job("train", 2, "team")
    pods = [each for i in range(2) for each in asking(f"t{i}", listed(8, 4, 2), owner=owner)]
    plan = world(8, owner, *pods, sizes=(8, 8)).plan()
    assert given(plan) == {("t0", "gpu/x4"): 4, ("t1", "gpu/x4"): 4}


def test_all_devices_are_taken_where_they_are_within_the_limit():
    plan = world(4, *asking("p", ALL), sizes=(8, 4)).plan()
    assert placed(plan) == {"p": "n1"}
    assert sum(given(plan).values()) == 4
    [waits] = world(3, *asking("p", ALL), sizes=(8, 4)).plan().unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "requested 4 GPUs" in waits.message


def test_all_devices_are_charged_as_what_they_are():
    pods = [*asking("all", ALL), *asking("two", listed(2), created=1)]
    plan = world(6, *pods, sizes=(4, 2)).plan()
    assert placed(plan).keys() == {"all", "two"}


@pytest.mark.parametrize(("fewer", "order"), [*product((1, 3), ((0, 1), (1, 0)))])
def test_limits_by_class_close_the_alternative_that_costs_fewer_gpus(fewer, order):
    options = [
        {"name": "fast", "deviceClassName": "fast", "count": fewer},
        {"name": "slow", "deviceClassName": GPU, "count": 2},
    ]
    share = {"name": "fast", "deviceClassName": "fast", "max": 0}
    asked = {"name": "gpu", "firstAvailable": [options[i] for i in order]}
    made = world(8, *asking("p", asked), device_class("fast"), devices=[share])
    assert given(made.plan()) == {("p", "gpu/slow"): 2}


def test_limits_by_class_close_alternatives():
    options = [
        {"name": "big", "deviceClassName": "fast", "count": 2},
        {"name": "small", "deviceClassName": GPU},
    ]
    share = {"name": "fast", "deviceClassName": "fast", "max": 1}
    made = world(8, *asking("p", {"name": "gpu", "firstAvailable": options}), devices=[share])
    made.add(device_class("fast"))
    assert given(made.plan()) == {("p", "gpu/small"): 1}


def two_products(limit, order, *given):
    """A node of two H100 and one of two A100; the queue may have ``limit`` H100."""
    slices = [gpu_slice(f"n{i}", 2, product) for i, product in enumerate(order)]
    limits = [{"selector": f'device.attributes["{GPU}"].productName == "H100"', "max": limit}]
    nodes = node("n0", 0), node("n1", 0)
    return cluster(device_class(), queue("team", limits=limits), *nodes, *slices, *given)


def products(plan, order):
    """How many devices of each product the pods got."""
    on = [gang.pods[i].node for gang in plan.placements for i in range(len(gang.pods))]
    return {product: on.count(f"n{i}") for i, product in enumerate(order)}


ANY_GPU = {"name": "gpu", "exactly": {"deviceClassName": GPU}}


@pytest.mark.parametrize("order", [("H100", "A100"), ("A100", "H100")])
@pytest.mark.parametrize("limit", [0, 1])
def test_requests_that_several_kinds_satisfy_get_those_within_the_limit(order, limit):
    pods = [each for i in range(4) for each in asking(f"p{i}", ANY_GPU, created=i)]
    plan = two_products(limit, order, *pods).plan()
    assert products(plan, order) == {"H100": limit, "A100": 2}
    assert all("beyond the quota" in each.message for each in plan.unplaced)
    assert all('"H100"' in each.message for each in plan.unplaced)


@pytest.mark.parametrize("order", [("H100", "A100"), ("A100", "H100")])
@pytest.mark.parametrize(("limit", "placed_pods"), [(1, 0), (2, 2)])
def test_pods_of_a_gang_get_the_cheapest_kinds_if_the_found_ones_exceed_the_limit(
    order, limit, placed_pods
):
    owner = job("train", 2, "team")
    asked = {"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 2}}
    pods = [each for i in range(2) for each in asking(f"t{i}", asked, owner=owner)]
    assert len(placed(two_products(limit, order, owner, *pods).plan())) == placed_pods
    first = [each for i in range(2) for each in asking(f"t{i}", ANY_GPU, owner=owner)]
    plan = two_products(1, order, owner, *first).plan()
    assert len(placed(plan)) == 2
    assert products(plan, order)["H100"] <= 1


def test_equal_pods_beyond_the_limit_are_tried_once(monkeypatch):
    tried = []

    def place(state, gang, *args):
        tried.append(gang.key)
        return device_options.place_within_quota(state, gang, *args)

    monkeypatch.setattr(allocate, "place_within_quota", place)
    pods = [each for i in range(6) for each in asking(f"p{i}", ANY_GPU, created=i)]
    plan = two_products(0, ("H100", "A100"), *pods).plan()
    assert len(placed(plan)) == 2
    assert [key.rpartition("/")[2] for key in tried] == ["p0", "p1", "p2"]
    [reason] = {each.message for each in plan.unplaced}
    assert "2 beyond the quota" in reason
