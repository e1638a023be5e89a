"""Devices and claims in step with the objects, in whatever order these come.

The holder of each device, and what a new claim would find.
"""

import pytest

from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.cli.devices import Grouping, count_rows, tree_rows
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.explain.device_list import DeviceStatus
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import Inventory
from kai_py.observe.http_lists import entries_of
from kai_py.snapshot.device_objects import DeviceObjects
from tests.plan.state.test_device_safety import slices
from tests.support.records import from_json
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    device_slice,
    gpu_slice,
    node,
    partitions,
    pod,
    queue,
)

POOL = PoolID("gpu.nvidia.com", "n0")
SLICES = {piece.metadata.name: piece for piece in slices("n0")}
HELD = claim("c", held_by=["p"], on=[("n0", "part-0"), ("n0", "part-1")])
CLAIMS = {("default", "c"): HELD}


@pytest.mark.parametrize("order", ["together", "claims first", "slices first", "slices back"])
def test_held_partitions_draw_on_their_counters(order):
    devices = ClusterDevices()
    steps = {
        "together": [(SLICES, CLAIMS)],
        "claims first": [({}, CLAIMS), (SLICES, CLAIMS)],
        "slices first": [(SLICES, {}), (SLICES, CLAIMS)],
        "slices back": [(SLICES, CLAIMS), ({}, CLAIMS), (dict(SLICES), CLAIMS)],
    }[order]
    for generation, (listed, claims) in enumerate(steps):
        devices.sync(
            DeviceObjects(
                slices=listed, claims=claims, generation=generation, claims_generation=generation
            )
        )
    assert devices.state.usage(POOL).counters == {("card", "slots"): 2 * 10**9}
    devices.sync(DeviceObjects(slices=SLICES, generation=8, claims_generation=8))
    assert devices.state.pools == {}


def entries(*objects):
    world = cluster(device_class(), queue("team", 8), node("n0", 0), *objects)
    return {entry.device: entry for entry in entries_of(world.snapshot())}


def running(name, *devices):
    held = claim(f"{name}-gpu", owner=name, held_by=[name], on=[("n0", each) for each in devices])
    return [held, claiming(pod(name, 0, queue="team", node="n0"), f"{name}-gpu")]


def test_a_held_device_names_claim_pod_gang_and_queue():
    found = entries(gpu_slice("n0", 2), *running("p", "gpu-1"))
    assert found["gpu-0"].status is DeviceStatus.FREE
    assert found["gpu-1"].status is DeviceStatus.ALLOCATED
    [holder] = found["gpu-1"].claims
    assert (holder.claim, holder.pods, holder.queue) == ("default/p-gpu", ("p",), "team")
    assert holder.gang == "default/Pod/p"
    assert (found["gpu-1"].node, found["gpu-1"].product) == ("n0", "NVIDIA H100 80GB HBM3")


def test_partitions_are_blocked_when_their_counters_are_used_up():
    parts = list(slices("n0"))
    found = entries(*parts, *running("p", "part-0", "part-1", "part-2"))
    assert found["part-3"].status is DeviceStatus.COUNTERS_EXHAUSTED
    found = entries(*parts, *running("p", "part-0", "part-1"))
    assert found["part-3"].status is DeviceStatus.FREE


def test_a_device_that_vanished_while_held_is_listed():
    found = entries(gpu_slice("n0", 1), *running("p", "gpu-7"))
    assert found["gpu-7"].status is DeviceStatus.REMOVED
    assert found["gpu-7"].claims


def test_a_taint_closes_a_device():
    rule = from_json(
        DeviceTaintRule,
        {
            "metadata": {"name": "r"},
            "spec": {
                "deviceSelector": {"device": "gpu-0"},
                "taint": {"key": "xid", "value": "79", "effect": "NoSchedule"},
            },
        },
    )
    world = cluster(device_class(), node("n0", 0), gpu_slice("n0", 2))
    world.builder.apply("devicetaintrules", None, rule)
    found = {entry.device: entry for entry in entries_of(world.snapshot())}
    assert found["gpu-0"].status is DeviceStatus.TAINTED
    assert found["gpu-0"].detail == "xid=79:NoSchedule"
    assert found["gpu-1"].status is DeviceStatus.FREE


def taint_rule(name, **selector):
    taint = {"key": name, "effect": "NoSchedule"}
    spec = {"deviceSelector": selector, "taint": taint}
    return from_json(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def test_a_taint_rule_has_only_its_pools_read_again():
    published = [gpu_slice(f"n{i}", 2) for i in range(3)]
    inventory = Inventory.of(published, rules=[taint_rule("all", driver="gpu.nvidia.com")])
    before = dict(inventory.slices())
    rules = [
        taint_rule("pool", driver="gpu.nvidia.com", pool="n1"),
        taint_rule("all", driver="gpu.nvidia.com"),
        taint_rule("device", pool="n1", device="gpu-1"),
        taint_rule("other", driver="gpu.amd.com"),
    ]
    inventory.set_taint_rules(rules)
    again = [each for each in before if inventory.slices()[each] is not before[each]]
    assert [before[each].slice for each in again] == [published[1]]
    found = {
        row.id.device: [taint.key for taint in row.taints]
        for row in inventory.devices(PoolID("gpu.nvidia.com", "n1")).values()
    }
    assert found == {"gpu-0": ["pool", "all"], "gpu-1": ["pool", "all", "device"]}
    inventory.set_taint_rules([])
    assert not any(row.taints for each in inventory.slices().values() for row in each.rows)


def test_partitions_stand_below_their_gpu():
    world = cluster(node("n0", 0), *mig("n0"))
    rows = tree_rows(entries_of(world.snapshot()))
    lines = [branch + entry.device for entry, branch in rows]
    assert lines == ["gpu-0", "├─ gpu-0-a", "└─ gpu-0-b", "gpu-1"]


def cut_by_hand(*devices):
    """Slices that an administrator made: no counters."""
    listed = [
        {"name": name, "attributes": {key: {"string": text} for key, text in texts.items()}}
        for name, texts in devices
    ]
    return device_slice("n0", listed)


def half(parent):
    return {"type": "mig", "profile": "3g.40gb", "parentUUID": parent}


def test_slices_without_counters_add_no_gpu_to_the_one_they_are_cut_from():
    whole = ("gpu-0", {"type": "gpu", "uuid": "GPU-0"})
    piece = cut_by_hand(whole, ("part-a", half("GPU-0")), ("part-b", half("GPU-0")))
    world = cluster(device_class(), node("n0", 0), piece)
    lines = [branch + entry.device for entry, branch in tree_rows(entries_of(world.snapshot()))]
    assert lines == ["gpu-0", "├─ part-a", "└─ part-b"]
    assert world.devices.node_gpus(world.snapshot().nodes).tolist() == [1.0]


def test_slices_of_a_gpu_that_is_not_listed_count_by_their_part():
    piece = cut_by_hand(("part-a", half("GPU-0")), ("part-b", half("GPU-0")))
    world = cluster(device_class(), node("n0", 0), piece)
    [gpus] = world.devices.node_gpus(world.snapshot().nodes).tolist()
    assert round(gpus, 6) == round(6 / 7, 6)


def test_devices_are_counted_by_queue_and_node():
    world = cluster(device_class(), queue("team", 8), node("n0", 0), gpu_slice("n0", 4))
    world.add(*running("p", "gpu-0", "gpu-1"))
    listed = entries_of(world.snapshot())
    assert list(count_rows(listed, Grouping.NODE)) == [("n0", "4", "2", "2", "0", "0")]
    assert list(count_rows(listed, Grouping.QUEUE)) == [
        ("-", "2", "2", "0", "0", "0"),
        ("team", "2", "0", "2", "0", "0"),
    ]


def mig(name):
    """GPU 0 can be cut in two, GPU 1 not at all."""

    def device(each, kind, halves, **attributes):
        counters = {f"half-{i}": {"value": "1"} for i in halves}
        drawn = [{"counterSet": "card", "counters": counters}] if halves else []
        texts = {key: {"string": value} for key, value in attributes.items()}
        return {
            "name": each,
            "attributes": {"type": {"string": kind}} | texts,
            "consumesCounters": drawn,
        }

    devices = [
        device("gpu-0", "gpu", (0, 1), uuid="GPU-0"),
        device("gpu-1", "gpu", ()),
        device("gpu-0-a", "mig", (0,), parentUUID="GPU-0"),
        device("gpu-0-b", "mig", (1,)),
    ]
    return partitions(name, devices, {"card": {"half-0": 1, "half-1": 1}})


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_slices_that_contradict_each_other_say_the_same_in_any_order(names):
    """Two slices of one generation: by one of them it has one slice, by the other two."""
    by_name = {
        "a": device_slice("n0", [{"name": "a"}, {"name": "x"}], part="a", of=1),
        "b": device_slice("n0", [{"name": "b"}, {"name": "x"}], part="b", of=2),
    }
    inventory = Inventory.of(by_name[name] for name in names)
    [(reported, fault)] = inventory.faults()
    assert (reported.metadata.name, fault[-13:]) == ("n0-a", "2 of 1 slices")
    assert [each.slice.metadata.name for each in inventory.pool_slices(POOL)] == ["n0-a", "n0-b"]
    assert inventory.view(node("n0")).pools[0].detail == "2 of 1 slices"
