"""Victims against brute force: of all sets that let the gang fit, the one that loses least."""

import random
from itertools import combinations
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.victims import reduction, selection
from kai_py.plan.victims.minimise import is_cheapest
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.worlds import gang, world

NOW, RESTART = 40_000.0, 60.0
RULES = LossRules(by_loss=True, restart_cost=RESTART)
QUEUES = (
    QueueInfo(name="owner", deserved={"gpu": 99.0}),
    QueueInfo(name="guest", deserved={"gpu": 0.0}),
)


def running(chance):
    """Up to three nodes, and gangs on most of their GPUs: nodes, GPUs, seconds that they ran."""
    nodes = {name: chance.randint(2, 4) for name in "abc"[: chance.randint(1, 3)]}
    free, gangs = dict(nodes), []
    for _ in range(chance.randint(3, 8)):
        gpus, where = chance.randint(1, 3), []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            fitting = [name for name in free if free[name] - gpus * where.count(name) >= gpus]
            where += [chance.choice(fitting)] if fitting else []
        if where:
            gangs.append((where, gpus, chance.randint(1, 600) * 60.0))
            free = {name: left - gpus * where.count(name) for name, left in free.items()}
    return nodes, gangs


def lost(gangs, chosen):
    return sum(len(gangs[i][0]) * gangs[i][1] * (gangs[i][2] + RESTART) for i in chosen)


def least_lost(nodes, gangs, count, gpus):
    """The least that any set of victims loses; None where none suffices."""

    def fits(chosen):
        free = dict(nodes)
        for i, (where, used, _) in enumerate(gangs):
            for name in () if i in chosen else where:
                free[name] -= used
        return sum(left // gpus for left in free.values()) >= count

    sizes = range(len(gangs) + 1)
    sets = (each for size in sizes for each in combinations(range(len(gangs)), size))
    return min((lost(gangs, each) for each in sets if fits(each)), default=None)


def decide(nodes, victims, count, gpus, floors=None):
    """The plan for a gang of ``count`` pods; ``floors``: minMember of the gangs, all if None."""
    gangs = [
        gang(
            f"r{i}",
            nodes=where,
            gpus=used,
            queue="guest",
            created=NOW - ran,
            floor=None if floors is None else floors[i],
        )
        for i, (where, used, ran) in enumerate(victims)
    ]
    new = gang("new", pods=count, gpus=gpus, queue="owner", created=NOW - 10)
    snapshot = world(nodes, *gangs, new, queues=QUEUES).snapshot(NOW)
    return run_cycle(snapshot, CycleSettings(loss_rules=RULES), CycleMemory(ClusterDevices()))


def check(seed):
    chance = random.Random(seed)
    nodes, victims = running(chance)
    count, gpus = chance.randint(1, 2), chance.randint(1, 3)
    plan = decide(nodes, victims, count, gpus)
    if any(each.relocated_to for each in plan.evictions):
        return
    chosen = {int(each.pod.name[1:].partition("-")[0]) for each in plan.evictions}
    least = least_lost(nodes, victims, count, gpus)
    assert bool(plan.placements or plan.nominations) == (least is not None), seed
    assert lost(victims, chosen) == pytest.approx(least or 0.0), seed


@pytest.mark.parametrize(
    "first",
    [*range(0, 300, 50), *(pytest.param(n, marks=pytest.mark.slow) for n in range(300, 1000, 100))],
)
def test_no_set_of_victims_would_lose_less(first):
    for seed in range(first, first + (50 if first < 300 else 100)):
        check(seed)


@pytest.mark.parametrize("seed", [1623, 1879])
def test_a_gang_on_several_nodes_may_be_cheaper_than_others_on_each(seed):
    check(seed)


def noted(known, *given):
    known.append(is_cheapest(*given))
    return known[-1]


@pytest.mark.parametrize("elastic", [False, True])
def test_victims_that_are_known_to_be_cheapest_are_those_of_a_whole_search(elastic):
    """Where pods lose equally much, too, and where gangs may lose some of their pods."""
    known = []
    for seed in range(examples(120)):
        chance = random.Random(seed)
        nodes, victims = running(chance)
        minutes = chance.choice((1, 3, 600))
        victims = [(where, used, 1.0 + ran % (60 * minutes)) for where, used, ran in victims]
        floors = [chance.randint(0, len(each[0])) for each in victims] if elastic else None
        case = nodes, victims, chance.randint(1, 2), chance.randint(1, 3), floors
        with patch.object(reduction, "is_cheapest", lambda *_: False):
            expected = decide(*case)
        with patch.object(reduction, "is_cheapest", lambda *given: noted(known, *given)):
            assert repr(decide(*case)) == repr(expected), seed
    assert any(known)


@pytest.mark.parametrize("elastic", [False, True])
def test_victims_do_not_depend_on_how_many_candidates_are_counted_at_once(elastic):
    evicted = 0
    for seed in range(examples(120)):
        chance = random.Random(seed)
        nodes, victims = running(chance)
        floors = [chance.randint(0, len(each[0])) for each in victims] if elastic else None
        case = nodes, victims, chance.randint(1, 3), chance.randint(1, 3), floors
        with patch.object(selection, "READ_AHEAD", 0.0):
            expected = decide(*case)
        with patch.object(selection, "READ_AHEAD", 5.0):
            assert repr(decide(*case)) == repr(expected), seed
        evicted += len(expected.evictions)
    assert evicted


def test_what_part_of_a_gang_costs_is_not_known_from_its_unit():
    """Its pods may be evicted one by one, each at a lower cost than the unit."""
    single, several = gang("single", nodes="a"), gang("several", nodes="bbb", floor=1)
    needed = VictimUnit(single, single.members, ("",))
    units = [needed, VictimUnit(several, several.members[:2], ("",), is_partial=True)]
    costs = SimpleNamespace(
        of=lambda chosen: (5.0, 1, len(chosen)), of_unit=lambda unit: (9.0, 1, len(unit.members))
    )
    assert is_cheapest([needed], units[:1], costs)
    assert not is_cheapest([needed], units, costs)
