"""Devices of device plugins are listed like those of drivers."""

import pytest

from kai_py.cli.devices import Grouping, count_rows
from kai_py.cli.top_through_scheduler import live_nodes
from kai_py.dra.explain.device_list import DeviceStatus
from kai_py.observe.http_lists import entries_of
from kai_py.observe.tenant_answers import tenant_devices
from kai_py.observe.visibility import Visibility
from tests.observe.tenants import moved
from tests.support.scenario import cluster, device_class, gpu_slice, node, pod, queue


def entries(*objects):
    return entries_of(cluster(queue("q", 8), *objects).snapshot(0.0))


def test_allocated_and_free_units_with_their_gangs():
    product = {"nvidia.com/gpu.product": "A100"}
    foreign = pod("other", 1, node="a", scheduler_name="default-scheduler")
    used, free = entries(node("a", 8, labels=product), pod("ours", 4, queue="q", node="a"), foreign)
    assert (used.status, used.count, used.product) == (DeviceStatus.ALLOCATED, 5, "A100")
    assert [(each.gang, each.queue, each.pods) for each in used.claims] == [
        ("default/Pod/ours", "q", ("ours",))
    ]
    assert (free.status, free.count, free.claims) == (DeviceStatus.FREE, 3, ())


def test_they_count_beside_those_in_slices():
    found = entries(node("a", 8), node("b", 0), gpu_slice("b", 4), device_class())
    assert list(count_rows(found, Grouping.NODE)) == [
        ("a", "8", "8", "0", "0", "0"),
        ("b", "4", "4", "0", "0", "0"),
    ]


def test_cpus_are_no_devices():
    assert entries(node("a", 0)) == []


@pytest.mark.parametrize("nodes", [False, True])
def test_of_a_shared_node_a_tenant_has_its_own_units_only(nodes):
    ours = [pod("a", 2, queue="q", node="n"), pod("b", 1, queue="q", node="n")]
    theirs = moved([pod("c", 3, queue="q", node="n")], "vision")
    foreign = pod("other", 1, node="n", scheduler_name="default-scheduler")
    seen = Visibility(frozenset({"default"}), frozenset({"q"}), nodes=nodes)
    found = tenant_devices(entries(node("n", 8), *ours, *theirs, foreign), seen)
    place = "n" if nodes else ""
    assert [(each.node, each.status.value, each.count) for each in found] == [
        ("n", "Allocated", 3),
        (place, "Allocated", 4),
        (place, "Free", 1),
    ]
    assert [(each.gang, each.units) for each in found[0].claims] == [
        ("default/Pod/a", 2),
        ("default/Pod/b", 1),
    ]
    drawn = [slot.gang for each in live_nodes(found) for slot in each.slots]
    assert sorted(drawn) == [""] * 5 + ["default/Pod/a"] * 2 + ["default/Pod/b"]
