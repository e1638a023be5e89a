"""The candidates for relocation are laid out by node once, and kept up to date by evictions."""

import random

import numpy as np
import pytest

from kai_py.plan.actions import consolidate
from kai_py.plan.plan import Stage
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.units import VictimUnit
from kai_py.plan.victims.units_by_node import UnitsByNode
from tests.support.examples import examples
from tests.support.scenario import (
    budget,
    cluster,
    job,
    moves,
    node,
    nominated,
    pod,
    queue,
)
from tests.support.worlds import gang, world


def scattered(seed: int):
    """Nodes with a few pods each, of elastic gangs and alone, and gangs that need whole nodes."""
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(chance.randint(3, 7))]
    objects = [queue("a", 40), queue("b", 40), *(node(name, 8) for name in names)]
    least = {"scheduling.kai.io/min-available": str(chance.randint(1, 2))}
    wide = [job(f"wide{i}", 3, chance.choice("ab"), **least) for i in range(2)]
    for i in range(chance.randint(4, 12)):
        gang = chance.choice([*wide, None, None])
        owned = {"owner": gang} if gang else {"queue": chance.choice("ab")}
        labels = {"app": "web"} if chance.random() < 0.5 else {}
        gpus, at, created = chance.randint(1, 2), chance.choice(names), float(i)
        objects.append(pod(f"run-{i}", gpus, node=at, created=created, labels=labels, **owned))
    for i in range(chance.randint(2, 6)):
        gpus, priority = chance.choice([4, 6, 8]), chance.choice([0, 0, 9])
        objects.append(pod(f"new-{i}", gpus, queue=chance.choice("ab"), priority=priority))
    return cluster(*objects, *wide, budget(chance.randint(0, 3)))


def test_evictions_leave_what_would_be_laid_out_again(monkeypatch: pytest.MonkeyPatch):
    kept, compared = consolidate._by_node, []

    def checked(state, pool: VictimPool) -> UnitsByNode:
        units = kept(state, pool)
        listed = (unit for each in pool.queues() for unit in pool.units(each))
        again = UnitsByNode(state, listed, pool.costs)
        mask = np.ones(len(state.snapshot.nodes), dtype=bool)
        for member in {
            m.shape.number: m for each in state.snapshot.gangs.values() for m in each.members
        }.values():
            ordered = [in_order(each, member, mask) for each in (units, again)]
            assert ordered[0] == ordered[1]
        compared.append(len(state.statement.evicted))
        return units

    monkeypatch.setattr(consolidate, "_by_node", checked)
    for seed in range(examples(150)):
        assert not [
            each for each in scattered(seed).plan().unplaced if each.stage is Stage.SCHEDULER_ERROR
        ]
    assert sum(map(bool, compared)) > len(compared) // 8


def in_order(units: UnitsByNode, member, mask):
    return [[m.pod.name for m in unit.members] for unit in units.in_order(member, mask)]


def test_a_node_that_fits_once_all_have_left_comes_before_one_that_never_does():
    running = [gang(f"{at}{i}", node=at, pods=1, created=i) for i in range(3) for at in "ba"]
    late = [gang("b3", node="b", pods=1, created=9)]
    waits = gang("waits", pods=1, gpus=5)
    state = world({"a": 5, "b": 4}, *running, *late, waits).session()
    units = [VictimUnit(each, each.members) for each in (*running, *late)]
    laid_out = UnitsByNode(state, units, EvictionCosts(state))
    ordered = in_order(laid_out, waits.members[0], np.ones(2, dtype=bool))
    assert [names[0][0] for names in ordered] == [*"aaa", *"bbbb"]


def test_all_gangs_of_an_action_use_one_layout(monkeypatch: pytest.MonkeyPatch):
    laid_out: list[int] = []

    def counted(state, *given):
        laid_out.append(len(state.statement.evicted))
        return UnitsByNode(state, *given)

    monkeypatch.setattr(consolidate, "UnitsByNode", counted)
    nodes = [node(f"n{i}", 4) for i in range(12)]
    running = [pod(f"run-{i}", 1, queue="team", node=f"n{i}", created=float(i)) for i in range(12)]
    waiting = [pod(f"new-{i}", 4, queue="team", priority=i) for i in range(4)]
    plan = cluster(*nodes, queue("team", 100), *running, *waiting).plan()
    assert len(moves(plan)) == len(nominated(plan)) == 4
    assert len(laid_out) == 1
