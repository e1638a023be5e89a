"""Pods with required affinity to themselves among the victims that they would follow.

Kubernetes lets the first pod of such a group start anywhere. A pod that waits for its victims
starts when these are gone, so none of them is one that it must be near.

For a gang that must be in one domain, victims are taken in the domain that costs the fewest.
"""

import random
from collections import Counter

import pytest

from kai_py.plan.plan import Action
from kai_py.policy.lost_work import LossRules
from tests.plan.placement.test_exact_rules import HOST, RACK, Kind, as_pod
from tests.support.examples import examples
from tests.support.scenario import cluster, evicted, job, moves, node, nominated, placed, pod, queue


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


RACKS = "abc"
IN_ONE_RACK = {"kai.scheduler/topology-required-placement": "rack"}


def racks_in_part_full(chance):
    """Three racks of two nodes with two GPUs; how many pods of one GPU run in each."""
    nodes = [node(f"{rack}{i}", 2, labels={"rack": rack}) for rack in RACKS for i in range(2)]
    on = [each.metadata.name for each in nodes for _ in range(chance.choice((0, 1, 1, 2)))]
    low = [
        pod(f"low{i}", 1, queue="low", node=name, created=chance.randrange(50))
        for i, name in enumerate(on)
    ]
    return nodes, low, [sum(name[0] == rack for name in on) for rack in RACKS]


@pytest.mark.parametrize("action", [Action.PREEMPT, Action.RECLAIM, Action.CONSOLIDATE])
@pytest.mark.parametrize("seed", range(examples(24)))
def test_the_domain_with_the_fewest_victims_is_emptied(action, seed):
    nodes, low, running = racks_in_part_full(random.Random(seed))
    if action is Action.CONSOLIDATE and sum(running) > 8:
        return
    name = "high" if action is Action.RECLAIM else "low"
    owner = job("new", 4, name, **IN_ONE_RACK)
    priority = 5 if action is Action.PREEMPT else 0
    new = [pod(f"new-{i}", 1, queue=name, owner=owner, priority=priority) for i in range(4)]
    queues = [queue("low", 0 if name == "high" else 12), queue("high", 12)]
    actions = (Action.ALLOCATE, action)
    rules = LossRules(by_loss=True)
    world = cluster(*nodes, *queues, *low, owner, *new, actions=actions, loss_rules=rules)
    plan = world.plan()
    assert len(evicted(plan)) == min(running)
    assert bool(placed(plan)) == (min(running) == 0)
