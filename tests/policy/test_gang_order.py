from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.gang_order import Ageing, gang_rank, in_turns
from tests.scenario import START
from tests.worlds import gang

NOW = START + 1000.0


def rank(each, ageing=None, served=0):
    return gang_rank(each, served, NOW, ageing)


def test_priority_then_need_then_age_then_name():
    old, young = gang("old", pods=1), gang("young", pods=1, created=5)
    assert rank(gang("first", pods=1, priority=1, created=9)) < rank(old)
    assert rank(young, served=0) < rank(old, served=1) < rank(old, served=2)
    assert rank(old) < rank(young)
    assert rank(gang("a", pods=1)) < rank(gang("b", pods=1))


def test_waiting_counts_as_priority_up_to_the_limit():
    old, urgent = gang("old", pods=1), gang("urgent", pods=1, priority=10, created=1000)
    assert rank(urgent) < rank(old)
    assert rank(old, Ageing(100.0)) < rank(urgent, Ageing(100.0)), "1000 s are 10 points; older"
    assert rank(urgent, Ageing(101.0)) < rank(old, Ageing(101.0))
    assert rank(urgent, Ageing(1.0, most=9)) < rank(old, Ageing(1.0, most=9))


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2000)), min_size=2, max_size=6),
    st.floats(1.0, 500.0),
)
def test_the_order_is_total_and_ageing_keeps_equals_in_order_of_age(drawn, seconds):
    gangs = [
        gang(f"g{i}", pods=1, priority=priority, created=created)
        for i, (priority, created) in enumerate(drawn)
    ]
    ranks = [rank(each, Ageing(seconds)) for each in gangs]
    assert len(set(ranks)) == len(ranks)
    for each, key in zip(gangs, ranks, strict=True):
        for other, other_key in zip(gangs, ranks, strict=True):
            if each.priority >= other.priority and each.created < other.created:
                assert key < other_key


def test_who_ran_out_comes_last_and_the_longest_ago_first():
    a, b, c = (gang(name, pods=1) for name in "abc")
    assert in_turns([a, b, c], {a.key: 7, b.key: 3}) == [[c], [b], [a]]
    assert in_turns([], {}) == []


def test_a_gang_is_not_younger_for_being_renamed():
    each = gang("a", pods=1)
    assert rank(each)[:3] == rank(replace(each, key="z"))[:3]
