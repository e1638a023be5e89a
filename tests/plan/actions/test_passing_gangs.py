"""Gangs that would exceed their queue's fair share let others pass, however that is found."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.plan.session import gang_queue
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.worlds import gang, replayed, world

QUEUES = [QueueInfo(name=name, deserved={"gpu": 6.0}) for name in ("a", "b")]
SIZES = st.sampled_from([1, 6, 7, 7, 8, 8, 9])
"""GPUs of gangs; more than six exceed the fair share of a queue that has nothing yet."""

update = GangQueue.update


def update_without_cache(self: GangQueue, queue: int) -> None:
    """As ``GangQueue.update``, without what it knows of gangs that exceed the share."""
    self._exceeding.clear()
    update(self, queue)


def popped(state: CycleState, steps: list[tuple[int, bool, bool]]) -> list[str]:
    """The gangs popped in turn; after each, a step: GPUs charged, put back, all queues updated."""
    gangs = [state.snapshot.gangs[key] for key in state.snapshot.pending]
    waiting, order = GangQueue(state, gangs), list[str]()
    allocated = state.quota.usage.allocated
    gpu = state.quota.resources.index("gpu")
    for charged, put_back, updated in steps:
        found = waiting.pop()
        if found is None:
            break
        order.append(found.key)
        allocated[gpu, state.quota.queues.positions[found.queue]] += charged
        if put_back:
            waiting.push(found)
        if updated:
            waiting.update_all()
    return order


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(SIZES, st.sampled_from("aaab"), st.sampled_from([0, 0, 1])), min_size=3),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, -1, -2]), st.booleans(), st.booleans()), max_size=40
    ),
    st.integers(1, 5),
)
def test_the_order_is_that_of_looking_at_all_of_them_again(gangs, steps, passed):
    waiting = [
        gang(f"w{i:02d}", gpus=gpus, pods=1, queue=queue, priority=priority, created=i)
        for i, (gpus, queue, priority) in enumerate(gangs)
    ]
    # The demand of the other queue leaves this one no more than what it deserves.
    each = world({"n0": 12}, *waiting, gang("other", gpus=6, pods=1, queue="b"), queues=QUEUES)
    with patch.object(gang_queue, "MAX_PASSED", passed):
        known = popped(each.session(), steps)
        with patch.object(GangQueue, "update", update_without_cache):
            assert popped(each.session(), steps) == known


def test_gangs_that_exceed_the_share_are_looked_at_once(monkeypatch):
    running = [gang(f"r-{name}", gpus=6, pods=1, queue=name, node="n0") for name in ("a", "b")]
    waiting = [gang(f"w{i:03d}", pods=1, queue="a", created=i) for i in range(200)]
    looked_at = []
    stays_within = gang_queue._stays_within
    monkeypatch.setattr(
        gang_queue, "_stays_within", lambda *each: looked_at.append(each) or stays_within(*each)
    )
    plan = world({"n0": 12}, *running, *waiting, queues=QUEUES).plan()
    assert len(plan.unplaced) == 200
    assert len(looked_at) <= 3 * len(waiting)


@pytest.mark.parametrize(
    "never",
    [
        gang("never", pods=1, gpus=16, queue="a", priority=9),
        gang("never", pods=4, gpus=2, queue="fixed", priority=9, preemptible=False),
        gang("never", pods=5, gpus=1, queue="limited", priority=9),
    ],
    ids=["larger than the nodes", "above what its queue deserves", "above the max of its queue"],
)
def test_a_gang_that_can_never_start_does_not_put_its_queue_behind_others(never):
    queues = [
        QueueInfo(name="a", deserved={"gpu": 4.0}, created=1.0),
        QueueInfo(name="fixed", deserved={"gpu": 1.0}, weight=0.0, created=1.0),
        QueueInfo(name="limited", deserved={"gpu": 1.0}, max={"gpu": 1.0}, created=1.0),
        QueueInfo(name="b", deserved={"gpu": 0.0}),
    ]
    small = gang("small", pods=1, gpus=1, queue=never.queue)
    others = gang("others", pods=8, gpus=1, floor=1, queue="b")
    before = world({"n0": 8}, never, small, others, queues=queues)
    plan = before.plan()
    started = sorted(each.pod.name for group in plan.placements for each in group.pods)
    assert started == [*(f"others-{i}" for i in range(7)), "small-0"]
    after = replayed(before, plan).plan()
    assert (after.evictions, after.placements) == ((), ())
    assert "default/Gang/never" in [each.gang for each in after.unplaced]


@pytest.mark.parametrize(("queues", "first"), [("aab", "w1"), ("aa", "w0")])
def test_gangs_pass_only_where_their_queue_would_come_after_another(queues, first):
    waiting = [
        gang(f"w{i}", gpus=8 - 7 * (i > 0), pods=1, queue=queue, created=i)
        for i, queue in enumerate(queues)
    ]
    other = gang("other", gpus=6, pods=1, queue="b", node="n0")
    state = world({"n0": 12}, *waiting, other, queues=QUEUES).session()
    found = GangQueue(state, waiting)
    found.update_all()
    found.update(state.quota.queues.positions["b"])
    order = [found.pop().key for _ in queues]
    assert next(key for key in order if "w2" not in key) == f"default/Gang/{first}"


def test_the_next_gangs_of_each_queue_can_be_seen_before_their_turn():
    waiting = [gang(f"w{i}", pods=1, queue="aaab"[i], created=i) for i in range(4)]
    state = world({"n0": 12}, *waiting, queues=QUEUES).session()
    found = GangQueue(state, waiting)
    names = {state.quota.queues.positions[name]: name for name in "ab"}

    def seen(count):
        return {
            names[queue]: [each.key.rpartition("/")[2] for each in gangs]
            for queue, gangs in found.peek(count)
        }

    assert seen(2) == {"a": ["w0", "w1"], "b": ["w3"]}
    found.advance(dict.fromkeys(names, 1))
    assert seen(1) == {"a": ["w1"]}
    assert seen(9) == {"a": ["w1", "w2"]}
    for queue, name in names.items():
        assert found.has_at_most(queue, 2)
        assert found.has_at_most(queue, 1) is (name == "b")
