"""The steps of a node are computed once for all gangs that ask for the same of it."""

import random

import pytest

from kai_py.plan.victims.replica_steps import ReplicaSteps
from kai_py.policy.fairness_rules import NATIVE
from tests.plan.victims.test_lost_work import BY_LOSS
from tests.support.examples import examples
from tests.support.scenario import cluster, evicted, job, node, nominated, pod, queue


def drawn(seed: int):
    """Nodes almost full of pods of two queues, some of one job, and gangs that reclaim."""
    chance, created = random.Random(seed), 0.0
    objects = [queue("owner", 40), queue("a", 0), queue("b", 4)]
    pairs = [job(f"pair{i}", 2, chance.choice("ab")) for i in range(4)]
    places: list[tuple[str, int]] = []
    for i in range(chance.randint(3, 8)):
        objects.append(node(f"n{i}", 8))
        free, left = 8, chance.choice([0, 0, 1, 2])
        while free > left:
            gpus = min(free, chance.choice([1, 1, 2, 3]))
            places.append((f"n{i}", gpus))
            free -= gpus
    for i, (at, gpus) in enumerate(places):
        created += chance.randint(0, 100)
        of_pair = pairs[i // 2 % 4] if i < 8 and len(places) >= 8 else None
        owned = {"owner": of_pair} if of_pair else {"queue": chance.choice("ab")}
        objects.append(pod(f"run-{i}", gpus, node=at, created=created, **owned))
    for i in range(chance.randint(2, 5)):
        gpus, count = chance.choice([2, 4, 8]), chance.choice([1, 2, 3])
        owner = job(f"new{i}", count, "owner")
        objects += [owner, *(pod(f"new{i}-{j}", gpus, owner=owner) for j in range(count))]
    return cluster(objects, *pairs, rules=NATIVE, loss_rules=BY_LOSS).plan()


@pytest.mark.slow
def test_plans_do_not_depend_on_what_was_computed_before(monkeypatch: pytest.MonkeyPatch):
    seeds = range(examples(120))
    plans = [drawn(seed) for seed in seeds]
    monkeypatch.setattr(
        ReplicaSteps,
        "_of_node",
        lambda self, row, there: ([], self._compute(row, self._freed.future_idle_of(row), there)),
    )
    for seed, plan in zip(seeds, plans, strict=True):
        again = drawn(seed)
        assert evicted(plan) == evicted(again), seed
        assert nominated(plan) == nominated(again), seed
    assert sum(bool(evicted(plan)) for plan in plans) > len(plans) // 2


def test_equal_gangs_ask_once_for_what_did_not_change(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    compute = ReplicaSteps._compute

    def counted(self, row, node, there):
        asked.append(row)
        return compute(self, row, node, there)

    monkeypatch.setattr(ReplicaSteps, "_compute", counted)
    nodes = [node(f"n{i}", 2) for i in range(10)]
    running = [
        pod(f"run-{i}", 1, queue="guest", node=f"n{i % 10}", created=float(i)) for i in range(20)
    ]
    waiting = [pod(f"new-{i}", 2, queue="owner") for i in range(3)]
    queues = queue("owner", 20), queue("guest", 0)
    plan = cluster(nodes, running, waiting, *queues, rules=NATIVE, loss_rules=BY_LOSS).plan()
    assert len(evicted(plan)) == 6
    assert len(asked) == 10
