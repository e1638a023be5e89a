"""A snapshot of many objects is taken in steps, and none of them is long."""

from collections import Counter

import pytest

from kai_py.api.records.resource import DeviceClass
from kai_py.dra import cluster_devices
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.snapshot import builder
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.gang_table import GangTable
from tests.support.records import from_json
from tests.support.scenario import (
    START,
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    job_with_pods,
    node,
    pod,
    queue,
)

NODES = 150
WORK = (
    (SnapshotBuilder, "_derive"),
    (GangTable, "_rebuild"),
    (ClusterDevices, "_put"),
    (ClusterDevices, "_mark_allocated"),
)
"""What is done once for each pod, gang, slice and claim."""


@pytest.fixture
def done(monkeypatch):
    """How often what was done since the counter was cleared."""
    counter = Counter()
    for owner, name in WORK:
        known = getattr(owner, name)

        def counted(*arguments, known=known, name=name):
            counter[name] += 1
            return known(*arguments)

        monkeypatch.setattr(owner, name, counted)
    return counter


def crowded():
    """Nodes with devices, running pods with claims on each, and gangs that wait."""
    world = cluster(queue("team", 8 * NODES))
    for i in range(NODES):
        name, running = f"n{i}", f"p{i}"
        held = claim(f"c{i}", owner=running, held_by=(running,), on=((name, "gpu-0"),))
        world.add(node(name, 0), gpu_slice(name), held)
        world.add(claiming(pod(running, 0, queue="team", node=name), f"c{i}"))
        world.add(*job_with_pods(f"wait-{i}", 2, queue="team"))
    return world.add(device_class())


def test_no_step_of_the_first_snapshot_does_more_than_its_share(done):
    world = crowded()
    done.clear()
    steps, most = 0, Counter()
    for _ in world.builder.steps(START):
        steps += 1
        most |= done
        done.clear()
    assert set(most) == {name for _, name in WORK}
    assert max(most.values()) <= builder.STEP
    # Slices, claims, pods with claims, and gangs: one of each for a node, and a gang that waits.
    assert steps >= 5 * NODES // builder.STEP
    world.snapshot(0.0)
    assert sum(done.values()) <= builder.STEP


def test_selectors_of_classes_are_compiled_one_a_step(monkeypatch):
    compiled, original = [], cluster_devices.compile_selector
    monkeypatch.setattr(
        cluster_devices, "compile_selector", lambda text: (compiled.append(text), original(text))
    )
    expressions = [f"device.driver == 'driver-{i}'" for i in range(5)]
    selectors = [{"cel": {"expression": each}} for each in expressions]
    document = {"metadata": {"name": "many"}, "spec": {"selectors": selectors}}
    world = cluster(from_json(DeviceClass, document))
    for number, _ in zip(range(5), world.builder.steps(0.0), strict=False):
        assert len(compiled) == number + 1
    assert compiled == expressions
    world.snapshot(0.0)
    compiled.clear()
    world.add(device_class())
    world.snapshot(1.0)
    assert compiled == ['device.driver == "gpu.nvidia.com"']


def test_what_many_pods_depend_on_is_taken_in_by_steps(done):
    world = cluster(queue("team", 8), device_class(), claim("held"))
    world.add(*(claiming(pod(f"p{i}", 0, queue="team"), "held", template=False) for i in range(99)))
    world.snapshot(0.0)
    done.clear()
    world.add(claim("held", held_by=("p0",), on=(("n", "gpu-0"),)))
    assert done["_derive"] <= builder.STEP
    found = world.snapshot(1.0)
    assert {member.claims for gang in found.gangs.values() for member in gang.members} != {()}
    assert done["_derive"] >= 99


def test_a_job_that_is_edited_all_the_time_holds_up_no_snapshot(done):
    """It is edited at each step: in as many steps as without edits its pods are all read once."""

    def edited(number):
        return job("big", 99, "team", **{"scheduling.kai.io/expected-runtime": f"{number}s"})

    big = edited(1)
    world = cluster(queue("team", 8), big)
    world.add(*(pod(f"p{i}", 1, queue="team", owner=big) for i in range(99)))
    world.snapshot(0.0)
    world.add(edited(2))
    done.clear()
    for number, _ in enumerate(world.builder.steps(1.0)):
        assert number < 10
        world.add(edited(number + 3))
    assert done["_derive"] == 99
    world.snapshot(1.0)
    assert done["_derive"] == 99
    [gang] = world.snapshot(2.0).gangs.values()
    assert gang.expected_runtime == number + 3
    assert done["_derive"] == 198


def test_gangs_that_change_all_the_time_hold_up_no_snapshot():
    world = cluster(queue("team", 8))
    gangs = [job_with_pods(f"wait-{i}", 1, queue="team") for i in range(99)]
    for each in gangs:
        world.add(*each)
    for number, _ in enumerate(world.builder.steps(1.0)):
        assert number < 10
        world.builder._tables.gangs.refresh([f"default/Job/wait-{i}" for i in range(99)])
    assert len(world.snapshot(1.0).gangs) == 99


def test_pods_are_read_for_the_snapshot_at_hand_where_devices_of_their_class_changed(done):
    world = cluster(queue("team", 8), device_class(), claim("held"))
    world.add(*(claiming(pod(f"p{i}", 0, queue="team"), "held", template=False) for i in range(99)))
    for _ in world.builder.steps(0.0):
        pass
    world.add(node("n", 0), gpu_slice("n"))
    done.clear()
    world.snapshot(0.0)
    assert done["_derive"] >= 99
