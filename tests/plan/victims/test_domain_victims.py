"""For a gang that must be in one domain, victims are taken in the domain that costs the fewest."""

import random

import pytest

from kai_py.plan.plan import Action
from kai_py.policy.lost_work import LossRules
from tests.support.examples import examples
from tests.support.scenario import cluster, evicted, job, node, placed, pod, queue

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
