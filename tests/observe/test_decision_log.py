"""What a cycle decides that the one before did not, numbered and bounded."""

import asyncio
import math

import pytest
from msgspec import structs

from kai_py.api.references import PodRef
from kai_py.grouping.gang import Owner
from kai_py.observe.decision_log import Decision, DecisionKind, DecisionLog
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import (
    Action,
    Eviction,
    GangPlacement,
    Nomination,
    Placement,
    Plan,
    Stage,
    Unplaced,
)

JOB = Owner("batch/v1", "Job", "default", "train", "u")
PODS = tuple(PodRef("default", f"train-{i}", f"u{i}") for i in range(2))
WAITS = Unplaced("train", JOB, "q", Stage.RESOURCES, "no capacity.", PODS)
PLACED = GangPlacement("train", JOB, "q", Action.ALLOCATE, tuple(Placement(p, "n1") for p in PODS))
LOST = tuple(
    Eviction(pod, "n1", "train", JOB, "q", Action.RECLAIM, "other", "p", "other is owed it.")
    for pod in PODS
)
CPU_AND_MEMORY = "3 CPU cores allocated, fair share 6.5, 2.25 GB memory allocated, fair share 4"


def told(*plans, gangs=("train",)):
    log = DecisionLog()
    for time, plan in enumerate(plans):
        log.record(plan, gangs, float(time))
    return log.since(0)


def test_a_gang_waits_once_per_stage_and_then_starts():
    elsewhere = structs.replace(WAITS, stage=Stage.QUEUE_MAX, message="the queue is full.")
    waits, moved = Plan(unplaced=(WAITS,)), Plan(unplaced=(elsewhere,))
    decisions = told(waits, waits, moved, Plan(placements=(PLACED,)), Plan())
    assert [(d.kind, d.stage, d.previous_stage, d.time) for d in decisions] == [
        ("pending", "Resources", "", 0.0),
        ("pending", "QueueMax", "Resources", 2.0),
        ("placed", "", "", 3.0),
    ]
    assert [d.number for d in decisions] == [1, 2, 3]
    assert decisions[2].nodes == ("n1",)
    assert decisions[2].pods == ("default/train-0", "default/train-1")


def test_a_plan_that_is_made_again_says_nothing_new():
    plan = Plan(placements=(PLACED,), evictions=LOST)
    assert len(told(plan, plan)) == len(told(plan)) == 2


def test_evictions_of_a_gang_are_one_decision_with_rule_and_beneficiary():
    (decision,) = told(Plan(evictions=LOST))
    assert (decision.kind, decision.action, len(decision.pods)) == ("evicted", "reclaim", 2)
    assert (decision.preemptor, decision.preemptor_queue) == ("other", "p")
    assert decision.message == "other is owed it."


@pytest.mark.parametrize(
    ("charge", "usage"),
    [
        ({"gpu": 2.0, "cpu": 1000.0, "pods": 1.0}, "4 GPUs allocated, fair share 8"),
        ({"cpu": 1000.0, "memory": 1e9, "pods": 1.0}, CPU_AND_MEMORY),
        ({"deviceclass/nic": 1.0, "cpu": 1000.0}, "2 devices of class nic allocated"),
        (
            {"cpu": 1000.0, "deviceclass/nic": 1.0, "gpu": 1.0},
            "4 GPUs allocated, fair share 8, 2 devices of class nic allocated",
        ),
        ({"example.com/fpga": 1.0}, ""),
    ],
)
def test_a_placement_tells_the_usage_of_what_its_pods_take(charge, usage):
    share = QueueShare(
        queue="q",
        deserved={},
        maximum={},
        fair_share={"gpu": 8.0, "cpu": 6500.0, "memory": 4e9, "deviceclass/nic": math.inf},
        allocated={"gpu": 4.0, "cpu": 3000.0, "memory": 2.25e9, "deviceclass/nic": 2.0},
        requested={},
        pending_gangs=0,
    )
    placed = structs.replace(PLACED, charge=charge)
    (decision,) = told(Plan(placements=(placed,), queues=(share,)))
    expected = "it fits into idle capacity" + (usage and f"; queue q then has {usage}")
    assert decision.message == expected


def test_promised_capacity_is_told():
    promised = tuple(Nomination("train", pod, "n2") for pod in PODS)
    plan = Plan(nominations=promised, unplaced=(structs.replace(WAITS, stage=Stage.NOMINATED),))
    nominated, _ = told(plan)
    assert (nominated.kind, nominated.nodes, nominated.queue) == ("nominated", ("n2",), "q")


def test_a_gang_that_is_taken_away_while_it_waits_is_told():
    decisions = told(Plan(unplaced=(WAITS,)), Plan(), gangs=())
    assert [d.kind for d in decisions] == ["pending", "deleted"]
    assert [d.kind for d in told(Plan(unplaced=(WAITS,)), Plan())] == ["pending"]


def test_old_decisions_are_dropped_and_numbers_show_it():
    log = DecisionLog(size=3)
    for time in range(5):
        log.record(
            Plan(unplaced=(structs.replace(WAITS, gang=f"g{time}"),)),
            ["g0", "g1", "g2", "g3"],
            time,
        )
    assert [d.number for d in log.since(0)] == [3, 4, 5]
    assert [d.number for d in log.since(4)] == [5]
    assert log.since(5) == ()
    assert [d.number for d in log.made_after(2.5)] == [4, 5]


async def test_readers_wait_for_the_next_cycle():
    log = DecisionLog()
    waiting = asyncio.create_task(log.cycle_after(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    log.record(Plan(), (), 0.0)
    assert await waiting == 1
    assert await log.cycle_after(0) == 1


def test_decisions_of_earlier_leaders_come_before_all_others():
    log = DecisionLog(size=10, before=10)
    old = [Decision(kind=DecisionKind.PLACED, gang=f"old-{n}", queue="q") for n in range(12)]
    assert log.newest == 10
    log.record(Plan(placements=(PLACED,)), ("train",), 0.0)
    assert log.newest == 11
    log.recall(old)
    everything = log.since(0)
    assert [each.gang for each in everything] == [*(f"old-{n}" for n in range(3, 12)), PLACED.gang]
    assert [each.number for each in everything] == [*range(2, 12)]
    assert [each.gang for each in log.since(10)] == [PLACED.gang]


def test_recalled_decisions_fit_an_empty_log():
    log = DecisionLog(size=3, before=3)
    log.recall([Decision(kind=DecisionKind.PLACED, gang=str(n), queue="q") for n in range(5)])
    assert [(each.gang, each.number) for each in log.since(0)] == [("2", 1), ("3", 2), ("4", 3)]
