"""Victims against brute force: of all sets that let the gang fit, the one that loses least."""

import random
from itertools import combinations

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle import CycleMemory, CycleSettings, run_cycle
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.worlds import gang, world

NOW, RESTART = 40_000.0, 60.0
RULES = LossRules(by_loss=True, restart_cost=RESTART)
QUEUES = (
    QueueInfo(name="owner", deserved={"gpu": 99.0}),
    QueueInfo(name="guest", deserved={"gpu": 0.0}),
)


def running(chance):
    """Up to three nodes, and single pods on most of their GPUs: node, GPUs, seconds that it ran."""
    nodes = {name: chance.randint(2, 4) for name in "abc"[: chance.randint(1, 3)]}
    pods = []
    for name, size in nodes.items():
        free = size
        while free > 0:
            gpus = chance.randint(1, min(free, 3))
            free -= gpus
            if chance.random() < 0.9:
                pods.append((name, gpus, chance.randint(1, 600) * 60.0))
    return nodes, pods


def lost(pods, chosen):
    return sum(pods[i][1] * (pods[i][2] + RESTART) for i in chosen)


def least_lost(nodes, pods, count, gpus):
    """The least that any set of victims loses; None where none suffices."""

    def fits(chosen):
        free = dict(nodes)
        for i, (name, used, _) in enumerate(pods):
            free[name] -= 0 if i in chosen else used
        return sum(left // gpus for left in free.values()) >= count

    sizes = range(len(pods) + 1)
    sets = (each for size in sizes for each in combinations(range(len(pods)), size))
    return min((lost(pods, each) for each in sets if fits(each)), default=None)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_no_set_of_victims_would_lose_less(first):
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        nodes, pods = running(chance)
        count, gpus = chance.randint(1, 2), chance.randint(1, 3)
        gangs = [
            gang(f"r{i}", nodes=name, gpus=used, queue="guest", created=NOW - ran)
            for i, (name, used, ran) in enumerate(pods)
        ]
        new = gang("new", pods=count, gpus=gpus, queue="owner", created=NOW - 10)
        snapshot = world(nodes, *gangs, new, queues=QUEUES).snapshot(NOW)
        plan = run_cycle(snapshot, CycleSettings(loss_rules=RULES), CycleMemory(ClusterDevices()))
        if any(each.relocated_to for each in plan.evictions):
            continue
        chosen = {int(each.pod.name[1:].partition("-")[0]) for each in plan.evictions}
        least = least_lost(nodes, pods, count, gpus)
        assert bool(plan.placements or plan.nominations) == (least is not None), seed
        assert lost(pods, chosen) == pytest.approx(least or 0.0), seed
