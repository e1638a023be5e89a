"""Spot nodes that are interrupted in a simulation, with what becomes of gangs, and the price."""

import pytest

from kai_py.config import Configuration
from kai_py.plan.plan import Action
from kai_py.simulate.goodput import policy_figures
from kai_py.simulate.report import summarise
from kai_py.simulate.scenario import parse_scenario
from kai_py.simulate.simulation import simulate

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
