"""Ten rounds without arrivals: what one cycle starts or moves, the next does not evict.

Where no rule waits for a time, no round evicts any pod after one that has decided nothing.

Promises are kept (the memory of the scheduler goes on) or forgotten, as after crashes.
"""

import random
from collections import Counter

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.lost_work import NO_LOSS_RULES, LossRules
from kai_py.snapshot.tables.queues import QueueInfo
from tests.plan.test_long_run import lived
from tests.support.records import replace
from tests.support.worlds import World, gang

ROUNDS, SECONDS, NOW = 10, 20.0, 1000.0
WEIGHED = LossRules(
    patience=600.0,
    settling=ROUNDS * SECONDS,
    evictions_per_day=2,
    restart_cost=60.0,
    reserve_after=300.0,
    by_loss=True,
)


def drawn(chance):
    """Three queues, a few nodes, gangs that run wherever they fit and others that wait."""
    queues = tuple(
        QueueInfo(name=name, deserved={"gpu": float(chance.randint(0, 6))}) for name in "abc"
    )
    nodes = {f"n{i}": chance.randint(2, 6) for i in range(chance.randint(1, 4))}
    free, gangs = dict(nodes), []
    for number in range(chance.randint(3, 10)):
        pods, gpus = chance.randint(1, 3), chance.randint(1, 3)
        fitting = [name for name, left in free.items() for _ in range(left // gpus)]
        runs = chance.random() < 0.7 and len(fitting) >= pods
        where = chance.sample(fitting, pods) if runs else [""] * pods
        for name in where if runs else ():
            free[name] -= gpus
        made = gang(
            f"g{number}",
            pods=pods,
            gpus=gpus,
            floor=chance.randint(1, pods),
            queue=chance.choice("abc"),
            priority=chance.randint(0, 1),
            created=chance.randint(0, 900),
        )
        gangs.append(replace(running_on(made, where), expected_runtime=chance.randint(1000, 3000)))
    return World(nodes, tuple(gangs), queues)


def running_on(made, where):
    like = gang("x", nodes=[name if name else "-" for name in where], gpus=1)
    members = tuple(
        replace(member, node=other.node, state=other.state, bound_since=member.created)
        if other.node
        else member
        for member, other in zip(made.members, like.members, strict=True)
    )
    return replace(made, members=members)


def course(world, kept, rules=WEIGHED):
    """The plans of ten rounds, each carried out before the next."""
    memory, now = CycleMemory(ClusterDevices()), NOW
    for _ in range(ROUNDS):
        plan = run_cycle(world.snapshot(now), CycleSettings(loss_rules=rules), memory)
        yield plan
        world, now = lived(world, plan, now), now + SECONDS
        memory = memory if kept else CycleMemory(ClusterDevices())


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "forgotten"])
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_what_is_started_or_moved_stays(first, kept):
    for seed in range(first, first + 20):
        started, restarts = set(), Counter()
        for plan in course(drawn(random.Random(seed)), kept):
            assert started.isdisjoint(each.pod.uid for each in plan.evictions), seed
            started |= {each.pod.uid for group in plan.placements for each in group.pods}
            started |= {each.pod.uid for each in plan.nominations}
            started |= {each.pod.uid for each in plan.evictions if each.relocated_to}
            restarts.update((each.pod.uid, each.preemptor) for each in plan.evictions)
        assert max(restarts.values(), default=0) <= 1, seed


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "forgotten"])
def test_no_round_evicts_after_one_that_decides_nothing(kept):
    for seed in range(50):
        rests = False
        for plan in course(drawn(random.Random(seed)), kept, NO_LOSS_RULES):
            assert not (rests and plan.evictions), seed
            rests |= not (plan.placements or plan.nominations or plan.evictions)
        assert rests, seed
