"""Sums of charges that come and go."""

from functools import reduce
from operator import add

from hypothesis import given
from hypothesis import strategies as st

from kai_py.snapshot.queue_sums import QueueSums

CHARGES = st.tuples(
    st.sampled_from("ab"), st.dictionaries(st.sampled_from("xyz"), st.floats(0, 1e15), max_size=3)
)


@given(kept=st.lists(CHARGES), passing=st.lists(CHARGES))
def test_what_is_gone_leaves_no_entry(kept, passing):
    sums = QueueSums()
    for charge in (*passing, *kept):
        sums.add(*charge)
    for charge in passing:
        sums.remove(*charge)
    left = sums.snapshot()
    charged = {queue for queue, _ in kept}
    assert {queue: set(amounts) for queue, amounts in left.items()} == {
        queue: {r for q, each in kept if q == queue for r in each} for queue in charged
    }
    for charge in kept:
        sums.remove(*charge)
    assert sums.snapshot() == {}


@given(charges=st.lists(CHARGES))
def test_sums_are_sums(charges):
    sums = QueueSums()
    for charge in charges:
        sums.add(*charge)
    for queue, amounts in sums.snapshot().items():
        for resource, amount in amounts.items():
            # ``sum`` corrects the errors of rounding from Python 3.12 on.
            charged = (each.get(resource, 0.0) for q, each in charges if q == queue)
            assert amount == reduce(add, charged, 0.0)
