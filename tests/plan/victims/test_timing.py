"""When victims are evicted: the costs of all moments compared, each term of them by itself."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.plan.victims import timing
from kai_py.plan.victims.timing import (
    MAX_PATIENCE,
    NEGLECTED_WEIGHT,
    RECONSIDERED,
    SERVED_WEIGHT,
    postponed_until,
)
from tests.plan.victims.stated_costs import (
    NOW,
    PATIENCE,
    RULES,
    SERVICE,
    fake_strategy,
    victim,
    waits,
)
from tests.support.records import replace


def until(end, lost=50.0):
    """What a victim that ends then loses."""
    return lambda _, at: lost if at < NOW + end else 0.0


SOON = {"ends": {"old": 30.0}, "lost": until(30)}
"""Waiting half a minute saves 50."""


@pytest.mark.parametrize(
    ("changed", "waited"),
    [
        ({}, 30.0),
        ({"rules": replace(RULES, by_loss=False)}, None),
        ({"rules": replace(RULES, patience=0.0)}, None),
        ({"lost": lambda *_: 0.0}, None),
        ({"created": 1000 - MAX_PATIENCE * PATIENCE}, 30.0),
        ({"created": 1000 - (MAX_PATIENCE + 1) * PATIENCE}, None),
        # Beyond the bound of its wait only ends within one more patience count.
        ({"created": 600.0, "ends": {"old": 100.0}, "lost": until(100)}, 100.0),
        ({"created": 600.0, "ends": {"old": 150.0}, "lost": until(150)}, None),
        ({"created": 600.0, "ends": {}}, None),
        # Half a minute of a tenth of the cluster costs 3.
        ({"lost": until(30, 3.0)}, None),
        ({"lost": until(30, 3.1)}, 30.0),
        ({"ends": {"old": 0.5}, "lost": lambda _, at: 50.0 * (at <= NOW)}, 1.0),
    ],
)
def test_an_end_is_waited_for_where_that_costs_less(changed, waited):
    assert waits(fake_strategy(**(SOON | changed))) == waited


@pytest.mark.parametrize(
    ("created", "known", "waited"), [(600.0, ("a", "b"), 30.0), (600.0, ("a",), None)]
)
def test_beyond_its_bound_a_wait_is_for_ends_that_are_all_known(created, known, waited):
    ends = dict.fromkeys(known, 30.0)
    strategy = fake_strategy(created=created, ends=ends, lost=until(30))
    assert waits(strategy, victim("a"), victim("b")) == waited


def test_a_known_end_that_is_not_worth_the_wait_leaves_the_unknown_ones():
    strategy = fake_strategy(ends={"a": 30.0}, lost=lambda *_: 5.5)
    assert waits(strategy, victim("a", since=950.0), victim("b", since=950.0)) == RECONSIDERED


def test_an_unknown_end_is_not_waited_for_beyond_the_bound():
    strategy = fake_strategy(created=1000.0 - MAX_PATIENCE * PATIENCE, lost=lambda *_: 50.0)
    assert waits(strategy, victim(since=990.0)) is None


def test_no_victims_are_not_waited_for():
    assert postponed_until(fake_strategy(**SOON), ()) is None


@pytest.mark.parametrize("serves", [0, 1, 2])
def test_services_neither_wait_nor_are_waited_for(serves):
    """The gang, its first victim or its second."""
    strategy, units = fake_strategy(**SOON), [victim(), victim()]
    if serves:
        units[serves - 1] = replace(units[0], gang=replace(units[0].gang, owner=SERVICE))
    else:
        strategy.gang = replace(strategy.gang, owner=SERVICE)
    assert waits(strategy, *units) is None


@pytest.mark.parametrize(
    ("action", "known", "waited", "due", "bound", "latest"),
    [
        (Action.CONSOLIDATE, True, 900, None, math.inf, math.inf),
        (Action.CONSOLIDATE, False, 900, None, 0, 0),
        (Action.PREEMPT, True, 100, None, 300, 300),
        (Action.PREEMPT, False, 100, None, 300, 300),
        (Action.PREEMPT, True, 400, None, 0, 100),
        (Action.PREEMPT, False, 400, None, 0, 0),
        (Action.PREEMPT, True, 499, None, -99, 1),
        (Action.PREEMPT, True, 500, None, -100, -100),
        (Action.RECLAIM, True, 900, -100, 300, 300),
        (Action.PREEMPT, True, 100, -900, 300, 300),
    ],
)
def test_the_wait_of_a_gang_is_bounded(action, known, waited, due, bound, latest):
    """All in seconds from now. Four times its patience, once more for ends that are known."""
    due_since = None if due is None else NOW + due
    strategy = fake_strategy(action, created=1000.0 - waited, due_since=due_since)
    last_end = NOW if known else math.inf
    found = timing._wait(strategy.state, strategy.gang, action, last_end=last_end)
    since = -waited if due is None or action is Action.PREEMPT else due
    if action is Action.CONSOLIDATE and not known:
        bound = latest = since + PATIENCE
    assert tuple(each - NOW for each in found) == (since, bound, latest)


moments = st.integers(1, 20)


@given(
    st.integers(1, 5), st.dictionaries(moments, st.integers(0, 9), min_size=1), st.integers(0, 9)
)
def test_the_cheapest_of_all_moments_decides(pods, by_moment, lost_now):
    """Of victims that end at some moments, with what would be lost by evicting then."""
    losses = {float(at): float(lost) for at, lost in by_moment.items()} | {0.0: float(lost_now)}
    strategy = fake_strategy(
        ends={f"v{at}": float(at) for at in by_moment},
        lost=lambda unit, at: losses[at - NOW] if unit.gang.owner.name == first else 0.0,
        pods=pods,
    )
    first = f"v{next(iter(by_moment))}"
    best = min(losses, key=lambda at: (at * pods / 10 + losses[at], at))
    found = waits(strategy, *(victim(f"v{at}") for at in by_moment))
    assert found == (None if best == 0.0 else float(min(by_moment)))


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=4))
def test_a_wait_weighs_as_much_as_what_is_lacking_meanwhile(until, steps):
    relief = [(NOW + at, part / 4) for at, part in sorted(dict(steps).items())]
    waited = 0.0
    for second in range(until):
        passed = [part for at, part in relief if at <= NOW + second]
        waited += passed[-1] if passed else 1.0
    assert timing._weighted_wait(NOW, NOW + until, relief) == pytest.approx(waited)


@pytest.mark.parametrize(
    ("lost", "ran", "restart_cost", "waited"),
    [
        (10.0, 100, 0, None),  # a tenth of the cluster, for as long again as the victim has run
        (10.0, 50, 0, None),  # the wait has cost as much
        (10.1, 100, 0, RECONSIDERED),
        (10.1, 99, 2, None),  # what it costs to start again counts as time
        (11.0, 50, 0, RECONSIDERED),
        (19.0, 60, 0, 90.0),
        (99.0, 60, 0, 300.0),  # at most until its patience is over
    ],
)
def test_an_unknown_end_is_waited_for_until_the_wait_has_cost_as_much(
    lost, ran, restart_cost, waited
):
    """By a gang that was created 100 s ago."""
    rules = replace(RULES, restart_cost=float(restart_cost))
    strategy = fake_strategy(lost=lambda *_: lost, rules=rules)
    assert waits(strategy, victim(since=1000.0 - ran)) == waited


@pytest.mark.parametrize(
    ("lost", "ran", "waited"),
    [(5.0, (50, 100), None), (5.1, (50, 100), 60.0), (5.1, (50, 110), None)],
)
def test_pods_are_expected_to_run_for_as_long_again_as_the_oldest(lost, ran, waited):
    strategy = fake_strategy(lost=lambda *_: lost)
    assert waits(strategy, *(victim(since=1000.0 - each) for each in ran)) == waited


@pytest.mark.parametrize("action", [Action.PREEMPT, Action.RECLAIM])
@pytest.mark.parametrize(("lost", "waited"), [(9.0, None), (10.0, None), (10.5, 105.0)])
def test_the_patience_of_a_gang_is_the_least_that_it_waits(action, lost, waited):
    """Of one that begins to wait now, and a queue of victims that is below its share."""
    strategy = fake_strategy(
        action,
        created=1000.0,
        lost=lambda *_: lost,
        fair={"own": 1.0, "other": 3.0},
        deserved={"own": 1.0},
        allocated={"own": 1.0, "other": 2.0},
    )
    assert waits(strategy, victim(since=990.0)) == waited


def test_what_it_costs_to_start_again_counts_for_reclaimers():
    for restart_cost, waited in ((48.0, 101.0), (50.0, None)):
        strategy = fake_strategy(
            Action.RECLAIM,
            lost=lambda *_: 10.1,
            rules=replace(RULES, restart_cost=restart_cost),
            fair={"own": 1.0, "other": 3.0},
            deserved={"own": 1.0},
            allocated={"own": 1.0, "other": 2.0},
        )
        assert waits(strategy, victim(since=948.0)) == waited


def lacking(units=(), **fields):
    """What the gang of a reclaimer lacks, in GPUs."""
    strategy = fake_strategy(Action.RECLAIM, **fields)
    ends = [NOW + end for end in fields["ends"].values()]
    eviction = timing._Eviction(strategy, units, ends)
    wait = timing._wait(strategy.state, strategy.gang, Action.RECLAIM, last_end=max(ends))
    found = timing._lacking(eviction, wait) * 10
    least = timing._least_lacking(eviction) * 10
    assert least <= found + 1e-9, "a lower bound"
    return found


SHARES = {"fair": {"own": 4.0, "other": 4.0}, "deserved": {"own": 9.0}}
TWO = (victim("v", gpus=2),)
NEGLECTED = {"part_missed": 0.06}
BORROWS = {"deserved": {"own": 1.0}}


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"allocated": {"own": 1.0, "other": 4.0}}, 2.0),  # 3 + 1 lack, and 2 are released
        ({"allocated": {"own": 4.0, "other": 4.0}}, 1.0),
        ({"allocated": {"own": 9.0, "other": 4.0}}, 1.0),
        ({"allocated": {"own": 1.0, "other": 3.0}}, 1.0),  # the other queue would lack one
        ({"allocated": {"own": 1.0, "other": 1.0}}, 0.0),  # it would lack no more than it loses
        ({"allocated": {"own": 1.0, "other": 4.0}, "part_missed": 0.04}, 2.0),
        ({"allocated": {"own": 1.0, "other": 4.0}} | NEGLECTED, 2 * NEGLECTED_WEIGHT),
        ({"allocated": {"own": 2.0, "other": 4.0}} | BORROWS, 2 * SERVED_WEIGHT),
        ({"allocated": {"own": 1.0, "other": 4.0}} | BORROWS, 2.0),
        ({"allocated": {"own": 2.0, "other": 4.0}, "part_missed": 0.04} | BORROWS, 2.0),
        ({"allocated": {"own": 1.0, "other": 4.0}, "due": {"own": 1.0, "other": 4.0}}, 1.0),
        # A guarantee counts more than the fair share of others, unless they end soon enough.
        ({"allocated": {"own": 1.0}, "ends": {"v": 999.0}}, 2.0),
        ({"allocated": {"own": 1.0}, "ends": {"v": 301.0}}, 2.0),
        ({"allocated": {"own": 1.0}, "ends": {"v": 300.0}}, 0.0),
        ({"allocated": {"own": 1.0}, "ends": {"v": 300.0, "w": 999.0}}, 2.0),
        ({"allocated": {"own": 1.0}, "ends": {"v": 99.0}, "due_since": NOW - 350}, 0.0),
        ({"allocated": {"own": 2.0}, "ends": {"v": 999.0}} | BORROWS, 0.0),
    ],
)
def test_a_reclaimer_lacks_what_it_gains_without_what_others_lose(fields, gpus):
    fields = {"due_since": NOW - 100.0, "ends": {"v": 9.0}} | SHARES | fields
    assert lacking(TWO, **fields) == pytest.approx(gpus)


def relief(*releasing, **fields):
    """Ends beside the victims, in seconds from now, and the part that is lacking after each."""
    fields = {"fair": {"own": 4.0}, "allocated": {"own": 1.0, "other": 9.0}} | fields
    strategy = fake_strategy(Action.RECLAIM, releasing=releasing, **fields)
    found = timing._relief(timing._Eviction(strategy, (), ()))
    return [(at - NOW, pytest.approx(left)) for at, left in found]


@pytest.mark.parametrize(
    ("releasing", "fields", "found"),
    [
        ([], {}, []),
        ([(5, "other", 1)], {"pods": 0}, []),
        ([(5, "other", 4)], {}, [(5, 0.0)]),
        ([(5, "other", 1)], {}, [(5, 0.75)]),
        ([(5, "other", 2), (7, "other", 2), (9, "other", 1)], {}, [(5, 0.5), (7, 0.0)]),
        # Only in whole requests.
        ([(5, "other", 2), (7, "other", 1)], {"pods": 2}, [(5, 0.6), (7, 0.6)]),
        # Only from queues above their shares, and no more than that.
        ([(5, "third", 4)], {}, []),
        ([(5, "other", 4)], {"fair": {"own": 4.0, "other": 7.0}}, [(5, 0.5)]),
        ([(5, "other", 1), (6, "other", 1)], {"fair": {"own": 4.0, "other": 8.0}}, [(5, 0.75)]),
        # What ends is divided among all queues that lack something.
        ([(5, "other", 2)], {"fair": {"own": 4.0, "third": 4.0}}, [(5, 0.75)]),
        ([(5, "other", 4)], {"due": {"own": 1.0}}, [(5, 0.0)]),
        ([(5, "other", 4)], {"evicted": ("ends-0-0",)}, []),
    ],
)
def test_what_others_release_shortens_what_is_lacking(releasing, fields, found):
    assert relief(*releasing, **fields) == found


def test_what_others_release_counts_as_if_the_victims_stayed():
    """Without the eviction their queue would still be above its share."""
    strategy = fake_strategy(
        Action.RECLAIM, fair={"own": 4.0}, allocated={"own": 1.0}, releasing=[(5, "other", 2)]
    )
    assert timing._relief(timing._Eviction(strategy, (), ())) == []
    found = timing._relief(timing._Eviction(strategy, TWO, ()))
    assert [(at - NOW, left) for at, left in found] == [(5, 0.5)]


def test_once_others_have_released_enough_no_pod_is_evicted():
    shares = {
        "fair": {"own": 4.0},
        "deserved": {"own": 9.0},
        "allocated": {"own": 4.0, "other": 9.0},
    }
    for lost, evicts in ((0.9, True), (1.1, False)):
        strategy = fake_strategy(
            Action.RECLAIM,
            releasing=[(10, "other", 1)],
            lost=lambda *_, lost=lost: lost,
            due_since=NOW,
            **shares,
        )
        eviction = timing._Eviction(strategy, (victim(),), (math.inf,))
        wait = timing._wait(strategy.state, strategy.gang, Action.RECLAIM, last_end=math.inf)
        assert timing._costs_least_now(eviction, wait, ()) is evicts
