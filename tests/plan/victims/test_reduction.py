"""Units that are not needed are dropped in runs: the same as one by one, in fewer trials."""

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.plan.victims.reduction import VictimReduction, _Needed
from kai_py.plan.victims.trials import UNREDUCED
from tests.support.records import replace
from tests.support.worlds import GPU, gang, world

COUNTED = SimpleNamespace(count=lambda _units, _sign: None, is_enough=True)


def unit(number):
    gang = SimpleNamespace(key=f"gang-{number}")
    return SimpleNamespace(number=number, gang=gang, members=(), leaves_below_min=())


def dropped(units, suffices, trials=None):
    """What is dropped of ``units``, and how often ``suffices`` is asked of the others."""
    asked, trials = [], trials or few_trials(1_000_000)

    def suffice(left):
        asked.append(None)
        trials.probes -= 1
        return suffices({each.number for each in left})

    reduction = VictimReduction.__new__(VictimReduction)
    reduction._suffice, reduction._trials = suffice, trials
    needed = _Needed(COUNTED, {id(each): each for each in units})
    found = reduction._drop_in_runs(needed, units)
    assert {id(each) for each in found} == {id(each) for each in units} - set(needed.units)
    return [each.number for each in found], len(asked)


def few_trials(probes):
    return SimpleNamespace(is_exact=False, probes=probes, ran_out=False)


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


@given(st.integers(1, 30), sets, st.integers(1, 30))
def test_few_probes_are_spread_over_all_units_and_it_is_said(count, enough, probes):
    def suffices(left):
        return any(each <= left for each in enough)

    trials = few_trials(probes)
    found, asked = dropped([unit(number) for number in range(count)], suffices, trials)
    assert asked <= probes + 1
    assert trials.ran_out or found == one_by_one(count, suffices)


def test_what_is_left_over_at_the_end_is_found_with_few_probes():
    trials = few_trials(8)
    found, _ = dropped([unit(number) for number in range(64)], set(range(56)).issubset, trials)
    assert found == list(range(56, 64))
    assert trials.ran_out


SHAPES = ((1, 2), (2, 3), (4, 2), (8, 4), (3, 1))
"""GPUs and cores of the pods that want capacity."""


def mixed_world(seed, probes):
    """Twelve nodes of eight GPUs full of small gangs; one of several shapes may evict them."""
    draw, running = Random(seed), []
    free = {f"n{i}": 8 for i in range(12)}
    nodes = dict(free)
    while any(free.values()):
        name = draw.choice([each for each in free if free[each]])
        gpus = min(free[name], draw.choice([1, 1, 2, 3]))
        free[name] -= gpus
        number, created = len(running), draw.randint(0, 400)
        running.append(gang(f"r{number:04d}", gpus=gpus, node=name, pods=1, created=created))
    wants = gang("w", pods=draw.randint(2, 8), priority=5, created=1000)
    pods = tuple(of_shape(each, *draw.choice(SHAPES)) for each in wants.members)
    wants = replace(wants, members=pods)
    actions = (Action.ALLOCATE, Action.PREEMPT)
    return world(nodes, *running, wants, actions=actions, victim_probes_per_gang=probes)


def of_shape(member, gpus, cores):
    requests = {"cpu": cores * 1000.0, "pods": 1.0, GPU: float(gpus)}
    shape = replace(member.shape, number=100 * gpus + cores, requests=requests)
    return replace(member, shape=shape, charge={"gpu": float(gpus), "cpu": cores * 1000.0})


def evictions(probes):
    return [each for seed in range(30) for each in evictions_of(seed, probes)]


def evictions_of(seed, probes):
    return mixed_world(seed, probes).plan(5000.0).evictions


@pytest.mark.slow
def test_few_probes_evict_few_pods_more_and_it_is_said():
    least, few = evictions(500), evictions(10)
    assert len(least) < len(few) < 1.15 * len(least)
    assert not any(UNREDUCED in each.reason for each in least)
    more = [s for s in range(30) if len(evictions_of(s, 10)) > len(evictions_of(s, 500))]
    assert more
    assert all(UNREDUCED in each.reason for s in more for each in evictions_of(s, 10))
