"""Evictions with the costs and ends that a test states, in a cluster of 10 GPUs."""

import math
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from kai_py.plan.plan import Action
from kai_py.plan.victims.timing import postponed_until
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.fairness_rules import NATIVE
from kai_py.policy.lost_work import LossRules
from kai_py.policy.queue_usage import QueueUsage
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import gang

NOW = START + 1000.0
PATIENCE = 100.0
RULES = LossRules(patience=PATIENCE, by_loss=True)
SERVICE = replace(gang("serves").owner, kind="Deployment")
QUEUES = ("own", "other", "third")


def amounts(by_queue, default=0.0):
    return np.array([[float(by_queue.get(name, default)) for name in QUEUES]])


def fake_strategy(
    action=Action.PREEMPT,
    *,
    created=900.0,
    ends: Mapping[str, float] | None = None,
    lost=lambda unit, at: 0.0,
    pods=1,
    allocated=None,
    fair=None,
    deserved=None,
    releasing=(),
    due_since=None,
    part_missed=0.0,
    rules=RULES,
    due=None,
    evicted=(),
):
    """A gang of GPUs in a cluster of 10; ``ends``: by gang, seconds from now; others are unknown.

    ``releasing``: (seconds from now, queue, GPUs) of pods beside the victims.
    ``part_missed``: of its fair share, over time.
    """
    specs = [
        QueueInfo(name=name, deserved={"gpu": (deserved or {}).get(name, 0.0)}) for name in QUEUES
    ]
    table = build_queue_table(specs, ("gpu",))[0]
    order = [QUEUES.index(name) for name in table.names]
    usage = QueueUsage(
        table,
        np.array([10.0]),
        amounts(allocated or {})[:, order],
        np.zeros((1, 3)),
        amounts(fair or {})[:, order],
    )

    def cost(charge):
        return np.array([charge.get("gpu", 0.0)])

    asks = gang("asks", pods=pods, queue="own", created=created)
    found = [
        SimpleNamespace(at=NOW + after, gang=each, member=each.members[0])
        for number, (after, queue, gpus) in enumerate(releasing)
        for each in [gang(f"ends-{number}", nodes="a", gpus=gpus, queue=queue)]
    ]
    state = SimpleNamespace(
        settings=SimpleNamespace(loss_rules=rules, patience=rules.patience),
        snapshot=SimpleNamespace(now=NOW),
        expected_ends=SimpleNamespace(
            end_of=lambda gang, _: NOW + (ends or {}).get(gang.owner.name, math.inf)
        ),
        due=SimpleNamespace(since=lambda _, now: now if due_since is None else due_since),
        next_ends=found,
        parts_of_cluster={},
        quota=SimpleNamespace(
            usage=usage,
            queues=table,
            rules=NATIVE,
            cost=cost,
            cost_of=lambda members: sum((cost(m.charge) for m in members), np.zeros(1)),
        ),
        served=SimpleNamespace(
            due=np.zeros((0, 0)) if due is None else amounts(due)[:, order],
            is_served=lambda queue, rows, tolerated=0.03: part_missed <= tolerated,
        ),
        statement=SimpleNamespace(evicted=set(evicted)),
    )
    return SimpleNamespace(
        state=state,
        gang=asks,
        action=action,
        request=SimpleNamespace(members=asks.members),
        pool=SimpleNamespace(costs=SimpleNamespace(lost_work_at=lost)),
    )


def victim(name="old", *, queue="other", since=0.0, gpus=1, checkpoint=None, nodes="a"):
    made = gang(name, nodes=nodes, gpus=gpus, queue=queue, created=since)
    made = replace(made, settings=replace(made.settings, checkpoint_interval=checkpoint))
    return VictimUnit(made, made.members)


def waits(strategy, *units):
    """For how many seconds; None if not at all."""
    until = postponed_until(strategy, units or (victim(),))
    return None if until is None else until - NOW
