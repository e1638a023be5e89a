"""The search as a whole: fairness, budgets and rotation.

Candidates are listed only for gangs for which an action may find victims.
"""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.preempt import Preemption
from kai_py.plan.actions.reclaim import Reclaim
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import KAI
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import cluster, evicted, job, node, pod, queue
from tests.support.worlds import gang, kept_world, member, world


def test_a_gang_of_preemption_policy_never_disturbs_no_pod():
    plan = cluster(
        node("a", 1),
        queue("team", 8),
        pod("low", queue="team", node="a"),
        pod("meek", queue="team", priority=10, preemption_policy="Never"),
    ).plan()
    assert evicted(plan) == []


def three_above_their_due(*more, **settings):
    """8 GPUs full of one-GPU pods; 3 of them may be lost."""
    queues = [
        QueueInfo(name="rich", deserved={"gpu": 5.0}),
        QueueInfo(name="poor", deserved={"gpu": 4.0}),
    ]
    running = [gang(f"r{i}", nodes="ab"[i // 4], queue="rich", created=i) for i in range(8)]
    return world({"a": 4, "b": 4}, *running, *more, queues=queues, rules=KAI, **settings)


def test_too_few_gpus_that_may_be_lost_are_a_no():
    """The search finds out: fairness refuses the fourth, and what is left is not enough."""
    needy = gang("new", pods=1, gpus=4, queue="poor", created=50)
    plan = three_above_their_due(needy).plan()
    assert evicted(plan) == []
    assert [each.stage for each in plan.unplaced] == [Stage.VICTIMS_PROTECTED]


def test_all_that_may_be_lost_can_be_won():
    plan = three_above_their_due(gang("new", pods=1, gpus=3, queue="poor", created=50)).plan()
    assert evicted(plan) == ["r5-0", "r6-0", "r7-0"]


def test_a_search_without_probes_left_says_so():
    plan = world(
        {"a": 1},
        gang("low", node="a", pods=1),
        gang("urgent", pods=1, priority=10),
        victim_probes=1,
        victim_probes_per_gang=1,
        actions=(Action.ALLOCATE, Action.PREEMPT),
    )
    assert evicted(plan.plan()) == ["low-0"]
    none_left = kept_world(plan, victim_probes=0)
    assert none_left.plan().unplaced[0].stage is Stage.SEARCH_BUDGET


def test_job_sizes_are_floors():
    owner = job("low", 4, "team")
    plan = cluster(
        node("a", 4),
        queue("team", 8),
        owner,
        [pod(f"low-{i}", owner=owner, node="a", priority=1) for i in range(4)],
        pod("urgent", 1, queue="team", priority=10),
    ).plan()
    assert len(evicted(plan)) == 4


def test_w20_a_gang_that_spends_the_budget_does_not_come_first_in_the_next_cycle():
    """ "Mixed" needs several trials, and one is all there is; "simple" comes later in the order."""
    mixed = gang("mixed", pods=2, priority=20)
    mixed = replace(mixed, members=(mixed.members[0], member("mixed-1", 2, "", priority=20)))
    full = world(
        {"a": 1, "b": 2},
        *(gang(f"low{i}", node="abb"[i], pods=1, created=i) for i in range(3)),
        mixed,
        gang("simple", pods=1, priority=10),
        victim_probes=1,
        actions=(Action.ALLOCATE, Action.PREEMPT),
    )
    memory = CycleMemory(ClusterDevices())
    cycle_settings = CycleSettings(**full.settings)
    cycles = [run_cycle(full.snapshot(1000.0), cycle_settings, memory) for _ in range(2)]
    beneficiaries = [{each.preemptor for each in plan.evictions} for plan in cycles]
    assert beneficiaries == [set(), {"default/Gang/simple"}]


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
