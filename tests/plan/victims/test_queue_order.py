"""Reclaim takes first from queues above their fair share in what the reclaimer asks for."""

from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.worlds import gang, world


def team(name, deserved, priority=100, weight=1.0):
    return QueueInfo(name=name, deserved={"gpu": deserved}, priority=priority, weight=weight)


def evicted(plan):
    return sorted(each.queue for each in plan.evictions)


def test_a_queue_at_its_fair_share_is_protected_though_its_priority_is_lower():
    found = world(
        {"a": 4},
        gang("a0", nodes="a", queue="at-share"),
        gang("a1", nodes="a", queue="at-share"),
        gang("b0", nodes="a", queue="above-share"),
        gang("b1", nodes="a", queue="above-share"),
        gang("c", pods=1, queue="starved"),
        queues=(
            team("at-share", 1.0, priority=100),
            # A weight of 0: everything above what it deserves is above its fair share.
            team("above-share", 1.0, priority=101, weight=0.0),
            team("starved", 1.0, priority=99),
        ),
    ).plan()
    assert evicted(found) == ["above-share"]


def test_what_was_taken_already_counts():
    found = world(
        {"a": 6},
        *(gang(f"a{i}", nodes="a", queue="low") for i in range(3)),
        *(gang(f"b{i}", nodes="a", queue="high") for i in range(3)),
        gang("c", pods=2, queue="starved"),
        queues=(
            team("low", 2.0, priority=1, weight=0.0),
            team("high", 2.0, priority=2, weight=0.0),
            team("starved", 2.0),
        ),
    ).plan()
    assert evicted(found) == ["high", "low"]


def test_a_gang_above_the_fair_share_does_not_put_its_queue_last():
    """One GPU is free: it goes to the queue with less of its share, not past both its gangs."""
    found = world(
        {"a": 4},
        *(gang(f"c{i}", nodes="a", queue="borrows", created=0.0) for i in range(3)),
        gang("wide", pods=3, queue="large", created=1.0),
        gang("small", pods=1, queue="large", created=2.0),
        gang("other", pods=1, queue="less", created=2.0),
        queues=(team("large", 2.0), team("less", 1.0), team("borrows", 1.0)),
    ).plan()
    actions = {each.gang.rpartition("/")[2]: each.action.value for each in found.placements}
    assert actions == {"small": "allocate"}
