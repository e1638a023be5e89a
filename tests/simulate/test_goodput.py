"""Goodput: what is useful and lost, checkpoints and start-ups, and the comparison with FIFO."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.config import Configuration
from kai_py.policy.fairness_rules import PROFILES
from kai_py.simulate.scenarios.entitlement import EntitledGpus, GangRest, entitled_gpus, queue_table
from kai_py.simulate.scenarios.fifo import simulate_fifo
from kai_py.simulate.scenarios.goodput import policy_figures
from kai_py.simulate.scenarios.scenario import arrivals, parse_scenario
from kai_py.simulate.scenarios.simulation import simulate
from tests.support.examples import examples
from tests.support.repository import ROOT

DAYS = ROOT / "benchmarks" / "goodput"

PREEMPTED = """
hours: 4
{settings}
nodes: [{{name: n, count: 1, gpus: 4}}]
queues: [{{name: team, deservedGPUs: 4}}]
jobs:
- {{name: low, queue: team, pods: 4, minutes: 60{checkpoint}}}
- {{name: high, queue: team, pods: 4, minutes: 30, at: 30, priority: 100}}
"""


def ours(text):
    return policy_figures("kai-py", simulate(parse_scenario(text), Configuration()))


def fifo(text):
    scenario = parse_scenario(text)
    return policy_figures("fifo", simulate_fifo(scenario, PROFILES[Configuration().rules]))


def preempted(settings="", checkpoint=""):
    return ours(PREEMPTED.format(settings=settings, checkpoint=checkpoint))


def test_work_before_an_eviction_is_lost():
    found = preempted()
    assert found.useful_gpu_hours == pytest.approx(4 + 2, rel=0.01)
    assert found.lost_gpu_hours == pytest.approx(2, rel=0.01)
    assert found.used_gpu_hours == pytest.approx(8, rel=0.01)
    assert (found.evicted_pods, found.most_evictions_of_a_gang) == (4, 1)
    assert found.evicted_within_two_minutes == 0
    assert found.lost_by_rule == {"preempt": pytest.approx(2, rel=0.01)}
    assert list(found.lost_by_queue.values()) == [pytest.approx(2, rel=0.01)]
    assert found.gangs_by_evictions == {"1": 1}


def test_a_gang_that_still_runs_at_the_end_completes_then():
    text = (
        "hours: 1\nnodes: [{name: n, gpus: 1}]\nqueues: [{name: team, deservedGPUs: 1}]\n"
        "jobs: [{name: long, queue: team, minutes: 90, at: 20}]"
    )
    for found in (ours(text), fifo(text)):
        assert found.mean_completion_seconds == pytest.approx(40 * 60, rel=0.01)


def test_work_before_a_checkpoint_is_not_repeated():
    found = preempted(checkpoint=", checkpointMinutes: 20")
    assert found.lost_gpu_hours == pytest.approx(4 * 10 / 60, rel=0.02)
    assert found.useful_gpu_hours == pytest.approx(6, rel=0.01)
    without, with_checkpoints = preempted(), found
    saved = without.mean_completion_seconds - with_checkpoints.mean_completion_seconds
    assert saved == pytest.approx(20 * 60 / 2, abs=30)


def test_every_start_costs_the_start_up():
    found = preempted(settings="startUpSeconds: 300")
    starts = 4 + 4 + 4
    assert found.lost_gpu_hours == pytest.approx(starts * 300 / 3600 + 4 * 25 / 60, rel=0.02)
    assert found.useful_gpu_hours == pytest.approx(6, rel=0.01)


def test_a_gang_that_never_starts_waits_until_the_end():
    text = """
    hours: 2
    nodes: [{name: n, count: 1, gpus: 4}]
    queues: [{name: team}]
    jobs: [{name: large, queue: team, pods: 2, gpusPerPod: 4, at: 30}]
    """
    for found in (ours(text), fifo(text)):
        assert found.waits.max == found.mean_completion_seconds == 90 * 60


BACKFILL = """
hours: 4
nodes: [{name: n, count: 2, gpus: 4}]
queues: [{name: team, deservedGPUs: 4}, {name: idle, deservedGPUs: 4}]
jobs:
- {name: first, queue: team, pods: 1, gpusPerPod: 4, minutes: 60}
- {name: wide, queue: team, pods: 2, gpusPerPod: 4, minutes: 60, at: 1}
- {name: small, queue: idle, pods: 1, gpusPerPod: 2, minutes: 30, at: 2, priority: 5}
"""


def test_fifo_backfills_and_never_evicts():
    result = simulate_fifo(parse_scenario(BACKFILL), PROFILES[Configuration().rules])
    waits = {each.gang.rpartition("/")[2]: each for each in result.waits}
    assert waits["first"].seconds == 0
    assert waits["small"].seconds == 0
    assert waits["wide"].seconds == 59 * 60
    found = policy_figures("fifo", result)
    assert found.evicted_pods == found.lost_gpu_hours == 0
    assert found.useful_gpu_hours == pytest.approx(4 + 8 + 1)
    assert found.queues["team"].received == pytest.approx(12)
    assert found.queues["idle"].received == pytest.approx(1)


def test_fifo_packs_each_pod_where_the_fewest_gpus_are_free():
    text = """
    hours: 1
    nodes: [{name: n, count: 2, gpus: 4}]
    queues: [{name: team}]
    jobs:
    - {name: a, queue: team, gpusPerPod: 2, minutes: 50}
    - {name: b, queue: team, gpusPerPod: 2, minutes: 50, at: 1}
    - {name: c, queue: team, gpusPerPod: 4, minutes: 50, at: 2}
    """
    assert fifo(text).waits.max == 0


@settings(max_examples=examples(20), deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.sampled_from([0.5, 1, 2, 4]),
            st.integers(1, 90),
            st.integers(0, 90),
        ),
        max_size=12,
    )
)
def test_fifo_gives_no_gpu_twice_and_accounts_for_all_work(jobs):
    lines = [
        f"- {{name: j{n}, queue: team, pods: {pods}, gpusPerPod: {gpus:g}, minutes: {m}, at: {at}}}"
        for n, (pods, gpus, m, at) in enumerate(jobs)
    ]
    text = "\n".join(
        [
            "hours: 3",
            "nodes: [{name: n, count: 2, gpus: 4}]",
            "queues: [{name: team}]",
            "jobs:" + (" []" if not lines else ""),
            *lines,
        ]
    )
    result = simulate_fifo(parse_scenario(text), PROFILES[Configuration().rules])
    assert all(moment.used <= 8 + 1e-9 for moment in result.moments)
    received = policy_figures("fifo", result).used_gpu_hours
    assert result.queues["team"].received == pytest.approx(received, abs=1e-6)


def test_a_burst_comes_at_once_with_names_of_its_own():
    text = """
    hours: 12
    nodes: [{name: n}]
    queues: [{name: team}]
    jobs: [{name: b, queue: team, at: 60, every: 360, burst: 3}]
    """
    found = arrivals(parse_scenario(text))
    assert [each.seconds for each in found] == [3600.0] * 3 + [25200.0] * 3
    assert len({each.name for each in found}) == 6


def test_the_three_days_ask_for_what_they_say():
    for name, load in (("skew", 1.0), ("priorities", 1.05), ("bursts", 0.9)):
        scenario = parse_scenario((DAYS / f"{name}.yaml").read_text(encoding="utf-8"))
        gpus = sum(each.count * each.gpus for each in scenario.nodes)
        rate = sum(
            each.pods * each.gpus_per_pod * each.minutes / each.every
            for each in scenario.jobs
            if each.every and each.burst == 1
        )
        assert rate / gpus == pytest.approx(load, rel=0.001)


def test_json_has_the_policies_side_by_side(tmp_path):
    path = tmp_path / "backfill.yaml"
    path.write_text(BACKFILL, encoding="utf-8")
    arguments = ["simulate", str(path), "--against", "fifo", "--against", "kai", "-o", "json"]
    result = CliRunner().invoke(main.app, arguments, obj=main.Invocation())
    policies = json.loads(result.output)["policies"]
    assert [each["name"] for each in policies] == ["kai-py", "fifo", "kai"]
    for each in policies:
        assert set(each) >= {
            "usefulGPUHours",
            "lostGPUHours",
            "usedGPUHours",
            "evictedPods",
            "evictedWithinTwoMinutes",
            "mostEvictionsOfAGang",
            "meanCompletionSeconds",
            "lostGPUHoursByRule",
            "lostGPUHoursByQueue",
            "gangsByEvictions",
        }
        assert set(each["waits"]) == {"mean", "p99", "max"}
        assert set(each["queues"]["team"]) == {"received", "entitled"}


def brute_entitlement(fair, allocated, gangs):
    """Every choice of a number of pods of every gang."""
    choices = [
        {0, *range(max(gang.least, 1), gang.pods + 1)} if gang.pods else {0} for gang in gangs
    ]
    sums = {
        sum(n * gang.gpus_per_pod for n, gang in zip(each, gangs, strict=True))
        for each in itertools.product(*choices)
    }
    remainder = fair - allocated
    return min(
        fair, allocated + max((each for each in sums if each <= remainder + 1e-9), default=0.0)
    )


@given(
    fair=st.integers(0, 20),
    allocated=st.integers(0, 20),
    gangs=st.lists(
        st.builds(
            lambda gpus, pods, least: GangRest("q", gpus, pods, min(least, pods)),
            st.sampled_from([0.25, 0.5, 1, 2, 3, 8]),
            st.integers(1, 4),
            st.integers(0, 4),
        ),
        max_size=4,
    ),
)
def test_a_queue_is_entitled_to_the_gangs_that_fit_whole(fair, allocated, gangs):
    table = queue_table(parse_scenario("nodes: [{name: n}]\nqueues: [{name: q}]"))
    found = entitled_gpus(table, {"q": EntitledGpus(allocated, fair)}, gangs)
    assert found["q"] == (allocated, pytest.approx(brute_entitlement(fair, allocated, gangs)))


def test_a_share_of_a_hundred_million_gpus_in_thousandths_is_taken_to_be_filled():
    table = queue_table(parse_scenario("nodes: [{name: n}]\nqueues: [{name: q}]"))
    gangs = [GangRest("q", 0.001, 1, 1), *[GangRest("q", 1024, 100_000, 100_000)] * 3]
    assert entitled_gpus(table, {"q": EntitledGpus(0, 1.5e8)}, gangs)["q"] == (0, 1.5e8)


def test_a_parent_is_entitled_to_what_its_children_are():
    text = "nodes: [{name: n}]\nqueues: [{name: p}, {name: a, parent: p}, {name: b, parent: p}]"
    waiting = [GangRest("a", 1, 3, 3), GangRest("b", 8, 1, 1)]
    shares = {"p": EntitledGpus(3, 12), "a": EntitledGpus(1, 6), "b": EntitledGpus(2, 6)}
    found = entitled_gpus(queue_table(parse_scenario(text)), shares, waiting)
    assert found == {"p": (3, 6), "a": (1, 4), "b": (2, 2)}


STARVED = """
hours: 10
nodes: [{name: n, count: 2, gpus: 8}]
queues: [{name: greedy, deservedGPUs: 8}, {name: starved, deservedGPUs: 8}]
jobs:
- {name: long, queue: greedy, gpusPerPod: 8, minutes: 300, burst: 2}
- {name: node, queue: starved, gpusPerPod: 8, minutes: 60, at: 60}
- {name: wide, queue: starved, pods: 2, gpusPerPod: 8, minutes: 60, at: 1}
"""


@pytest.mark.slow
def test_a_starved_queue_is_shown_and_a_gang_beyond_its_share_is_not():
    queues = fifo(STARVED).queues
    # The gang of 16 entitles its queue to nothing while it waits: the share of each queue is 8.
    # From minute 60 to 300 that of 8 does; then the older
    # one starts, and that of 8 after it.
    assert queues["starved"].entitled == pytest.approx(4 * 8 + 16 + 8)
    assert queues["starved"].received == pytest.approx(16 + 8)
    fair = ours(STARVED).queues["starved"]
    assert 0.95 * fair.entitled <= fair.received == pytest.approx(24, rel=0.001)
