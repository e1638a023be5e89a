"""Which queue is the next to lose pods to a reclaimer, against sorting again for each of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.queue_order import CLUSTER, order_keys
from kai_py.policy.victim_queue_order import VictimQueueOrder
from kai_py.snapshot.tables.queues import QueueInfo
from tests.policy.test_queue_order import scenes, stand
from tests.policy.test_reclaim_rules import queue
from tests.policy.test_reclaim_rules import stand as queue_usage

REQUESTS = st.sampled_from([(0, 0), (0, 1), (1, 0), (1, 1)])
STEPS = st.lists(
    st.one_of(
        st.none(),
        st.tuples(st.booleans(), st.tuples(st.integers(0, 3), st.sampled_from([0, 0.5, 1, 2]))),
    ),
    max_size=20,
)


def most_saturated(standing, leaves, request, released, rules):
    """The leaf with the largest key among its siblings, and so are its ancestors."""
    queues = standing.queues
    involved = np.array(sorted({q for leaf in leaves for q in queues.ancestry[leaf]}), np.int32)
    nothing = np.zeros((len(request), len(involved)))
    rest = (standing.allocated - released)[:, involved]
    keys = order_keys(standing, involved, nothing, rules, released[:, involved])
    if rules is NATIVE:
        without = order_keys(
            standing, involved, nothing, rules, allocated_before=rest, compared=request > 0
        )
        keys[:2] = without[:2]
    by_queue = dict(zip(involved.tolist(), map(tuple, keys.T.tolist()), strict=True))
    queue = CLUSTER
    while children := [each for each in by_queue if queues.parent[each] == queue]:
        queue = max(children, key=by_queue.__getitem__)
    return None if queue == CLUSTER else queue


@given(scenes(), st.sampled_from([NATIVE, KAI]), REQUESTS, st.sets(st.integers(0, 7)), STEPS)
def test_the_next_queue_is_the_most_saturated_one(scene, rules, request, left_out, steps):
    standing, _ = scene
    leaves = [at for at in np.flatnonzero(standing.queues.is_leaf).tolist() if at not in left_out]
    request = np.array(request, np.float64)
    released = np.zeros(standing.allocated.shape)
    order = VictimQueueOrder(standing, rules, leaves, request)
    for step in [*steps, *[None] * len(leaves)]:
        leaf = order.first()
        assert leaf == most_saturated(standing, leaves, request, released, rules)
        if leaf is None:
            return
        if step is None:
            leaves.remove(leaf)
            order.remove(leaf)
            continue
        path = standing.queues.ancestors(leaf)
        is_evicted, amount = step[0], np.array(step[1], np.float64)
        if is_evicted:
            standing.allocated[:, path] -= amount[:, None]
            order.update(leaf)
        else:
            released[:, path] += amount[:, None]
            order.release(leaf, amount)


def test_queues_lose_pods_in_turn_until_they_are_equally_saturated():
    specs = [QueueInfo(name=name, deserved={"gpu": 4}, created=i) for i, name in enumerate("abc")]
    usage = stand(specs, {"a": (0, 8), "b": (0, 6), "c": (0, 3)}, dict.fromkeys("abc", (9, 4)))
    order = VictimQueueOrder(usage, NATIVE, [0, 1, 2], np.array([0.0, 1.0]))
    lost = ""
    for _ in range(8):
        leaf = order.first()
        lost += usage.queues.names[leaf]
        order.release(leaf, np.array([0.0, 1.0]))
    assert lost == "aaababab", "a tie goes to the queue that had more at first"


@pytest.mark.parametrize("rules", [NATIVE, KAI])
@pytest.mark.parametrize("fair", [1, 2, 3])
def test_at_each_bound_the_key_of_a_queue_is_that_of_the_order_of_queues(rules, fair):
    amounts = [(cpu, gpu) for cpu in (0, 1, 2, 3) for gpu in (0, 1, 2, 3)]
    specs = [queue(f"q{at:02d}", 2, cpu=2) for at in range(len(amounts))]
    names = [each.name for each in specs]
    standing = queue_usage(
        specs, dict(zip(names, amounts, strict=True)), dict.fromkeys(names, (fair, 2))
    )
    request = np.array([1.0, 0.0])
    rows = np.arange(len(specs), dtype=np.int32)
    keys = order_keys(standing, rows, np.zeros((2, len(rows))), rules, compared=request > 0)
    order = VictimQueueOrder(standing, rules, rows.tolist(), request)
    assert [order._key(at) for at in rows] == [*map(tuple, -keys.T)]
