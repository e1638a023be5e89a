"""Devices of device plugins are listed like those of drivers."""

from kai_py.cli.devices import Grouping, count_rows
from kai_py.dra.explain.device_list import DeviceStatus
from kai_py.observe.device_entries import entries_of
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
