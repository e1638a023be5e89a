"""Trial placements one after the other leave evicted what the next evicts as well."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.actions.preempt import Preemption
from kai_py.plan.state.undo import Trial
from kai_py.plan.victims.trials import PODS_PER_PROBE, SharedEvictions, TrialPlacements


class Statement:
    """Evicts pods, and undoes that from the last one on; ``evictions``: how many there were."""

    def __init__(self):
        self.evicted, self.evictions, self._undo = [], 0, []

    def evict(self, victim):
        assert victim.member not in self.evicted
        self.evicted.append(victim.member)
        self.evictions += 1
        self._undo.append(self.evicted.pop)

    def trial(self):
        return Trial(self._undo)


def strategy():
    return Preemption(SimpleNamespace(statement=Statement()), pool=None, gang=None, request=None)


def units(count):
    return [SimpleNamespace(members=(number,), gang=None) for number in range(count)]


@given(st.lists(st.frozensets(st.integers(0, 12)), max_size=12))
def test_just_the_units_asked_for_are_evicted(wanted):
    ours, everything = strategy(), units(13)
    statement, shared = ours.state.statement, SharedEvictions(ours)
    for numbers in wanted:
        before = statement.evictions
        evicted = shared.change_to([unit for unit in everything if unit.members[0] in numbers])
        assert sorted(statement.evicted) == sorted(numbers)
        assert evicted == statement.evictions - before


def test_evictions_grow_with_what_differs_not_with_what_is_evicted():
    ours, left = strategy(), units(400)
    statement, shared = ours.state.statement, SharedEvictions(ours)
    shared.change_to(left)
    for unit in reversed(units(400)):
        number = unit.members[0]
        tried = [each for each in left if each.members[0] != number]
        shared.change_to(tried)
        if number % 2:  # it is needed, and comes last as in the reduction
            left = [*tried, next(each for each in left if each.members[0] == number)]
        else:
            left = tried
    assert statement.evictions < 15_000  # 400 trials without sharing evict 120,000


def test_a_trial_pays_for_what_it_evicts():
    ours = strategy()
    trials = TrialPlacements(ours, 100, is_exact=False)
    trials._place_without = bool
    many = units(2 * PODS_PER_PROBE)
    with trials.sharing_evictions():
        assert trials.fits(many)
        assert trials.probes == 100 - 1 - 2
        assert trials.fits(many[:-1])
        assert trials.probes == 100 - 1 - 2 - 1
    assert trials.fits(many)
    assert trials.probes == 100 - 1 - 2 - 1 - 1 - 2
    assert not ours.state.statement.evicted
