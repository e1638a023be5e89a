"""No pod is evicted for a gang while another of its queue would start on what is released."""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.reclaim import Reclaim
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import open_session
from kai_py.plan.explain.postponed import LOST_WORK
from kai_py.plan.plan import Action
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.turns import Unwatched
from kai_py.plan.victims.batch import VictimBatch
from kai_py.plan.victims.order import VictimPool
from tests.plan.victims.test_lost_work import (
    NOW,
    QUEUES,
    WEIGHED,
    message_of,
    planned,
    ran,
    waiting,
)
from tests.support.records import replace
from tests.support.scenario import evicted
from tests.support.worlds import world

SECOND = waiting("second", pods=4, priority=5, since=NOW - 3000)


def first(gpus=1, **more):
    """A gang whose own eviction is put off: it has not waited for long."""
    return waiting("first", gpus=gpus, priority=9, **more)


def large(nodes="aaaa"):
    """A gang that would lose the work of twenty minutes."""
    return ran("large", nodes, 20, queue="owner")


def test_nothing_is_released_that_a_gang_ahead_would_take():
    assert len(evicted(planned(large(), SECOND, nodes={"a": 4}, rules=WEIGHED))) == 4
    plan = planned(large(), first(), SECOND, nodes={"a": 4}, rules=WEIGHED)
    assert evicted(plan) == []
    assert message_of(plan, "second").endswith(LOST_WORK)


def test_a_gang_ahead_that_fits_beside_it_is_not_in_the_way():
    plan = planned(large("aaaaa"), first(), SECOND, nodes={"a": 5}, rules=WEIGHED)
    assert len(evicted(plan)) == 5


def test_a_gang_ahead_that_needs_other_nodes_is_not_in_the_way():
    gangs = large(), ran("wide", "bbbbbb", 60, queue="owner"), first(gpus=5), SECOND
    plan = planned(*gangs, nodes={"a": 4, "b": 6}, rules=WEIGHED)
    assert evicted(plan) == [f"large-{n}" for n in range(4)]


def test_what_no_gang_of_its_queue_may_evict_starts_before_those_ahead():
    secure = replace(SECOND, preemptible=False)
    plan = planned(large(), first(), secure, nodes={"a": 4}, rules=WEIGHED)
    assert len(evicted(plan)) == 4


def test_the_second_of_two_equal_gangs_waits_for_the_one_ahead():
    equal = [waiting(f"equal-{n}", gpus=2, priority=5, since=NOW - 3000) for n in range(2)]
    running = ran("single", "a", 20, queue="owner", gpus=2), ran("wide", "bbbb", 20, queue="owner")
    plan = planned(*running, first(gpus=3), *equal, nodes={"a": 2, "b": 4}, rules=WEIGHED)
    assert evicted(plan) == ["single-0"]


def test_an_older_gang_of_the_same_priority_is_not_in_the_way():
    older, younger = [
        waiting(name, pods=pods, priority=5, since=NOW - waited)
        for name, pods, waited in (("older", 1, 2000), ("younger", 4, 1500))
    ]
    plan = planned(large(), older, younger, nodes={"a": 4}, rules=WEIGHED)
    assert len(evicted(plan)) == 4


@pytest.mark.parametrize("postpones", [True, False])
def test_equal_pods_are_not_placed_in_batches_behind_one_that_waits(postpones):
    guest = ran("guest", "a", 20)
    gangs = guest, first(), waiting("pod", priority=5), waiting("like-it", priority=5)
    built = world({"a": 1}, *gangs, queues=QUEUES).snapshot(NOW)
    state = open_session(built, CycleSettings(), CycleMemory(ClusterDevices()), Unwatched())
    if postpones:
        state.postpone(Action.RECLAIM, built.gangs["default/Gang/first"], NOW + 60)
    pod = built.gangs["default/Gang/pod"]
    strategy = Reclaim(state, VictimPool(state), pod, state.next_request(pod))
    like_it = built.gangs["default/Gang/like-it"]
    VictimBatch(strategy, GangQueue(state, [like_it])).run()
    assert (like_it.members[0].pod.uid in state.statement.placed) is not postpones
