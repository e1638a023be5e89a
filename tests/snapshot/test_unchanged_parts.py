"""What is kept from snapshot to snapshot: the same as long as nothing changes, and no longer."""

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.state.cluster_totals import ClusterTotals
from kai_py.snapshot.accounting import GPU
from tests.support.scenario import cluster, node, pod, queue, shared

COUNTED = (GPU, "cpu", "memory")


def part(name):
    return shared(pod(name, 0, queue="team", node="n"), "0.25", group="card")


def totals(kept, world):
    snapshot = world.snapshot()
    published = world.devices.node_gpus(snapshot.nodes)
    return kept.of(snapshot, COUNTED, world.devices.accounting, published).tolist()


def test_shared_gpus_are_seen_as_pods_come_and_go():
    first, second = part("first"), part("second")
    world = cluster(node("n"), queue("team", 8), first)
    before = world.snapshot().gpu_sharing
    assert world.snapshot().gpu_sharing is before
    more = world.add(second).snapshot().gpu_sharing
    assert more.used.tolist() == [2 * before.used[0]]
    world.remove(second)
    assert world.snapshot().gpu_sharing.used.tolist() == before.used.tolist()
    assert not world.remove(first).snapshot().gpu_sharing.rows.size


def test_what_is_released_is_copied_only_when_it_changes():
    world = cluster(node("n"), queue("team", 8), pod("runs", 1, queue="team", node="n"))
    before = world.snapshot()
    other = pod("other", 2, queue="team", node="n")
    after = world.add(other).snapshot()
    gpu = after.resources.positions[GPU_RESOURCE]
    assert after.releasing is before.releasing
    assert (before.used[gpu].tolist(), after.used[gpu].tolist()) == ([1.0], [3.0])
    leaving = world.add(pod("other", 2, queue="team", node="n", leaving=True)).snapshot()
    assert (after.has_releasing, leaving.has_releasing) == (False, True)
    assert (after.releasing[gpu].tolist(), leaving.releasing[gpu].tolist()) == ([0.0], [2.0])


def test_totals_are_added_again_when_a_node_changes():
    kept, world = ClusterTotals(), cluster(node("n"), node("m", 4))
    first = totals(kept, world)
    assert first[0] == 12.0
    assert totals(kept, world) == first
    world.add(node("m", 2))
    assert totals(kept, world) == totals(ClusterTotals(), world)
    assert totals(kept, world)[0] == 10.0


def test_totals_handed_out_earlier_stay_as_they_were():
    kept, world = ClusterTotals(), cluster(node("n"))
    snapshot = world.snapshot()
    published = world.devices.node_gpus(snapshot.nodes)
    given = kept.of(snapshot, COUNTED, world.devices.accounting, published)
    given += np.inf
    assert totals(kept, world)[0] == 8.0
