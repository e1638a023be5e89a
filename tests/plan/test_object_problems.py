"""Objects that are of no use are named with the field, and nothing else suffers."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.resource import ResourceSlice
from kai_py.api.records.resource_versions import from_json
from tests.scenario import cluster, gpu_slice, node, placed, pod, queue


def with_amount(resource, quantity):
    absurd = node("absurd", 8)
    allocatable = {**absurd.status.allocatable, resource: quantity}
    return replace(absurd, status=replace(absurd.status, allocatable=allocatable))


@pytest.mark.parametrize(("resource", "quantity"), [("nvidia.com/gpu", "-1"), ("memory", "lots")])
def test_a_node_with_absurd_amounts_is_named_and_left_out(resource, quantity):
    plan = cluster(
        with_amount(resource, quantity),
        node("fine", 1),
        queue("team", 8),
        pod("p", 1, queue="team"),
    ).plan()
    assert placed(plan) == {"p": "fine"}
    (problem,) = plan.problems
    assert (problem.object.kind, problem.object.name) == ("Node", "absurd")
    assert f"status.allocatable[{resource}]" in problem.message


@pytest.mark.parametrize("resource", ["memory", "cpu", "nvidia.com/gpu"])
def test_more_than_any_number_can_hold_is_as_much_as_kubernetes_counts(resource):
    plan = cluster(
        with_amount(resource, "1e400"), queue("team", 8), pod("p", 1, queue="team")
    ).plan()
    assert placed(plan) == {"p": "absurd"}
    assert plan.problems == ()


def slice_of(name, **spec):
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    body = {"driver": "d.example.com", "nodeName": "n", "pool": pool, **spec}
    return from_json(ResourceSlice, {"metadata": {"name": name}, "spec": body})


def test_pools_that_nobody_can_use_are_named_at_their_first_slice():
    missing = {"name": "missing", "generation": 3, "resourceSliceCount": 4}
    drawn = [{"counterSet": "nowhere", "counters": {"x": {"value": "1"}}}]
    world = cluster(
        node("n", 0),
        gpu_slice("n", 8),
        slice_of("missing", pool=missing, devices=[{"name": "d"}]),
        slice_of("draws", devices=[{"name": "d", "consumesCounters": drawn}]),
        slice_of("fine", devices=[{"name": "d"}]),
    )
    told = {each.object.name: each.message for each in world.plan().problems}
    assert sorted(told) == ["draws", "missing"]
    assert "unknown counter set nowhere" in told["draws"]
    assert "spec.pool.resourceSliceCount: there are 1 of 4 slices" in told["missing"]
    world.add(slice_of("missing", devices=[{"name": "d"}]))
    assert [each.object.name for each in world.plan().problems] == ["draws"]
