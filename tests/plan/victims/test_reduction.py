"""Units that are not needed are dropped in runs: the same as one by one, in fewer trials."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.victims.reduction import VictimReduction, _Needed

COUNTED = SimpleNamespace(count=lambda _unit, _sign: None, is_enough=True)


def unit(number):
    gang = SimpleNamespace(key=f"gang-{number}")
    return SimpleNamespace(number=number, gang=gang, members=(), leaves_below_min=())


def dropped(units, suffices):
    """What is dropped of ``units``, and how often ``suffices`` is asked of the others."""
    asked = []

    def suffice(left):
        asked.append(None)
        return suffices({each.number for each in left})

    reduction = VictimReduction.__new__(VictimReduction)
    reduction._suffice = suffice
    needed = _Needed(COUNTED, {id(each): each for each in units})
    found = reduction._drop_in_runs(needed, units)
    assert {id(each) for each in found} == {id(each) for each in units} - set(needed.units)
    return [each.number for each in found], len(asked)


def one_by_one(count, suffices):
    left = set(range(count))
    for number in range(count):
        if suffices(left - {number}):
            left.remove(number)
    return [number for number in range(count) if number not in left]


sets = st.lists(st.frozensets(st.integers(0, 29), max_size=6), min_size=1, max_size=4)


@given(st.integers(0, 30), sets)
def test_runs_drop_what_would_be_dropped_one_by_one(count, enough):
    """``enough``: sets of units each of which is enough, so that more never harm."""

    def suffices(left):
        return any(each <= left for each in enough)

    found, _ = dropped([unit(number) for number in range(count)], suffices)
    assert found == (one_by_one(count, suffices) if suffices(set(range(count))) else [])


def test_trials_grow_with_what_is_needed_not_with_what_was_taken():
    needed = {100, 300}
    found, trials = dropped([unit(number) for number in range(400)], needed.issubset)
    assert len(found) == 398
    assert trials <= 60
    found, trials = dropped([unit(number) for number in range(40)], lambda left: len(left) == 40)
    assert (found, trials) == ([], 40)
