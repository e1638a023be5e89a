from kai_py.policy.queue_order import gang_key, in_rotation
from tests.support.records import replace
from tests.support.worlds import gang


def rank(each, served=0, gained=0):
    return gang_key(each, served, gained)


def test_priority_then_need_then_age_then_name():
    old, young = gang("old", pods=1), gang("young", pods=1, created=5)
    assert rank(gang("first", pods=1, priority=1, created=9)) < rank(old)
    assert rank(young, served=0) < rank(old, served=1) < rank(old, served=2)
    assert rank(old) < rank(young)
    assert rank(gang("a", pods=1)) < rank(gang("b", pods=1))


def test_what_was_gained_by_waiting_counts_like_priority():
    old, urgent = gang("old", pods=1), gang("urgent", pods=1, priority=10, created=1000)
    assert rank(urgent) < rank(old)
    assert rank(urgent) < rank(old, gained=9)
    assert rank(old, gained=10) < rank(urgent), "alike, and older"


def test_gangs_that_ran_out_come_last_and_the_longest_ago_first():
    a, b, c = (gang(name, pods=1) for name in "abc")
    assert in_rotation([a, b, c], {a.key: 7, b.key: 3}) == [[c], [b], [a]]
    assert in_rotation([], {}) == []


def test_a_gang_is_not_younger_for_being_renamed():
    each = gang("a", pods=1)
    assert rank(each)[:3] == rank(replace(each, key="z"))[:3]
