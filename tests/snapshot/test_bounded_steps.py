"""A snapshot of many objects is taken in steps, and none of them is long."""

from collections import Counter

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.snapshot import builder
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.gang_table import GangTable
from tests.support.scenario import (
    START,
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
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
