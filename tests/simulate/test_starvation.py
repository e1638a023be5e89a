"""A gang that needs the whole cluster gets it, however many small Jobs keep coming."""

import pytest

from kai_py.config import Configuration, OrderConfig
from kai_py.simulate.scenarios.scenario import parse_scenario
from kai_py.simulate.scenarios.simulation import simulate

RESERVED_AFTER = 30 * 60
LONGEST_SMALL = 40 * 60

SCENARIO = """
hours: 4
nodes: [{{name: n, count: 1, gpus: 4}}]
queues:
- {{name: team, deservedGPUs: 4, {reserve}}}
jobs:
- {{name: small, queue: team, minutes: 40, every: 8, {says}}}
- {{name: brief, queue: team, minutes: 5, every: 10, {says_brief}}}
- {{name: big, queue: team, pods: 4, minutes: 30, at: 60}}
"""


def played(reserve="", says="", says_brief="", **order):
    text = SCENARIO.format(reserve=reserve, says=says, says_brief=says_brief)
    configuration = Configuration(order=OrderConfig(**order))
    result = simulate(parse_scenario(text), configuration, cycle_seconds=20.0)
    return result, next(wait for wait in result.waits if wait.gang.endswith("/big"))


def used_between(result, start, end):
    """GPU-seconds used from ``start`` to ``end`` seconds."""
    ends = [moment.seconds for moment in result.moments[1:]] + [end]
    return sum(
        moment.used * max(0.0, min(until, end) - max(moment.seconds, start))
        for moment, until in zip(result.moments, ends, strict=True)
    )


@pytest.mark.slow
def test_without_a_reservation_it_starves():
    assert played()[1].seconds is None


@pytest.mark.slow
def test_the_largest_gets_one_once_it_is_known_how_long_the_others_run():
    _, big = played(reserve_after=RESERVED_AFTER)
    assert big.seconds is not None
    assert big.seconds <= RESERVED_AFTER + LONGEST_SMALL + 60


@pytest.mark.slow
def test_with_one_it_starts_when_the_last_of_the_others_has_ended():
    _, big = played("reserveAfter: 30m")
    assert big.seconds is not None
    assert big.seconds <= RESERVED_AFTER + LONGEST_SMALL + 60


@pytest.mark.slow
def test_short_jobs_use_the_nodes_meanwhile_and_do_not_delay_it():
    silent, alone = played("reserveAfter: 30m", "expectedMinutes: 40", "expectedMinutes: 40")
    told, beside = played("reserveAfter: 30m", "expectedMinutes: 40", "expectedMinutes: 5")
    assert beside.seconds == pytest.approx(alone.seconds, abs=60)
    start = 3600 + RESERVED_AFTER
    end = 3600 + alone.seconds
    assert used_between(told, start, end) > used_between(silent, start, end) + 600
