"""Shares over time, in bounded memory."""

from itertools import pairwise

from kai_py.observe import kept_history
from kai_py.observe.kept_history import ShareHistory
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan


def plan(allocated):
    return Plan(queues=(QueueShare("q", {}, {}, {"gpu": 4.0}, {"gpu": allocated}, {}, 0),))


def test_samples_keep_their_distance_and_the_newest_is_shown():
    history = ShareHistory()
    for tenth in range(25):
        history.record(plan(float(tenth)), tenth / 10)
    assert [sample.time for sample in history.samples] == [0.0, 1.0, 2.0, 2.4]
    assert history.samples[-1].allocated == {"q": 24.0}
    assert history.samples[-1].fair_share == {"q": 4.0}


def test_a_long_time_needs_no_more_memory_and_stays_in_view():
    history = ShareHistory()
    for second in range(10_000):
        history.record(plan(1.0), float(second))
    times = [sample.time for sample in history.samples]
    assert len(times) <= kept_history.MAX_SAMPLES + 1
    assert (times[0], times[-1]) == (0.0, 9999.0)
    assert history.interval == 32.0
    assert {later - earlier for earlier, later in pairwise(times[:-1])} == {32.0}


def test_samples_of_a_clock_that_was_ahead_are_dropped():
    history = ShareHistory()
    for time in (0.0, 10_000.0, 10_001.0, 20.0, 30.0):
        history.record(plan(1.0), time)
    assert [sample.time for sample in history.samples] == [0.0, 20.0, 30.0]
