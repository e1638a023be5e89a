"""Waiting counts as priority: by gang, queue and configuration, up to a limit; no gang starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.grouping.gang_settings import DEFAULT_SETTINGS, GangSettings
from kai_py.policy.ageing import NO_AGEING, Ageing, QueueAgeing
from kai_py.policy.queue_order import gang_key
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import gang

NOW = START + 1000.0


def ageing(*queues, default=NO_AGEING, now=NOW):
    return QueueAgeing.for_queues(queues, default, now)


def test_waiting_counts_as_priority_up_to_the_limit():
    old = gang("old", pods=1)
    assert ageing().points(old) == 0
    assert ageing(default=Ageing(100.0)).points(old) == 10
    assert ageing(default=Ageing(101.0)).points(old) == 9
    assert ageing(default=Ageing(1.0, limit=7)).points(old) == 7
    assert ageing(default=Ageing(100.0)).points(gang("late", pods=1, created=2000)) == 0


def test_the_gang_comes_before_its_queue_the_queue_before_those_above_and_the_configuration():
    org = QueueInfo(name="org", ageing=50.0, ageing_limit=15)
    team, own = QueueInfo(name="team", parent="org"), QueueInfo(name="own", parent="org", ageing=0)
    rules = ageing(org, team, own, QueueInfo(name="other"), default=Ageing(10.0, limit=30))
    gained = {
        queue: rules.points(gang("g", pods=1, queue=queue)) for queue in ("team", "own", "other")
    }
    assert gained == {"team": 15, "own": 0, "other": 30}
    said = replace(gang("g", pods=1), settings=GangSettings(ageing=200.0))
    assert rules.points(said) == 5
    assert rules.points(replace(said, settings=GangSettings(ageing=0.0))) == 0
    assert rules.points(replace(said, settings=GangSettings(ageing=0.001))) == 15, (
        "no workload lifts the limit"
    )
    assert rules.priority(replace(said, priority=3)) == 8


def test_a_gang_that_ran_and_was_evicted_starts_again():
    old = gang("old", pods=1)
    fresh = replace(old, members=(replace(old.members[0], created=NOW - 150.0),))
    assert ageing(default=Ageing(100.0)).points(fresh) == 1


drawn_gangs = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.integers(0, 2000),
        st.sampled_from([None, 0.0, 5.0, 60.0, 900.0]),
        st.sampled_from(["slow", "fast", "none"]),
    ),
    min_size=2,
    max_size=6,
)
QUEUES = (
    QueueInfo(name="slow", ageing=300.0),
    QueueInfo(name="fast", ageing=3.0, ageing_limit=5),
    QueueInfo(name="none"),
)


def drawn_as_gangs(drawn):
    return [
        replace(
            gang(f"g{i}", pods=1, priority=priority, created=created, queue=queue),
            settings=GangSettings(ageing=seconds),
        )
        for i, (priority, created, seconds, queue) in enumerate(drawn)
    ]


@given(drawn_gangs)
def test_without_ageing_the_order_is_that_of_priority_and_age(drawn):
    gangs = [
        replace(each, settings=DEFAULT_SETTINGS, queue="none") for each in drawn_as_gangs(drawn)
    ]
    rules = ageing(*QUEUES)
    line = sorted(gangs, key=lambda each: gang_key(each, 0, rules.points(each)))
    assert line == sorted(gangs, key=lambda each: (-each.priority, each.created, each.key))


@given(drawn_gangs, st.randoms(use_true_random=False))
def test_the_order_is_total_whatever_ages_how(drawn, chance):
    gangs, rules = drawn_as_gangs(drawn), ageing(*QUEUES, default=Ageing(77.0))
    ranks = {each.key: gang_key(each, 0, rules.points(each)) for each in gangs}
    assert len(set(ranks.values())) == len(ranks)
    shuffled = list(gangs)
    chance.shuffle(shuffled)
    assert sorted(gangs, key=lambda g: ranks[g.key]) == sorted(shuffled, key=lambda g: ranks[g.key])


@given(st.integers(0, 20), st.floats(1.0, 30.0))
def test_no_gang_starves_behind_work_that_keeps_coming(above, seconds):
    """One place a second; every second comes a gang that is ``above`` higher in priority."""
    rules = (QueueInfo(name="team", ageing=seconds),)
    waiting = [gang("low", pods=1)]
    longest = int((above + 1) * seconds) + 2
    for second in range(longest + 1):
        waiting.append(gang(f"high-{second}", pods=1, priority=above, created=second))
        gained = ageing(*rules, now=START + second).points
        served = min(waiting, key=lambda each: gang_key(each, 0, gained(each)))
        waiting.remove(served)
        if served.key.endswith("/low"):
            return
    pytest.fail(f"still waits after {longest} s")
