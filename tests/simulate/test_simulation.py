import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.config import Configuration
from kai_py.simulate import scenario
from kai_py.simulate.measurements import GangWait
from kai_py.simulate.report import jain_index, summarise, waiting_times
from kai_py.simulate.scenario import ScenarioError, arrivals, parse_scenario
from kai_py.simulate.simulation import simulate
from tests.support.repository import DOCS

SCENARIOS = DOCS / "scenarios"

TWO_IN_A_ROW = """
hours: 4
nodes: [{name: n, count: 2, gpus: 4, pricePerHour: 10}]
queues: [{name: team, deservedGPUs: 8}]
jobs:
- {name: first, queue: team, pods: 8, minutes: 60}
- {name: second, queue: team, pods: 4, minutes: 30, at: 10}
"""


def played(text):
    return simulate(parse_scenario(text), Configuration())


def test_hours_are_counted_exactly():
    found = summarise(played(TWO_IN_A_ROW))
    assert found.allocated == pytest.approx((8 * 60 + 4 * 30) / (8 * 240), rel=0.01)
    [team] = found.queues
    assert team.received == pytest.approx(10, rel=0.01)
    assert team.waiting_times.gangs == 2
    assert team.waiting_times.longest == pytest.approx(50 * 60, abs=10)
    assert found.idle_while_waiting == 0
    assert found.cost == {"on demand": 80}
    assert found.evictions == {}


def test_what_an_eviction_costs_is_told():
    found = summarise(
        played(
            """
            hours: 3
            nodes: [{name: n, count: 1, gpus: 4}]
            queues: [{name: team, deservedGPUs: 4}]
            jobs:
            - {name: low, queue: team, pods: 4, minutes: 60}
            - {name: high, queue: team, pods: 4, minutes: 30, at: 30, priority: 100}
            """
        )
    )
    assert found.evictions == {"preempt": 4}
    assert found.lost_gpu_hours == pytest.approx(2, rel=0.01)
    assert found.queues[0].received == pytest.approx(2 + 2 + 4, rel=0.02)


def test_what_time_alone_changes_is_decided_at_that_time():
    result = played(
        """
        hours: 1
        nodes: [{name: n, count: 1, gpus: 4}]
        queues: [{name: team, deservedGPUs: 4, preemptMinRuntime: 7m}]
        jobs:
        - {name: low, queue: team, pods: 4, minutes: 60}
        - {name: high, queue: team, pods: 4, minutes: 30, at: 1, priority: 100}
        """
    )
    [high] = [wait for wait in result.waits if "high" in wait.gang]
    assert high.seconds == pytest.approx(6 * 60, abs=5)


def test_free_gpus_in_pieces_are_told_over_time():
    found = summarise(
        played(
            """
            hours: 4
            nodes: [{name: n, count: 2, gpus: 4}]
            queues: [{name: team, deservedGPUs: 8}]
            jobs:
            - {name: one, queue: team, minutes: 60, at: 60}
            - {name: all, queue: team, pods: 7, minutes: 60, at: 120.5}
            """
        )
    )
    at = {sample.hours: sample for sample in found.samples}
    assert list(at) == sorted(at)
    assert max(at) == 4
    assert [at[h].fragmented for h in (0.5, 1.5, 2.5, 3.5)] == [0, 3, 1, 0]
    assert [at[h].largest_free for h in (0.5, 1.5, 2.5, 3.5)] == [4, 4, 1, 4]
    assert found.fragmented == pytest.approx((3 + 1) / 32, rel=0.02)


def test_pods_that_share_a_gpu_hold_no_more_of_it_than_they_ask_for():
    result = played(
        """
        hours: 4
        nodes: [{name: n, count: 1, gpus: 2}]
        queues: [{name: team, deservedGPUs: 2}]
        jobs:
        - {name: part, queue: team, gpusPerPod: 0.25, minutes: 200, count: 4, every: 10}
        - {name: whole, queue: team, minutes: 60, at: 60}
        """
    )
    assert [wait.seconds for wait in result.waits if wait.seconds is None] == []
    assert max(moment.used for moment in result.moments) == 2
    assert result.evictions == {}


def test_capacity_that_a_gang_cannot_use_is_idle_while_it_waits():
    found = summarise(
        played(
            """
            hours: 1
            nodes: [{name: n, count: 2, gpus: 4}]
            queues: [{name: team, deservedGPUs: 8}]
            jobs:
            - {name: small, queue: team, gpusPerPod: 2, minutes: 600, count: 2}
            - {name: pairs, queue: team, pods: 2, gpusPerPod: 4, minutes: 600, at: 0.1}
            """
        )
    )
    assert found.waiting_times.never_started == 1
    assert found.idle_while_waiting == pytest.approx(0.5, rel=0.05)


@pytest.mark.slow
def test_the_same_scenario_gives_the_same_result():
    text = (SCENARIOS / "two-teams.yaml").read_text().replace("hours: 24", "hours: 3")
    assert summarise(played(text)) == summarise(played(text))


def test_random_arrivals_keep_their_mean_and_follow_from_the_seed():
    text = """
    hours: 1000
    nodes: [{name: n}]
    queues: [{name: team}]
    jobs: [{name: j, queue: team, every: 30, random: true}]
    """
    times = [each.seconds for each in arrivals(parse_scenario(text))]
    assert len(times) == pytest.approx(2000, rel=0.1)
    assert times == [each.seconds for each in arrivals(parse_scenario(text))]
    other = arrivals(parse_scenario(text.replace("hours", "seed: 2\n    hours")))
    assert times != [each.seconds for each in other]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [", "s:1: "),
        ("- a", "s:"),
        ("nodes: []\nqueues: [{name: a}]", "nodes"),
        ("nodes: [{name: n, gpu: 8}]\nqueues: [{name: a}]", r"s:1: nodes\[0\].gpu: no such field"),
        (
            "nodes: [{name: n}]\nqueues: [{name: a}]\n"
            "jobs:\n- {name: j, queue: a, gpusPerPod: 1.5}",
            r"s:4: jobs\[0\].*gpusPerPod",
        ),
        ("nodes: [{name: n}]\nqueues: [{name: a, maxGPUs: -1}]", "maxGPUs"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_told_with_its_line(text, message):
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, name="s")


@pytest.mark.parametrize(
    "fields",
    [
        "at: 1, every: 1e-300",
        "every: 1e-300, random: true",
        "every: 1e-320, random: true",
        "count: 100000, burst: 100000",
    ],
)
def test_jobs_without_end_are_refused(monkeypatch, fields):
    monkeypatch.setattr(scenario, "MAX_ARRIVALS", 1000)
    jobs = f"jobs:\n- {{name: i, queue: a, every: 60}}\n- {{name: j, queue: a, {fields}}}"
    with pytest.raises(ScenarioError, match=r"s:5: jobs\[1\]: with it more than 1,000 Jobs"):
        parse_scenario(f"nodes: [{{name: n}}]\nqueues: [{{name: a}}]\n{jobs}", name="s")


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=20))
def test_jains_index_lies_between_one_nth_and_one(parts):
    assert 1 / len(parts) - 1e-9 <= jain_index(parts) <= 1 + 1e-9
    assert jain_index([parts[0]] * 5) == pytest.approx(1)
    assert jain_index([parts[0], 0, 0, 0]) == pytest.approx(0.25)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_the_95th_percentile_is_the_least_that_95_percent_do_not_pass(times):
    found = waiting_times([GangWait("g", "q", 1, 1, seconds) for seconds in times])
    below = sum(seconds <= found.p95 for seconds in times)
    assert below >= 0.95 * len(times)
    less = sum(seconds < found.p95 for seconds in times)
    assert less < 0.95 * len(times)
