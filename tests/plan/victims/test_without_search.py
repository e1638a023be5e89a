"""Candidates are listed only for gangs for which an action may find victims."""

import pytest

from kai_py.plan.actions.preempt import Preemption
from kai_py.plan.actions.reclaim import Reclaim
from kai_py.plan.plan import Action
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.worlds import gang, world

QUEUES = (QueueInfo(name="a", deserved={"gpu": 4}), QueueInfo(name="b", deserved={"gpu": 4}))


@pytest.fixture
def listed(monkeypatch):
    """The strategies that listed candidates, with the owners of their gangs."""
    found = []
    for kind in (Preemption, Reclaim):

        def recorded(self, real=kind.candidates):
            found.append((self.action, self.gang.owner.name))
            return real(self)

        monkeypatch.setattr(kind, "candidates", recorded)
    return found


def planned(*waiting, lowest=0):
    """Queue b has all 8 GPUs, half of which queue a deserves, but for one gang of a."""
    runs = gang("runs-a", pods=1, node="n", queue="a", priority=lowest)
    full = gang("runs-b", node="n", queue="b", pods=7, floor=0)
    return world({"n": 8}, runs, full, *waiting, queues=QUEUES).plan()


def test_neither_where_the_queue_is_above_its_share_and_runs_nothing_lower(listed):
    planned(gang("waits", pods=1, queue="b"), gang("waits-too", pods=1, queue="b", gpus=2))
    assert not listed


def test_for_reclaim_where_the_queue_stays_within_its_share(listed):
    plan = planned(gang("waits", pods=1, queue="a"))
    assert listed == [(Action.RECLAIM, "waits")]
    assert [each.preemptor for each in plan.evictions] == ["default/Gang/waits"]


def test_for_preempt_where_a_gang_of_lower_priority_runs(listed):
    plan = planned(gang("waits", pods=1, queue="a", gpus=4, priority=5), lowest=1)
    assert (Action.PREEMPT, "waits") in listed
    assert not plan.placements
