"""Gangs of several sizes that preempt, against a search over all placements and sets of victims.

The largest pods first is not always an order in which they fit: what the victims leave is then
searched exactly. No victim could stay.
"""

import random
from itertools import combinations
from unittest.mock import patch

import pytest

from kai_py.plan.placement.exact import RuleSearch
from kai_py.plan.victims.trials import MAX_EXACT_STEPS, STEPS_PER_PROBE
from tests.support.scenario import cluster, evicted, job, moves, node, nominated, placed, pod, queue

GANGS, PROBES = 40, 400

Size = tuple[int, int]
"""GPUs and processors."""


def drawn(chance: random.Random):
    """Nodes by size, running gangs (size, node) and the sizes of the pods that wait."""
    nodes = {f"n{i}": (chance.randint(0, 4), chance.randint(2, 8)) for i in range(3)}
    running: list[tuple[Size, str]] = []
    for _ in range(chance.randint(2, 6)):
        size = chance.randint(1, 2), chance.randint(1, 2)
        fitting = [name for name in nodes if fits({**nodes}, [*running, (size, name)])]
        if fitting:
            running.append((size, chance.choice(fitting)))
    waiting = [(chance.randint(0, 3), chance.randint(1, 3)) for _ in range(chance.randint(2, 4))]
    return nodes, running, waiting


def fits(nodes: dict[str, Size], pods: list[tuple[Size, str]]) -> bool:
    """Whether no node has more pods than it can hold."""
    for name, capacity in nodes.items():
        here = [size for size, at in pods if at == name]
        if any(sum(size[i] for size in here) > capacity[i] for i in (0, 1)):
            return False
    return True


def can_be_placed(nodes, pods, waiting) -> bool:
    """Whether all that wait fit beside ``pods``."""
    if not waiting:
        return True
    first, *others = waiting
    return any(
        fits(nodes, [*pods, (first, name)]) and can_be_placed(nodes, [*pods, (first, name)], others)
        for name in nodes
    )


def check(seed: int) -> bool:
    """Whether victims were needed and found."""
    nodes, running, waiting = drawn(random.Random(seed))
    objects = [node(name, gpus, str(cpu)) for name, (gpus, cpu) in nodes.items()]
    for i, ((gpus, cpu), at) in enumerate(running):
        objects.append(
            pod(f"run-{i}", gpus, queue="q", node=at, requests={"cpu": str(cpu)}, created=float(i))
        )
    owner = job("new", len(waiting), "q")
    objects += [
        pod(f"new-{i}", gpus, owner=owner, priority=10, requests={"cpu": str(cpu)})
        for i, (gpus, cpu) in enumerate(waiting)
    ]
    plan = cluster(objects, queue("q", 100), owner).plan()
    found = placed(plan) | nominated(plan)
    lost = [name for name, to in moves(plan).items() if not to]
    assert (len(found) > 0) == can_be_placed(nodes, [], waiting), seed
    if not lost or len(lost) < len(evicted(plan)):
        return False
    kept = [each for i, each in enumerate(running) if f"run-{i}" not in lost]
    gone = [each for i, each in enumerate(running) if f"run-{i}" in lost]
    for stay in combinations(gone, 1):
        assert not can_be_placed(nodes, [*kept, *stay], waiting), seed
    return True


@pytest.mark.slow
def test_gangs_of_several_sizes_preempt_what_they_need():
    assert sum(map(check, range(150))) > 30


@pytest.mark.slow
def test_the_steps_of_searches_for_victims_are_bounded():
    """By counting, pods of two sizes fit on nodes that all differ; by processors they do not."""
    nodes = [node(f"n{i}", 8, str(10 + i / 10)) for i in range(12)]
    standing = [
        pod(f"run-{i}", 4, queue="q", node=f"n{i}", requests={"cpu": "1"}) for i in range(12)
    ]
    gangs = []
    for number in range(GANGS):
        owner = job(f"new-{number}", 24, "q")
        sizes = [(3, 6)] * 12 + [(2, 5)] * 12
        gangs.append([owner])
        gangs[-1] += [
            pod(f"{number}-{i}", gpus, owner=owner, priority=10, requests={"cpu": str(cpu)})
            for i, (gpus, cpu) in enumerate(sizes)
        ]
    search, steps = RuleSearch.place, []

    def counted(self):
        steps.append(self)
        return search(self)

    with patch.object(RuleSearch, "place", counted):
        plan = cluster(nodes, queue("q", 200), standing, *gangs[:1]).plan()
        one = len(steps)
        cluster(nodes, queue("q", 200), standing, *gangs, victim_probes=PROBES).plan()
    assert not placed(plan)
    assert 100 < one <= 2 * MAX_EXACT_STEPS
    assert len(steps) - one <= PROBES * STEPS_PER_PROBE + 2 * MAX_EXACT_STEPS
