"""What is said of a gang that may evict no pods yet."""

from tests.support.scenario import cluster, node, pod, queue

DELAY = {"scheduling.kai.io/preemption-delay": "5m"}
SENTENCE = "It evicts no pod until its preemption delay of 5m has passed."


def world(*, asks=1, **new):
    low = pod("low", queue="q", node="n0")
    high = pod("high", asks, queue="q", priority=9, annotations=DELAY, **new)
    return cluster(node("n0", gpus=1), queue("q", 1), low, high)


def test_a_gang_in_its_preemption_delay_tells_of_it():
    waiting = world()
    [found] = waiting.plan(now=100).unplaced
    assert found.message.endswith(f" {SENTENCE}")
    assert [each.pod.name for each in waiting.plan(now=300).evictions] == ["low"]


def test_a_delay_that_changes_nothing_is_not_told():
    never = world(preemption_policy="Never")
    for waiting, now in ((never, 100), (world(asks=2), 100), (world(asks=2), 300)):
        [found] = waiting.plan(now=now).unplaced
        assert "preemption delay" not in found.message


def test_a_gang_that_never_preempts_tells_of_it():
    [found] = world(preemption_policy="Never").plan(now=300).unplaced
    assert found.message.endswith(" It evicts no pod, as its preemptionPolicy is Never.")
    [found] = world(asks=2, preemption_policy="Never").plan(now=300).unplaced
    assert "preemptionPolicy" not in found.message
