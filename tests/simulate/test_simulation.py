"""Spot nodes that are interrupted in a simulation, with what becomes of gangs, and the price.

A queue that used the cluster lately gets less of the remainder, for a while.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.config import Configuration, FairShareConfig
from kai_py.plan.plan import Action
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenarios import scenario
from kai_py.simulate.scenarios.goodput import policy_figures
from kai_py.simulate.scenarios.measurements import GangWait
from kai_py.simulate.scenarios.report import jain_index, summarise, waiting_times
from kai_py.simulate.scenarios.scenario import ScenarioError, arrivals, parse_scenario
from kai_py.simulate.scenarios.simulation import simulate
from tests.simulate.clusters import NOW, job, queue, simulated
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


def test_a_null_field_of_a_queue_is_as_absent():
    world = "hours: 1\nnodes: [{name: n, gpus: 8}]\njobs: [{name: j, queue: q, minutes: 30}]\n"
    plain = played(world + "queues: [{name: q, deservedGPUs: 8}]")
    nulls = "parent: null, maxGPUs: null, preemptMinRuntime: null"
    assert played(world + f"queues: [{{name: q, deservedGPUs: 8, {nulls}}}]") == plain


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


def test_a_pod_that_is_relocated_does_not_restart_the_rest_of_its_gang():
    """Each node had half of a pair; one half moves to the other node."""
    found = summarise(
        played(
            """
            hours: 3
            nodes:
            - {name: a, gpus: 8, labels: {half: a}}
            - {name: b, gpus: 8, labels: {half: b}}
            queues: [{name: team, deservedGPUs: 16}]
            jobs:
            - {name: on-a, queue: team, gpusPerPod: 4, minutes: 30, nodeSelector: {half: a}}
            - {name: on-b, queue: team, gpusPerPod: 4, minutes: 30, nodeSelector: {half: b}}
            - {name: pair, queue: team, pods: 2, gpusPerPod: 4, minutes: 150, at: 1}
            - {name: wide, queue: team, gpusPerPod: 8, minutes: 30, at: 40}
            """
        )
    )
    assert found.evictions == {"consolidate": 1}


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


def test_why_gangs_never_started_is_told_by_queue_and_stage():
    found = summarise(
        played(
            """
            hours: 1
            nodes: [{name: n, count: 2, gpus: 4}]
            queues: [{name: a}, {name: none, maxGPUs: 0}]
            jobs:
            - {name: large, queue: a, gpusPerPod: 5, count: 2, every: 10}
            - {name: fits, queue: a, pods: 2, minutes: 90}
            - {name: waits, queue: a, pods: 8, at: 1}
            - {name: refused, queue: none}
            """
        )
    )
    at_stages = [(each.queue, each.gangs, each.stage) for each in found.never_started]
    assert at_stages == [("a", 3, "Resources"), ("none", 1, "QueueMax")]
    assert "each of 2 nodes has 4" in found.never_started[0].message
    assert sum(queue.waiting_times.never_started for queue in found.queues) == 4


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
        ("nodes: [{name: n, pricePerHour: .inf}]\nqueues: [{name: a}]", "pricePerHour"),
        (
            "nodes: [{name: n}]\nqueues: [{name: a}]\n"
            "jobs:\n- {name: j, queue: a, gpusPerPod: 1.5}",
            r"s:4: jobs\[0\].*gpusPerPod",
        ),
        ("nodes: [{name: n}]\nqueues: [{name: a, maxGPUs: -1}]", "maxGPUs"),
        (
            "nodes: [{name: n, labels: {zone: b c}}]\nqueues: [{name: a}]",
            r"s:1: nodes\[0\].labels.zone: must be letters, digits",
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: a}]\n"
            "jobs: [{name: j, queue: a, nodeSelector: {zone: [a, b c]}}]",
            r"s:3: jobs\[0\].nodeSelector.zone\[1\]: must be letters, digits",
        ),
        (
            "nodes: [{name: n}, {name: n}]\nqueues: [{name: a}]",
            r's:1: nodes\[1\].name: "n" is used more than once',
        ),
        (
            "nodes: [{name: n}]\nqueues:\n- {name: a}\n- {name: a}",
            r's:4: queues\[1\].name: "a" is used more than once',
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: a, parent: b}]",
            r"s:2: queues\[0\]: queue 'a': parent 'b' does not exist",
        ),
        (
            "nodes: [{name: n}]\nqueues:\n- {name: a, parent: b}\n- {name: b, parent: a}",
            r"(?s)s:3: queues\[0\]: queue 'a' is its own ancestor.*s:4: queues\[1\]",
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: a, parent: a}]",
            r"s:2: queues\[0\]: a queue cannot be its own parent$",
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: team}]\njobs: [{name: j, queue: taem}]",
            r's:3: jobs\[0\].queue: there is no queue "taem"; did you mean team\?',
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: a}, {name: b, parent: a}]\n"
            "jobs: [{name: j, queue: a}]",
            r's:3: jobs\[0\].queue: queue "a" has children',
        ),
        (
            "nodes: [{name: n}]\nqueues: [{name: a}]\n"
            "jobs: [{name: j, queue: a, pods: 2, minAvailable: 3}]",
            r"s:3: jobs\[0\].minAvailable: must be at most pods, which is 2",
        ),
        (
            "hours: 3\nnodes: [{name: n}]\nqueues: [{name: a}]\n"
            "jobs:\n- {name: j, queue: a, every: 60}\n- {name: j-1, queue: a}",
            r's:6: jobs\[1\].name: a Job "j-1" is also created by jobs\[0\]',
        ),
        (
            "apiVersion: v1\nkind: Pod\n---\napiVersion: batch/v1\nkind: Job",
            r"s: this is a Kubernetes object, not a scenario .*; `kai-py plan FILE` says what",
        ),
    ],
)
def test_what_is_wrong_with_a_scenario_is_told_with_its_line(text, message):
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, name="s")


@pytest.mark.parametrize(
    ("queues", "problem"),
    [("[{name: a, max: -1}]", "queues[0]"), ("[]", "queues: ")],
)
def test_only_a_list_without_entries_is_too_short(queues, problem):
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"nodes: [{{name: n}}]\nqueues: {queues}", name="s")
    [line] = [line for line in str(caught.value).splitlines() if "s:2: " in line]
    assert problem in line


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


@pytest.mark.parametrize(
    ("node", "job"),
    [
        ("memoryGib: 1000000", "memoryGibPerPod: 100000"),
        ("memoryGib: 0.0000001", "memoryGibPerPod: 0.000000001"),
        ("gpus: 1", "gpusPerPod: 0.00001"),
        ("gpus: 1", "gpusPerPod: 0.3333333333333333"),
        ("gpus: 1", "gpusPerPod: 0.9999999999"),
    ],
)
def test_amounts_of_every_size_are_simulated(node, job):
    text = f"hours: 1\nnodes: [{{name: n, {node}}}]\nqueues: [{{name: q}}]\n"
    found = summarise(played(f"{text}jobs: [{{name: j, queue: q, {job}, minutes: 1}}]"))
    assert found.never_started == ()
    assert found.waiting_times.gangs == 1


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


pytestmark = pytest.mark.slow

SCENARIO = """
hours: 12
startUpSeconds: 60
nodes:
- {{name: fixed, count: 1, gpus: 8, pricePerHour: 80}}
- {{name: cheap, count: 2, gpus: 8, pricePerHour: 30, spot: true, interruptionsPerHour: {rate},
   awayMinutes: {away}}}
queues: [{{name: q, deservedGPUs: 24}}]
jobs:
- {{name: a, queue: q, pods: 2, gpusPerPod: 4, minutes: 120, every: 90, checkpointMinutes: 30
   {extra}}}
"""


def run(rate=0.5, away=10, extra=""):
    scenario = parse_scenario(SCENARIO.format(rate=rate, away=away, extra=extra))
    return simulate(scenario, Configuration())


def departures(result):
    return [each for each in result.attempts if each.evicted_by is Action.DEPARTURE]


def test_nodes_go_and_come_back_as_the_seed_says():
    first, again = run(), run()
    assert departures(first)
    assert first.attempts == again.attempts
    assert first.away_hours == again.away_hours
    assert 0 < first.away_hours["cheap"] < 24
    assert not departures(run(rate=0))


def test_what_is_away_costs_nothing():
    result = run(away=60)
    cost = summarise(result).cost
    assert cost["on demand"] == 80 * 12
    assert cost["spot"] == pytest.approx(30 * (24 - result.away_hours["cheap"]))
    assert summarise(run(rate=0)).cost["spot"] == 30 * 24


def test_nothing_that_never_uses_spot_nodes_is_interrupted():
    assert not departures(run(extra=", spot: never"))


def test_pods_that_save_their_work_lose_only_what_comes_after():
    asked = policy_figures("asked", run(rate=1, extra=", onNodeDeparture: checkpoint"))
    lost = policy_figures("lost", run(rate=1, extra=", onNodeDeparture: go-down"))
    assert asked.evicted_pods
    assert lost.evicted_pods
    assert asked.lost_gpu_hours < lost.lost_gpu_hours


HOUR = 3600.0


def contest(half_life, wait=0.0):
    """GPUs that a and b are entitled to after two hours of a alone, and a while without pods."""
    template = simulated(queue("a"), queue("b"), nodes=1, gpus=8)
    configuration = Configuration(fair_share=FairShareConfig(half_life=half_life))
    cluster = SimulatedCluster(configuration, start=NOW, seed=1)
    cluster.load(template.documents())
    cluster.embedded.create(job("alone", 8, "a", seconds=2 * HOUR))
    cluster.settle(2 * HOUR + 10)
    cluster.clock.advance(wait)
    for team in ("a", "b"):
        cluster.embedded.create_all(job(f"{team}-{i}", 1, team) for i in range(8))
    course = cluster.settle(60)
    shares = {share.queue: share.fair_share["gpu"] for share in course.last_plan.queues}
    return shares["a"], shares["b"]


def test_without_a_half_life_only_the_present_counts():
    assert contest(None) == (4, 4)


def test_past_use_lowers_the_claim():
    used_lately, rested = contest(HOUR)
    assert used_lately + rested == pytest.approx(8)
    assert used_lately < 2 < 6 < rested


@pytest.mark.slow
def test_and_is_forgotten():
    soon, later, much_later = (contest(HOUR, wait)[0] for wait in (0, 3 * HOUR, 240 * HOUR))
    assert soon <= later < much_later <= 4
    assert contest(HOUR, 240 * HOUR)[0] == pytest.approx(4, abs=0.1)
