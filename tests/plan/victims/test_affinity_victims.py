"""Pods with required affinity to themselves among the victims that they would follow.

Kubernetes lets the first pod of such a group start anywhere. A pod that waits for its victims
starts when these are gone, so none of them is one that it must be near.
"""

import random
from collections import Counter

import pytest

from tests.plan.placement.test_exact_rules import HOST, RACK, Kind, as_pod
from tests.support.scenario import cluster, evicted, job, moves, node, nominated, placed, queue


def drawn(chance: random.Random):
    """GPUs by node, running pods (label, GPUs, node), and how many pods of what size wait."""
    nodes = {f"n{i}": chance.randint(1, 3) for i in range(chance.randint(1, 4))}
    running, free = [], dict(nodes)
    for name in nodes:
        while free[name] and chance.random() < 0.9:
            gpus = chance.randint(1, free[name])
            running.append((chance.choice("ab"), gpus, name))
            free[name] -= gpus
    return nodes, running, chance.randint(1, 3), chance.randint(1, 2)


def fits_alone(nodes, count: int, gpus: int, level: str) -> bool:
    """Whether ``count`` pods fit into one domain where no other pod runs."""
    capacity = Counter[str]()
    for i, (name, has) in enumerate(nodes.items()):
        capacity[f"r{i // 2}" if level == RACK else name] += has // gpus
    return max(capacity.values()) >= count


def domain(name: str, level: str) -> str:
    return f"r{int(name[1:]) // 2}" if level == RACK else name


def only(moved: dict[str, str], names) -> dict[str, str]:
    return {name: to for name, to in moved.items() if name in names}


def check(seed: int, level: str) -> bool:
    """Whether victims were needed and found."""
    nodes, running, count, gpus = drawn(random.Random(f"{level}-{seed}"))
    objects = [
        node(name, has, labels={RACK: f"r{i // 2}"}) for i, (name, has) in enumerate(nodes.items())
    ]
    for i, (label, used, at) in enumerate(running):
        low = {"queue": "q", "node": at, "created": float(i)}
        objects.append(as_pod(Kind(label, used, 1), f"run-{i}", **low))
    owner, kind = job("new", count, "q"), Kind("a", gpus, 1, near=(("a", level),))
    waiting = [as_pod(kind, f"new-{i}", owner=owner, priority=10) for i in range(count)]
    plan = cluster(objects, queue("q", 100), owner, waiting).plan()
    found = placed(plan) | nominated(plan)
    if fits_alone(nodes, count, gpus, level):
        assert {f"new-{i}" for i in range(count)} <= found.keys(), seed
    where = {f"run-{i}": at for i, (label, _, at) in enumerate(running) if label == kind.app}
    near = {domain(at, level) for at in (where | only(moves(plan), where)).values() if at}
    assert not near or {domain(at, level) for at in found.values()} <= near, seed
    return bool(evicted(plan))


@pytest.mark.slow
@pytest.mark.parametrize("level", [HOST, RACK])
def test_pods_with_affinity_to_themselves_find_victims(level: str):
    assert sum(check(seed, level) for seed in range(120)) > 40
