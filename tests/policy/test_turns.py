"""All turns at once are those of the line, taken one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.queue_limits import check_max
from kai_py.policy.queue_order import QueueOrder
from kai_py.policy.round_robin import GangCosts, cumulative_usage, round_robin_order
from tests.policy.test_queue_order import scenes

one_cost = st.tuples(st.sampled_from([0, 1, 0.1]), st.sampled_from([0, 0.5, 1, 0.3]))
sizes = st.lists(st.sampled_from([1, 1, 3, 0.7]), min_size=2, max_size=2)


def one_by_one(standing, waiting, costs, rules):
    line, left, order = QueueOrder(standing, rules), dict(waiting), []
    for leaf in waiting:
        line.update(leaf, costs.pod[:, leaf] * costs.pods[leaf])
    while (leaf := line.first()) is not None:
        cost = costs.pod[:, leaf] * costs.pods[leaf]
        if check_max(standing, leaf, cost) is not None:
            break
        order.append(leaf)
        left[leaf] -= 1
        for queue in standing.queues.ancestors(leaf):
            for _ in range(costs.pods[leaf]):
                standing.allocated[:, queue] += costs.pod[:, leaf]
        line.update(leaf, cost if left[leaf] else None)
    return order


@pytest.mark.slow
@given(scenes(), st.data(), one_cost, st.sampled_from([NATIVE, KAI]))
def test_turns_at_once_equal_the_line(scene, data, amounts, rules):
    standing, _ = scene
    leaves = np.flatnonzero(standing.queues.is_leaf).tolist()
    counts = st.dictionaries(st.sampled_from(leaves), st.integers(1, 9), min_size=1)
    waiting, pod = data.draw(counts), np.zeros((2, len(standing.queues)))
    pod[:, leaves] = np.transpose([np.multiply(amounts, data.draw(sizes)) for _ in leaves])
    pods = np.array([data.draw(st.sampled_from([1, 1, 3])) for _ in standing.queues.names])
    costs = GangCosts(pod, pods)
    at_once = round_robin_order(standing, waiting, costs, rules)
    held = standing.allocated.copy()
    for queue in range(len(standing.queues)):
        its = at_once[(standing.queues.path[at_once] == queue).any(axis=1)]
        held[:, queue] = cumulative_usage(held[:, queue], costs.by_pod(its))[:, -1]
    assert at_once.tolist() == one_by_one(standing, waiting, costs, rules)
    assert np.array_equal(standing.allocated, held)
