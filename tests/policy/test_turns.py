"""All turns at once are those of the line, taken one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.limits import check_max
from kai_py.policy.queue_line import QueueLine
from kai_py.policy.rules import KAI, NATIVE
from kai_py.policy.turns import taken, turns
from tests.policy.test_queue_order import scenes

costs = st.tuples(st.sampled_from([0, 1, 0.1]), st.sampled_from([0, 0.5, 1, 0.3]))


def one_by_one(standing, waiting, cost, rules):
    line, left, order = QueueLine(standing, rules), dict(waiting), []
    for leaf in waiting:
        line.update(leaf, cost)
    while (leaf := line.first()) is not None:
        if check_max(standing, leaf, cost) is not None:
            break
        order.append(leaf)
        left[leaf] -= 1
        for queue in standing.queues.lines[leaf]:
            standing.allocated[:, queue] += cost
        line.update(leaf, cost if left[leaf] else None)
    return order


@given(scenes(), st.data(), costs, st.sampled_from([NATIVE, KAI]))
def test_turns_at_once_equal_the_line(scene, data, amounts, rules):
    standing, _ = scene
    leaves = np.flatnonzero(standing.queues.is_leaf).tolist()
    counts = st.dictionaries(st.sampled_from(leaves), st.integers(1, 9), min_size=1)
    waiting, cost = data.draw(counts), np.array(amounts, np.float64)
    at_once = turns(standing, waiting, cost, rules).tolist()
    held = [taken(standing.allocated[:, leaf], cost, at_once.count(leaf))[:, -1] for leaf in leaves]
    assert at_once == one_by_one(standing, waiting, cost, rules)
    assert np.array_equal(standing.allocated[:, leaves].T, held)
