"""Counting pods that are gone: many at once like one by one, and back again."""

import random

import pytest

from kai_py.plan.victims.count import CapacityCount
from tests.support.worlds import gang, world

NODES = [f"n{i}" for i in range(40)]


def drawn(seed):
    """Single pods of one to four GPUs on nodes, and a gang that needs three GPUs for each pod."""
    chance = random.Random(seed)
    runs = [
        gang(f"r{i}", nodes=[chance.choice(NODES)], gpus=chance.randint(1, 4)) for i in range(90)
    ]
    gone = gang("gone", nodes=["no-such-node"])
    new = gang("new", pods=5, gpus=3)
    state = world(dict.fromkeys(NODES, 8), *runs, gone, new).session()
    return state, new, [member for each in (*runs, gone) for member in each.members]


def counted(found):
    shape = found._shapes[0]
    replicas = [shape.on_row(row) for row in range(len(NODES))]
    return replicas, found.replicas, found.missing(), found.is_enough, found.gaining_nodes()


@pytest.mark.parametrize("seed", range(4))
def test_many_pods_are_counted_like_one_after_the_other(seed):
    state, new, running = drawn(seed)
    together, apart = (CapacityCount(state, new, new.members, {}) for _ in range(2))
    before = counted(together)
    assert before[-1] == set()
    together.release(running)
    for member in running:
        apart.release([member])
    assert counted(together) == counted(apart)
    assert counted(together)[-1]
    kept = running[: seed * 20]
    together.release(kept, -1.0)
    for member in kept:
        apart.release([member], -1.0)
    assert counted(together) == counted(apart)
    together.release(running[seed * 20 :], -1.0)
    assert counted(together) == before
