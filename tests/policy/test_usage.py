import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from kai_py.policy.usage_history import UsageState, advance_usage, restore_usage, usage_record
from kai_py.snapshot.tables.queues import UsageRecord

RESOURCES = ("gpu", "cpu")
QUEUES = ("a", "b")
TOTAL = np.array([10.0, 100.0])
HOUR = 3600.0


def new(at=0.0):
    return UsageState(at, np.zeros((2, 2)), np.zeros(2))


def held(gpus_a, gpus_b):
    return np.array([[gpus_a, gpus_b], [0.0, 0.0]], np.float64)


def gpu_usage(state):
    return dict(zip(QUEUES, state.fractions[0].tolist(), strict=True))


def test_no_history_is_no_usage():
    assert (new().fractions == 0).all()


def test_an_hour_one_half_life_back_counts_half():
    state = advance_usage(new(), held(6, 0), TOTAL, HOUR, HOUR)
    state = advance_usage(state, held(0, 6), TOTAL, 2 * HOUR, HOUR)
    assert gpu_usage(state) == pytest.approx({"a": 0.6 * 1 / 3, "b": 0.6 * 2 / 3})


def test_without_half_life_it_is_the_plain_average():
    state = advance_usage(new(), held(6, 0), TOTAL, HOUR, None)
    state = advance_usage(state, held(0, 6), TOTAL, 3 * HOUR, None)
    assert gpu_usage(state) == pytest.approx({"a": 0.2, "b": 0.4})


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(1, 5000)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.sampled_from([None, 60.0, HOUR]),
)
def test_observing_more_often_changes_nothing(history, parts, half_life):
    once = often = new()
    for gpus, seconds in history:
        start = once.observed_at
        once = advance_usage(once, held(gpus, 0), TOTAL, start + seconds, half_life)
        for part in range(1, parts + 1):
            now = start + seconds * part / parts
            often = advance_usage(often, held(gpus, 0), TOTAL, now, half_life)
    assert often.allocated == pytest.approx(once.allocated, rel=1e-6)
    assert often.offered == pytest.approx(once.offered, rel=1e-6)
    assert (once.fractions <= 1 + 1e-9).all()


def test_a_clock_set_back_counts_nothing_and_time_runs_from_there():
    state = advance_usage(new(), held(6, 0), TOTAL, HOUR, HOUR)
    corrected = advance_usage(state, held(0, 9), TOTAL, HOUR - 30, HOUR)
    assert (corrected.observed_at, corrected.allocated) == (HOUR, state.allocated)
    set_back = advance_usage(state, held(0, 9), TOTAL, HOUR / 2, HOUR)
    assert (set_back.observed_at, set_back.allocated) == (HOUR / 2, state.allocated)
    later = advance_usage(set_back, held(0, 9), TOTAL, HOUR, HOUR)
    assert (later.allocated[:, 1] > 0).any()


def test_history_survives_a_restart_as_json():
    state = advance_usage(new(), held(6, 2), TOTAL, HOUR, HOUR)
    stored = {
        name: json.loads(json.dumps(asdict(usage_record(state, column, RESOURCES))))
        for column, name in enumerate(QUEUES)
    }
    records = {name: UsageRecord(**fields) for name, fields in stored.items()}
    again = restore_usage(records, QUEUES, RESOURCES, HOUR, HOUR)
    assert again.allocated.tolist() == state.allocated.tolist()
    assert again.offered.tolist() == state.offered.tolist()


def test_records_of_different_age_meet_at_now_and_new_queues_start_empty():
    records = {
        "a": UsageRecord(0.0, {"gpu": 8.0}, {"gpu": 10.0}),
        "gone": UsageRecord(HOUR, {"gpu": 5.0}, {"gpu": 40.0}),
    }
    state = restore_usage(records, QUEUES, RESOURCES, 2 * HOUR, HOUR)
    assert state.allocated[0].tolist() == pytest.approx([2.0, 0.0])
    assert state.offered[0] == pytest.approx(20.0)
