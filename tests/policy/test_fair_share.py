from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.fair_share import fair_share, usable_demand
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.sibling_division import running_sums, water_fill
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo
from tests.policy.exact_shares import pour, shares
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.records import replace

INF = float("inf")
amount = st.one_of(st.integers(0, 20), st.sampled_from([0.3, 0.9, 2.5]))
unlimited = st.just(INF)


@st.composite
def forests(draw, usage=True):
    """{name: queue}; parents stand before their children, pods only in leaves."""
    names = [f"q{i}" for i in range(draw(st.integers(1, 9)))]
    queues = {}
    for i, name in enumerate(names):
        queues[name] = {
            "parent": draw(st.sampled_from(["", *names[:i]])),
            "deserved": draw(st.one_of(amount, unlimited)),
            "max": draw(st.one_of(amount, unlimited)),
            "weight": draw(st.sampled_from([0, 1, 1, 2, 0.5, 7])),
            "priority": draw(st.sampled_from([50, 100, 100, 200])),
            "usage": draw(st.sampled_from([0, 0.1, 0.5, 1])) if usage else 0,
            "demand": 0,
        }
    for name in names:
        if all(queue["parent"] != name for queue in queues.values()):
            queues[name]["demand"] = draw(amount)
    return queues


totals = st.one_of(st.integers(0, 40), st.sampled_from([0.5, 7.25]))
weights_of_usage = st.sampled_from([0.0, 0.5, 1.0, 2.0])


def tree(queues):
    specs = [
        QueueInfo(
            name=name,
            parent=queue["parent"],
            deserved={"gpu": queue["deserved"]},
            max={"gpu": queue["max"]},
            weight=queue["weight"],
            priority=queue["priority"],
        )
        for name, queue in queues.items()
    ]
    return build_queue_table(specs, ("gpu",))[0]


def column(table, queues, key):
    return np.array([[queues[name][key] for name in table.names]], np.float64)


def divide(queues, total, rules=NATIVE):
    table = tree(queues)
    demand = table.subtree_sums(column(table, queues, "demand"))
    usage = column(table, queues, "usage")
    return table, demand, fair_share(table, np.array([float(total)]), demand, rules, usage)


def by_name(table, row):
    return dict(zip(table.names, row[0].tolist(), strict=True))


def plain(**queues):
    """Root queues from (deserved, weight, priority, demand)."""
    keys = ("deserved", "weight", "priority", "demand")
    common = {"parent": "", "max": INF, "usage": 0}
    return {name: common | dict(zip(keys, q, strict=True)) for name, q in queues.items()}


@given(forests(), totals, weights_of_usage)
def test_equals_exact_water_filling(queues, total, k):
    table, _, ours = divide(queues, total, replace(NATIVE, usage_weight=k))
    exact = {name: float(share) for name, share in shares(queues, total, k).items()}
    assert by_name(table, ours.fair) == pytest.approx(exact, rel=1e-9, abs=1e-8)


@given(forests(), totals)
def test_never_above_demand_maximum_or_parent(queues, total):
    table, demand, ours = divide(queues, total)
    fair = ours.fair[0]
    assert (fair <= np.minimum(demand, table.max)[0] + 1e-8).all()
    assert fair[table.depth == 0].sum() <= total + 1e-8
    for queue in np.flatnonzero(~table.is_leaf):
        kin = slice(table.child_start[queue], table.child_end[queue])
        assert fair[kin].sum() <= fair[queue] + 1e-8


@given(forests(), totals, weights_of_usage)
def test_nothing_remains_that_a_leaf_could_use(queues, total, k):
    table, demand, ours = divide(queues, total, replace(NATIVE, usage_weight=k))
    usable = usable_demand(table, demand)[0]
    given_out = ours.fair[0, table.is_leaf].sum()
    wanted = usable[table.depth == 0].sum()
    assert given_out == pytest.approx(min(total, wanted), abs=1e-7)
    assert ours.remaining[0] == pytest.approx(total - given_out, abs=1e-7)


@given(forests(usage=False), totals, st.data())
def test_more_weight_never_means_less(queues, total, data):
    name = data.draw(st.sampled_from(sorted(queues)))
    table, _, before = divide(queues, total)
    queues[name]["weight"] += 3
    after = divide(queues, total)[2]
    position = table.positions[name]
    assert after.fair[0, position] >= before.fair[0, position] - 1e-8


@given(forests(), totals, st.randoms(use_true_random=False), st.sampled_from([NATIVE, KAI]))
def test_listing_order_does_not_matter(queues, total, chance, rules):
    listed = list(queues.items())
    chance.shuffle(listed)
    table, _, first = divide(queues, total, rules)
    again, _, second = divide(dict(listed), total, rules)
    assert table.names == again.names
    assert first.fair.tolist() == second.fair.tolist()


def test_guarantee_of_the_weightless_keeps_its_parent_from_taking_more():
    queues = plain(rich=(0, 1, 100, 0), poor=(0, 1, 100, 6))
    queues["child"] = {**queues["rich"], "parent": "rich", "weight": 0, "deserved": 1, "demand": 9}
    table, _, ours = divide(queues, 8)
    assert by_name(table, ours.fair) == {"rich": 1, "poor": 6, "child": 1}


def test_w6_a_priority_is_finished_before_the_next():
    queues = plain(high1=(0, 1, 200, 3), high2=(0, 1, 200, 3), low=(0, 1, 100, 3))
    table, _, ours = divide(queues, 3)
    assert by_name(table, ours.fair) == {"high1": 1.5, "high2": 1.5, "low": 0}
    kai = divide(queues, 3, KAI)[2]
    assert by_name(table, kai.fair) == {"high1": 1, "high2": 1, "low": 1}


def test_w7_demand_below_one_unit_is_not_rounded():
    table, _, ours = divide(plain(**{f"q{i}": (0, 1, 100, 0.9) for i in range(10)}), 8)
    assert by_name(table, ours.fair) == pytest.approx({f"q{i}": 0.8 for i in range(10)})


def test_w8_guarantees_above_the_total_shrink_and_say_so():
    queues = plain(a=(8, 1, 100, 8), b=(8, 1, 100, 8))
    table, _, ours = divide(queues, 10)
    assert by_name(table, ours.fair) == {"a": 5, "b": 5}
    assert ours.scaled.all()
    assert by_name(table, divide(queues, 10, KAI)[2].fair) == {"a": 8, "b": 8}


def test_shrinking_takes_nothing_from_queues_that_request_less_than_their_part():
    table, _, ours = divide(plain(a=(8, 1, 100, 4), b=(8, 1, 100, 8)), 10)
    assert by_name(table, ours.fair) == {"a": 4, "b": 6}
    assert by_name(table, ours.scaled) == {"a": False, "b": True}


def test_an_unlimited_guarantee_is_never_reported_as_scaled():
    table, _, ours = divide(plain(a=(INF, 1, 100, 8), b=(INF, 1, 100, 8)), 10)
    assert by_name(table, ours.fair) == {"a": 5, "b": 5}
    assert not ours.scaled.any()


def test_past_usage_lowers_the_claim_on_surplus_only():
    queues = plain(hog=(2, 1, 100, 20), new=(0, 1, 100, 20))
    queues["hog"]["usage"] = 0.8
    table, _, ours = divide(queues, 12)
    assert by_name(table, ours.deserved) == {"hog": 2, "new": 0}
    assert by_name(table, ours.weight_share) == pytest.approx({"hog": 1 / 6, "new": 5 / 6})
    assert by_name(table, ours.surplus) == pytest.approx({"hog": 10 / 6, "new": 50 / 6})


def test_surplus_that_past_usage_leaves_unclaimed_is_still_given():
    queues = plain(hog=(0, 1, 100, 20), small=(0, 1, 100, 3))
    queues["hog"]["usage"] = 1.0
    table, _, ours = divide(queues, 10)
    assert by_name(table, ours.fair) == {"hog": 7, "small": 3}


def test_no_queues_leave_everything():
    table = build_queue_table([], ("gpu",))[0]
    for rules in (NATIVE, KAI):
        ours = fair_share(table, np.array([5.0]), np.zeros((1, 0)), rules)
        assert ours.remaining.tolist() == [5]


@pytest.mark.parametrize("rules", [NATIVE, KAI])
def test_a_thousand_queues_take_milliseconds(rules):
    chance = np.random.default_rng(7)
    specs = [
        QueueInfo(
            name=f"q{i}",
            parent="" if i < 50 else f"q{chance.integers(0, 50)}",
            deserved={"gpu": float(chance.integers(0, 9)), "memory": 0},
            weight=float(chance.integers(1, 5)),
            priority=int(chance.choice([50, 100])),
        )
        for i in range(1000)
    ]
    table = build_queue_table(specs, ("gpu", "cpu", "memory"))[0]
    demand = table.subtree_sums(chance.integers(0, 30, (3, 1000)).astype(float) * table.is_leaf)
    with cpu_limit(processor_seconds(0.25)):
        ours = fair_share(table, np.array([4000.0, 20000.0, 9000.0]), demand, rules)
    wanted = demand[:, table.depth == 0].sum(axis=1)
    assert wanted[1] < 20000
    assert ours.fair[:, table.depth == 0].sum(axis=1) == pytest.approx([4000, wanted[1], 9000])


competitor = st.tuples(
    st.integers(0, 3), st.sampled_from([0, 1e-3, 1, 3, 1e6]), st.sampled_from([0, 0.3, 2, 7, 1e12])
)


@given(
    st.lists(competitor, max_size=20),
    st.lists(st.sampled_from([0.0, 0.5, 6.0, 1e13]), min_size=4, max_size=4),
)
def test_every_group_is_filled_as_if_it_were_alone(competitors, budgets):
    columns = np.array(competitors, np.float64).reshape(-1, 3).T
    group, (rate, cap) = columns[0].astype(np.int64), columns[1:]
    filled = water_fill(group, np.array(budgets), rate, cap)
    for number, budget in enumerate(budgets):
        members = [i for i, (of, _, _) in enumerate(competitors) if of == number]
        rates = {i: as_fraction(rate[i]) for i in members}
        exact = pour(as_fraction(budget), rates, {i: as_fraction(cap[i]) for i in members})
        expected = [float(exact[i]) for i in members]
        assert filled[members].tolist() == pytest.approx(expected, rel=1e-9, abs=2e-9)


def as_fraction(number):
    return Fraction(float(number))


def test_what_suffices_for_all_is_given_exactly():
    cap = np.array([0.1, 0.2, 1 / 3])
    group = np.zeros(3, np.int64)
    filled = water_fill(group, np.array([cap.sum()]), np.array([3.0, 0.7, 11.0]), cap)
    assert filled.tolist() == cap.tolist()


def test_running_sums_start_again_in_each_group():
    sums = running_sums(np.array([0, 0, 2, 2, 2]), np.array([1.0, 2, 3, 4, 5]))
    assert sums.tolist() == [0, 1, 0, 3, 7]


def test_resources_are_filled_side_by_side_as_each_would_be_alone():
    group = np.array([1, 0, 1, 1])
    budgets = np.array([[3.0, 4.0], [1e15, 5e14], [0.0, 1.0]])
    rates = np.array([[1.0, 2, 3, 0], [5, 1, 0, 1], [1, 1, 1, 1]])
    caps = np.array([[3.0, 9, 1.5, 1], [1e15, 7, 3, 0.1], [0.1, 0.2, 0.4, 0.8]])
    with np.errstate(divide="raise", invalid="raise"):
        filled = water_fill(group, budgets, rates, caps)
    alone = [water_fill(group, *row) for row in zip(budgets, rates, caps, strict=True)]
    assert filled.tolist() == [row.tolist() for row in alone]
    assert filled[0].tolist() == [2.5, 3.0, 1.5, 0.0]
