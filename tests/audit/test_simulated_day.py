"""A day in which gangs come, wait, reclaim and end gives the auditor nothing to find."""

import pytest

from kai_py.config import Configuration
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenarios.scenario import parse_scenario
from kai_py.simulate.scenarios.simulation import simulate
from tests.support.audits import audit
from tests.support.repository import DOCS

SCENARIO = DOCS / "scenarios" / "two-teams.yaml"
EVERY = 10
"""Cycles from one look to the next."""


@pytest.mark.slow
def test_a_simulated_day_is_clean(monkeypatch):
    looks, found = [], []
    run_cycle = SimulatedCluster.cycle

    def cycle(cluster):
        plan = run_cycle(cluster)
        looks.append(cluster.clock.now())
        if len(looks) % EVERY == 0:
            found.extend(audit(cluster.documents(), now=cluster.clock.now()))
        return plan

    monkeypatch.setattr(SimulatedCluster, "cycle", cycle)
    simulate(parse_scenario(SCENARIO.read_text()), Configuration())
    assert len(looks) > 20 * EVERY
    assert found == []
