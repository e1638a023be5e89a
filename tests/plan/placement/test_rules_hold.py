"""No required rule is broken: by no cycle, for no pod, whatever else is placed or evicted with it.

Random worlds of several gangs, queues and priorities run for a few cycles as if everything that is
decided happened at once; then every pod that was bound is judged beside all others, those included
that were evicted in the same cycle, as they are still there when it is bound.
"""

import random

import pytest

from tests.plan.placement.test_exact_rules import HOST, RACK, ZONE, Kind, as_pod
from tests.support.scenario import cluster, evicted, job, node, placed, queue

CYCLES = 4


def random_world(chance: random.Random):
    count = chance.randint(2, 6)
    nodes = {
        f"n{i}": {HOST: f"n{i}", RACK: f"r{i % chance.choice((2, 3))}", ZONE: f"z{i * 2 // count}"}
        for i in range(count)
    }
    objects: list = [
        node(name, chance.choice((2, 4)), "16", {RACK: each[RACK], ZONE: each[ZONE], "disk": "ssd"})
        for name, each in nodes.items()
    ]
    objects += [queue("a", 4), queue("b", 4)]
    kinds = [random_kind(chance, app) for app in "abcd"]
    pods: dict[str, tuple[Kind, list]] = {}
    for number in range(chance.randint(2, 8)):
        own, priority = chance.choice("ab"), chance.choice((0, 0, 50))
        size = chance.choice((1, 1, 2, 3))
        owner = job(f"g{number}", size, own)
        objects.append(owner)
        chosen = [chance.choice(kinds) for _ in range(size)]
        for i, kind in enumerate(chosen):
            name = f"g{number}-{i}"
            more = {"owner": owner, "priority": priority, "created": float(number)}
            pods[name] = kind, [more]
    return nodes, objects, pods


def random_kind(chance: random.Random, app: str) -> Kind:
    def some(likely: float):
        if chance.random() > likely:
            return ()
        return ((chance.choice("abcd"), chance.choice((RACK, HOST, ZONE))),)

    apart = some(0.4)
    near = () if apart else some(0.25)
    return Kind(app, chance.choice((0, 1, 2)), chance.choice((1, 2)), near=near, apart=apart)


def broken_rules(nodes, name, kind, at, others) -> str:
    """What the pod breaks beside ``others``, (kind, node) by name."""
    labels = nodes[at]
    for other, (theirs, where) in others.items():
        for app, key in kind.apart:
            if theirs.app == app and nodes[where][key] == labels[key]:
                return f"{name} on {at} refuses {other} on {where}"
        for app, key in theirs.apart:
            if kind.app == app and nodes[where][key] == labels[key]:
                return f"{other} on {where} refuses {name} on {at}"
    for app, key in kind.near:
        matching = [where for theirs, where in others.values() if theirs.app == app]
        if not matching and app == kind.app:
            continue
        if not any(nodes[where][key] == labels[key] for where in matching):
            return f"{name} on {at} has no {app} in its {key}"
    return ""


def run(seed: int) -> list[str]:
    """What was broken in a few cycles."""
    chance = random.Random(seed)
    nodes, objects, pods = random_world(chance)
    world, where = cluster(objects), dict[str, str]()

    def as_object(name):
        kind, (more,) = pods[name]
        return as_pod(kind, name, node=where.get(name, ""), **more)

    waiting = list(pods)
    arrivals = [waiting[: len(waiting) // 2], waiting[len(waiting) // 2 :], [], []]
    found: list[str] = []
    for cycle in range(CYCLES):
        world.add([as_object(name) for name in arrivals[cycle]])
        plan = world.plan(now=1000.0 + cycle)
        bound, gone = placed(plan), evicted(plan)
        where |= bound
        here = {name: (pods[name][0], at) for name, at in where.items()}
        for name, at in bound.items():
            others = {other: each for other, each in here.items() if other != name}
            said = broken_rules(nodes, name, pods[name][0], at, others)
            found += [f"cycle {cycle}: {said}"] if said else []
        world.add([as_object(name) for name in bound])
        for name in gone:
            world.remove(as_object(name))
            del where[name]
            world.add(as_object(name))
    return found


@pytest.mark.slow
def test_no_cycle_breaks_a_required_rule():
    assert [seed for seed in range(500) if run(seed)] == []


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_cycle_breaks_a_required_rule_at_length():
    assert [seed for seed in range(500, 10_000) if run(seed)] == []
