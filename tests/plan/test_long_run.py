"""Thousands of cycles while gangs come and go: nothing is taken back at once, all comes to rest.

Every plan is carried out before the next is made. Chance is seeded, so a failure can be repeated.
"""

import random

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import NATIVE
from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import World, gang, replayed

MIN_RUNTIME = 300.0
CYCLE = 20.0
BUSY, QUIET = 40, 60
"""Cycles with changes, then without: everything must be at rest before they are over."""
PARENTS = {"a": "", "b": "", "a1": "a", "a2": "a", "b1": "b"}
SETTINGS = CycleSettings(
    rules=replace(
        NATIVE, default_preempt_min_runtime=MIN_RUNTIME, default_reclaim_min_runtime=MIN_RUNTIME
    )
)


def lived(world, plan, now):
    """The world once ``plan`` is carried out; pods that found a place started ``now``."""
    after = replayed(world, plan)
    placed = {p.pod.uid for each in plan.placements for p in each.pods}
    placed |= {each.pod.uid for each in (*plan.nominations, *plan.evictions)}

    def dated(member):
        starts = member.pod.uid in placed and member.state is PodState.BOUND
        return replace(member, bound_since=START + now) if starts else member

    gangs = (replace(g, members=tuple(dated(m) for m in g.members)) for g in after.gangs)
    return replace(after, gangs=tuple(gangs))


def changed(chance, world, number, now):
    """Now and then a gang ends and another arrives."""
    gangs = list(world.gangs)
    if gangs and chance.random() < 0.2:
        gangs.pop(chance.randrange(len(gangs)))
    if chance.random() < 0.4:
        pods = chance.randint(1, 4)
        gangs.append(
            gang(
                f"g{number}",
                pods=pods,
                gpus=chance.randint(1, 4),
                floor=chance.randint(1, pods),
                queue=chance.choice(("a1", "a2", "b1")),
                priority=chance.randint(0, 2),
                created=now,
                preemptible=chance.random() < 0.8,
            )
        )
    return replace(world, gangs=tuple(gangs))


def start(chance):
    queues = tuple(
        QueueInfo(
            name=name, parent=parent, deserved={"gpu": float(chance.randint(0, 4 if parent else 8))}
        )
        for name, parent in PARENTS.items()
    )
    return World({f"n{i}": chance.randint(4, 8) for i in range(4)}, (), queues)


def cores_lost(after, plan):
    """(loser, winner) of evictions that left a gang below its floor."""
    short = {
        each.key
        for each in after.gangs
        if sum(m.state is PodState.BOUND for m in each.members) < each.tree.min_members
    }
    return {
        (each.gang, each.preemptor)
        for each in plan.evictions
        if each.gang in short and each.action in (Action.PREEMPT, Action.RECLAIM)
    }


def played(seed):
    """Number of cycles; raises AssertionError where a rule is broken."""
    chance, memory = random.Random(seed), CycleMemory(ClusterDevices())
    world, won = start(chance), {}
    for number in range(BUSY + QUIET):
        now = 1000.0 + number * CYCLE
        if number < BUSY:
            world = changed(chance, world, number, now)
        plan = run_cycle(world.snapshot(now), SETTINGS, memory)
        after = lived(world, plan, now)
        for loser, winner in sorted(cores_lost(after, plan)):
            since = now - won.get((winner, loser), -MIN_RUNTIME)
            assert since >= MIN_RUNTIME, f"{winner} takes back from {loser} after {since} s"
            ran = START + now - next(g.started for g in world.gangs if g.key == loser)
            assert ran >= MIN_RUNTIME, f"{winner} takes capacity of {loser}, which ran {ran} s"
            won[loser, winner] = now
        world = after
    assert plan.is_empty, f"seed {seed}: no rest after {QUIET} cycles"
    return BUSY + QUIET


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param(0, 20, marks=pytest.mark.slow),
        pytest.param(20, 50, marks=pytest.mark.nightly),
    ],
)
def test_thousands_of_cycles_undo_nothing_at_once_and_come_to_rest(first: int, end: int):
    assert sum(played(seed) for seed in range(first, end)) == 100 * (end - first)
