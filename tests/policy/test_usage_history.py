"""Past use that was measured elsewhere: a part of the cluster, for as long as it is fresh."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.usage_history import ExternalUsage, UsageHistory
from kai_py.snapshot.tables.queues import UsageRecord

HOUR = 3600.0
RESOURCES = ("gpu",)


def advance(history, now, allocated, recorded=None, total=8.0):
    names = sorted(allocated)
    found = history.advance(
        now,
        names,
        RESOURCES,
        allocated=np.array([[allocated[name] for name in names]], np.float64),
        total=np.array([total]),
        recorded=recorded or {},
    )
    return dict(zip(names, found[0].tolist(), strict=True))


def test_what_was_held_since_the_last_cycle_is_past_use():
    history = UsageHistory(HOUR)
    assert advance(history, 0.0, {"a": 8, "b": 0}) == {"a": 0, "b": 0}
    used = advance(history, HOUR, {"a": 0, "b": 8})
    assert used == pytest.approx({"a": 1, "b": 0})
    used = advance(history, 2 * HOUR, {"a": 0, "b": 0})
    assert used == pytest.approx({"a": 1 / 3, "b": 2 / 3}), "an hour ago counts half"


def test_queues_come_and_go():
    history = UsageHistory(HOUR)
    advance(history, 0.0, {"a": 4, "gone": 4})
    used = advance(history, HOUR, {"a": 4, "new": 4})
    assert used == pytest.approx({"a": 0.5, "new": 0})
    assert set(history.records(HOUR)) == {"a", "new"}


def test_a_restart_goes_on_with_what_statuses_remember():
    first, second = UsageHistory(HOUR), UsageHistory(HOUR)
    advance(first, 0.0, {"a": 8, "b": 0})
    advance(first, HOUR, {"a": 0, "b": 0})
    records = first.records(HOUR)
    restarted = advance(second, HOUR, {"a": 0, "b": 0}, recorded=records)
    assert restarted == pytest.approx({"a": 1, "b": 0})
    stale = {"a": UsageRecord(0.0, {"gpu": 0.0}, {"gpu": 1.0})}
    assert advance(second, HOUR, {"a": 0, "b": 0}, recorded=stale) == restarted


@given(st.lists(st.tuples(st.floats(1, HOUR), st.integers(0, 8)), min_size=1, max_size=12))
def test_looking_more_often_changes_nothing(steps):
    often, rarely = UsageHistory(HOUR), UsageHistory(HOUR)
    now, held = 0.0, 0
    advance(often, now, {"a": held})
    advance(rarely, now, {"a": held})
    for seconds, then in steps:
        for part in (0.25, 0.5):
            advance(often, now + seconds * part, {"a": held})
        now, held = now + seconds, then
        assert advance(often, now, {"a": held}) == pytest.approx(advance(rarely, now, {"a": held}))
        assert 0 <= advance(rarely, now, {"a": held})["a"] <= 1 + 1e-9


def test_amounts_are_parts_of_the_cluster_until_they_are_stale():
    usage = ExternalUsage(300.0)
    queues, rows, total = ("a", "b"), ("gpu", "cpu"), np.array([8.0, 0.0])
    assert not usage.fractions(0.0, queues, rows, total).any(), "nothing was measured"
    usage.record({"a": {"gpu": 2.0, "cpu": 500.0}, "gone": {"gpu": 8.0}}, 1000.0)
    assert usage.fractions(1300.0, queues, rows, total).tolist() == [[0.25, 0.0], [0.0, 0.0]]
    assert not usage.fractions(1301.0, queues, rows, total).any()
