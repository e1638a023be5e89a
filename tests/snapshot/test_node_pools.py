"""Node pools: each pod, node and device is one pool's, whatever is relabelled."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.commit.settings import CommitSettings
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.grouper import Grouper
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.settings import SnapshotSettings
from tests.support.examples import examples
from tests.support.scenario import KINDS, START, gpu_slice, node, placed, pod, queue

LABEL = "kai.scheduler/node-pool"
POOLS = ("", *(f"pool-{number}" for number in range(9)))


class Shard:
    """The pure half of one scheduler."""

    def __init__(self, pool):
        self.devices = ClusterDevices()
        chosen = SnapshotSettings(pool_label=LABEL, pool=pool)
        self.builder = SnapshotBuilder(Grouper().identify, self.devices, lambda spec: spec, chosen)
        self.memory = CycleMemory(self.devices)

    def snapshot(self):
        return self.builder.snapshot(START + 1000.0)

    def plan(self):
        return run_cycle(self.snapshot(), CycleSettings(), self.memory)


class Cluster:
    """Ten shards that see the same changes."""

    def __init__(self):
        self.shards = {pool: Shard(pool) for pool in POOLS}
        self.known = {}

    def set(self, each):
        kind = KINDS[type(each).__name__]
        name = each.name if kind == "queues" else each.metadata.name
        for shard in self.shards.values():
            shard.builder.apply(kind, self.known.get((kind, name)), each)
        self.known[kind, name] = each

    def relabel(self, kind, name, pool):
        each = self.known[kind, name]
        labels = {**each.metadata.labels, LABEL: pool}
        labels = {key: value for key, value in labels.items() if value}
        self.set(replace(each, metadata=replace(each.metadata, labels=labels)))

    def owners(self, look):
        found = {}
        for pool, shard in self.shards.items():
            for name in look(shard.snapshot()):
                found.setdefault(name, []).append(pool)
        return found


def pods_of(snapshot):
    return [m.pod.name for gang in snapshot.gangs.values() for m in gang.members]


def nodes_of(snapshot):
    return snapshot.nodes.names


def slices_of(snapshot):
    return [each.metadata.name for each in snapshot.devices.slices.values()]


def fabric(name):
    """Devices that every node reaches."""
    made = gpu_slice(name)
    spec = replace(made.spec, node_name=None, all_nodes=True)
    return replace(made, spec=spec)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_moves_between_ten_pools_is_always_in_exactly_one(seed):
    chance, world = random.Random(seed), Cluster()
    world.set(queue("q", 64))
    for number in range(6):
        world.set(node(f"n{number}", 8))
        world.set(pod(f"p{number}", 1, queue="q", node=chance.choice(("", f"n{number}"))))
    world.set(fabric("fabric"))
    things = [("nodes", f"n{n}") for n in range(6)] + [("pods", f"p{n}") for n in range(6)]
    things.append(("resourceslices", "fabric-gpus"))
    for _ in range(12):
        kind, name = chance.choice(things)
        pool = chance.choice(POOLS)
        world.relabel(kind, name, pool)
        look = {"nodes": nodes_of, "pods": pods_of, "resourceslices": slices_of}[kind]
        is_bound = kind == "pods" and world.known[kind, name].spec.node_name
        assert world.owners(look)[name] == ["" if is_bound else pool]
    for look, count in ((pods_of, 6), (nodes_of, 6), (slices_of, 1)):
        owners = world.owners(look)
        assert len(owners) == count
        assert all(len(pools) == 1 for pools in owners.values())


def test_a_waiting_pod_that_moves_starts_in_its_new_pool_and_only_there():
    world = Cluster()
    world.set(queue("q", 64))
    for number, pool in enumerate(POOLS):
        world.set(node(f"n{number}", 8, labels={LABEL: pool} if pool else {}))
    world.set(pod("p", 8, queue="q"))
    for number, pool in enumerate(POOLS):
        world.relabel("pods", "p", pool)
        found = [placed(shard.plan()) for shard in world.shards.values()]
        assert [each for each in found if each] == [{"p": f"n{number}"}]


def test_a_running_pod_that_moves_keeps_its_node_occupied():
    world = Cluster()
    world.set(queue("q", 64))
    world.set(node("n", 8))
    world.set(pod("p", 8, queue="q", node="n"))
    world.relabel("pods", "p", "pool-1")
    world.set(pod("late", 8, queue="q"))
    assert placed(world.shards[""].plan()) == {}


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_running_pod_that_is_relabelled_stays_charged_and_can_be_evicted(is_seen):
    """Also if it is relabelled between the binding and the watch event that shows it."""
    world = Cluster()
    shard = world.shards[""]
    world.set(queue("rich", 0))
    world.set(queue("owner", 8))
    world.set(node("n", 8))
    running = pod("p", 8, queue="rich", node="n")
    world.set(running if is_seen else pod("p", 8, queue="rich"))
    if not is_seen:
        shard.builder.assume(AssumedBinding(running.metadata.uid, "n"))
        world.relabel("pods", "p", "pool-1")
        world.set(replace(world.known["pods", "p"], spec=running.spec))
    world.relabel("pods", "p", "pool-2")
    world.set(pod("due", 8, queue="owner"))
    assert shard.snapshot().queue_allocated["rich"]["gpu"] == 8
    assert [each.pod.name for each in shard.plan().evictions] == ["p"]
    if is_seen:
        assert world.owners(pods_of)["p"] == [""]


def test_a_pod_whose_binding_failed_is_that_of_the_pool_that_binds_it():
    world = Cluster()
    shard = world.shards[""]
    world.set(queue("q", 8))
    world.set(node("n", 8))
    world.set(node("n1", 8, labels={LABEL: "pool-1"}))
    world.set(pod("p", 8, queue="q"))
    bound = pod("p", 8, queue="q", node="n1")
    shard.builder.assume(AssumedBinding(bound.metadata.uid, "n"))
    world.relabel("pods", "p", "pool-1")
    shard.builder.forget(bound.metadata.uid)
    assert world.owners(pods_of)["p"] == ["pool-1"]
    world.set(replace(world.known["pods", "p"], spec=bound.spec))
    assert world.owners(pods_of)["p"] == ["pool-1"]


@pytest.mark.parametrize(
    ("label", "pool", "writes"),
    [("", "", True), ("", "west", True), ("west", "west", True), ("west", "", False)],
)
def test_the_status_of_a_queue_is_written_by_its_pool(label, pool, writes):
    chosen = CommitSettings(node_pool=pool, pool_label=LABEL)
    meta = ObjectMeta(name="q", labels={LABEL: label} if label else {})
    assert chosen.reports_on(meta) is writes
