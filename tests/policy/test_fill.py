"""Filling k pods at once must equal the rule applied to one pod after the other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.choices import FillStrategy
from kai_py.policy.fill import fill


def one_by_one(count, copies, preference, slack, strategy):
    """The rule of one step, literally."""
    capacity = list(copies)
    placed: dict[int, int] = {}
    last = None
    for left in range(count, 0, -1):
        open_rows = [row for row in range(len(capacity)) if capacity[row] > 0]
        if not open_rows:
            break
        best = max(preference[row] for row in open_rows)
        tier = [row for row in open_rows if preference[row] == best]
        if strategy is FillStrategy.SPREAD:
            chosen = min(tier, key=lambda row: (-capacity[row], row))
        elif last in tier:
            chosen = last
        else:
            holders = [row for row in tier if capacity[row] >= left]
            if holders:
                chosen = min(holders, key=lambda row: (capacity[row], slack[row], row))
            else:
                chosen = min(tier, key=lambda row: (-capacity[row], slack[row], row))
        capacity[chosen] -= 1
        placed[chosen] = placed.get(chosen, 0) + 1
        last = chosen
    return placed


nodes = st.lists(
    st.tuples(st.integers(0, 9), st.integers(-2, 2), st.integers(0, 3)), min_size=1, max_size=12
)


@given(nodes, st.integers(0, 40), st.sampled_from(list(FillStrategy)))
def test_batch_equals_the_loop(rows, count, strategy):
    copies = np.array([row[0] for row in rows], dtype=np.int64)
    preference = np.array([row[1] for row in rows], dtype=np.float64)
    slack = np.array([row[2] for row in rows], dtype=np.float64)
    batch = fill(count, copies, preference, slack, strategy)
    assert dict(batch) == one_by_one(count, copies, preference, slack, strategy)
    assert len(dict(batch)) == len(batch), "a node appears once"


def test_a_gang_takes_the_one_node_that_holds_it_all():
    copies = np.array([2, 8, 3], dtype=np.int64)
    flat = np.zeros(3)
    assert fill(8, copies, flat, flat) == [(1, 8)]


def test_a_single_pod_takes_the_tightest_node():
    copies = np.array([8, 1, 3], dtype=np.int64)
    flat = np.zeros(3)
    assert fill(1, copies, flat, flat) == [(1, 1)]


def test_fewer_are_placed_when_not_all_fit():
    copies = np.array([2, 0, 1], dtype=np.int64)
    flat = np.zeros(3)
    assert sum(pods for _, pods in fill(8, copies, flat, flat)) == 3


parts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12
)


@given(parts, st.integers(0, 12))
def test_what_comes_first_is_used_up_before_the_rest(rows, count):
    first, rest, slack = np.transpose(np.array(rows, np.int64))
    flat, slack = np.zeros(len(rows)), slack.astype(np.float64)
    begun = fill(count, first, flat, slack)
    left = count - sum(pods for _, pods in begun)
    expected = begun + fill(left, rest, flat, slack)
    assert fill(count, first + rest, flat, slack, preferred_replicas=first) == expected
