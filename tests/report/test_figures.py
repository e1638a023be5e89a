"""The figures that plots are drawn from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.plan.plan import Action
from kai_py.policy.fairness_rules import NATIVE
from kai_py.report.decisions_page import waits_by_pods
from kai_py.report.page import started_within
from kai_py.report.simulation_page import gpus_over_time
from kai_py.simulate.scenarios.fifo import simulate_fifo
from kai_py.simulate.scenarios.measurements import PodAttempt
from kai_py.simulate.scenarios.report import queue_rows, size_rows, summarise
from kai_py.simulate.scenarios.scenario import parse_scenario

SECONDS = st.floats(0, 1000)


@st.composite
def attempts(draw):
    begins, seconds = draw(SECONDS), draw(st.floats(0.1, 1000))
    kept = seconds * draw(st.floats(0, 1))
    gpus = draw(st.sampled_from([0.5, 1.0, 8.0]))
    evicted = draw(st.sampled_from([None, Action.RECLAIM]))
    return PodAttempt("g", "q", gpus, seconds, kept, begins + seconds, evicted)


@given(st.lists(attempts(), max_size=20))
def test_use_over_time_adds_up_to_the_hours_used_and_the_hours_kept(found):
    edges = np.linspace(0, 2000, 50)
    width = edges[1] - edges[0]
    for useful in (False, True):
        amounts = gpus_over_time(found, edges, useful=useful)
        assert len(amounts) == len(edges)
        expected = sum(each.gpus * (each.kept if useful else each.seconds) for each in found)
        assert sum(amounts[:-1]) * width == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.none() | SECONDS, min_size=1, max_size=30))
def test_a_distribution_ends_at_the_part_that_started(waits):
    [curve] = started_within({"all": waits})
    started = [seconds for seconds in waits if seconds is not None]
    assert list(curve.x) == sorted(curve.x)
    assert len(curve.y) == len(started)
    if started:
        assert curve.y[-1] == pytest.approx(len(started) / len(waits))
        assert curve.x[-1] == pytest.approx(
            max(*started, 1) / 60 if len(started) > 1 else max(started[0], 1) / 60
        )


def test_waits_count_from_the_first_decision_that_left_a_gang_pending():
    def decision(kind, gang, time, pods=0):
        names = tuple(f"{gang}-{n}" for n in range(pods))
        return Decision(kind=kind, gang=gang, queue="q", time=time, pods=names)

    pending, placed, deleted = DecisionKind.PENDING, DecisionKind.PLACED, DecisionKind.DELETED
    waits = waits_by_pods(
        [
            decision(pending, "a", 10),
            decision(pending, "b", 10),
            decision(pending, "a", 40),
            decision(deleted, "b", 50),
            decision(placed, "a", 70, pods=3),
            decision(placed, "b", 80, pods=1),
            decision(placed, "c", 90, pods=4),
        ]
    )
    assert waits == {"1 pod": [0], "3 to 4 pods": [60, 0]}


def test_rows_have_the_hours_of_each_queue_and_the_waits_of_each_size():
    scenario = parse_scenario("""
hours: 4
nodes: [{name: n, count: 1, gpus: 4}]
queues: [{name: a, deservedGPUs: 2}, {name: b, deservedGPUs: 2}]
jobs:
- {name: first, queue: a, pods: 4, minutes: 60}
- {name: second, queue: b, pods: 2, minutes: 60, at: 10}
""")
    report = summarise(simulate_fifo(scenario, NATIVE))
    at_once, late = ("1", "0", "0 s", "0 s", "0 s"), ("1", "0", "50 min", "50 min", "50 min")
    assert queue_rows(report) == [
        ("a", "4.0", "2.3", "0", "0.0", *at_once),
        ("b", "2.0", "3.7", "0", "0.0", *late),
    ]
    assert size_rows(report) == [("2", *late), ("3 to 4", *at_once)]
