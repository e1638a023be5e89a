"""Gangs above the share of their queue keep their answers when only other shares change."""

import random
from collections import Counter
from unittest.mock import patch

import pytest

from kai_py.plan.cycle.settled import SettledCycle
from kai_py.plan.search_cache.cache import SearchCache
from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.lost_work import NO_LOSS_RULES, LossRules
from kai_py.policy.usage_history import UsageHistory
from tests.support.examples import examples
from tests.support.scenario import cluster, job_with_pods, node, queue

WEIGHED = LossRules(patience=600.0, settling=20.0, reserve_after=300.0, by_loss=True)
QUEUES = ("a", "b", "c")


def full_cluster():
    """Two queues have all four GPUs; two pods of the first wait."""
    return cluster(
        *(queue(name) for name in QUEUES),
        node("n0", 2),
        node("n1", 2),
        job_with_pods("runs-a", 2, queue="a", node="n0"),
        job_with_pods("runs-b", 2, queue="b", node="n1"),
        job_with_pods("waits", 1, queue="a"),
        job_with_pods("waits-too", 1, queue="a", created=1.0),
    )


def messages(plan):
    return {each.gang.rpartition("/")[2]: each.message for each in plan.unplaced}


def test_another_pod_that_waits_gives_them_no_turn(turns):
    """It raises the share of processors, of which there are enough."""
    full = full_cluster()
    before = full.plan(100.0)
    assert "above its fair share of 2" in messages(before)["waits"]
    turns.clear()
    full.add(job_with_pods("new", 1, queue="a", created=50.0))
    after = full.plan(101.0)
    assert turns == ["default/Job/new"]
    assert messages(after)["waits"] == messages(before)["waits"]
    share = {each.queue: each.fair_share for each in after.queues}["a"]
    assert share["cpu"] > {each.queue: each.fair_share for each in before.queues}["a"]["cpu"]
    turns.clear()
    full.plan(102.0)
    assert not turns


def test_no_answer_is_kept_where_equal_pods_come_in_different_numbers(turns):
    """The first of them names the reason of the others, and queues may come in another order."""
    full = full_cluster()
    full.add(job_with_pods("pair", 2, queue="a", created=2.0))
    full.plan(100.0)
    turns.clear()
    full.add(job_with_pods("new", 1, queue="a", created=50.0))
    full.plan(101.0)
    assert turns == ["default/Job/waits", "default/Job/pair"]


def test_a_smaller_share_of_what_they_lack_gives_them_no_turn(turns):
    """Only the share that the answers name is another."""
    full = full_cluster()
    full.plan(100.0)
    full.add(job_with_pods("new", 1, gpus=2, queue="c", created=50.0))
    turns.clear()
    after = full.plan(101.0)
    assert "default/Job/waits" not in turns
    waits = next(each for each in after.unplaced if each.gang == "default/Job/waits")
    assert "above its fair share of 1.33" in waits.message
    assert waits.protections[0].bound == pytest.approx(4 / 3)


def test_answers_name_shares_that_only_time_changes(turns):
    """What queues have had for a while lowers their shares."""
    full = cluster(
        queue("a", weight=2),
        queue("b"),
        node("n", 4),
        job_with_pods("runs-a", 3, queue="a", node="n"),
        job_with_pods("runs-b", 1, queue="b", node="n"),
        job_with_pods("waits-a", 1, queue="a"),
        job_with_pods("waits-b", 1, queue="b"),
    )
    full.memory.history = UsageHistory(600.0)
    before = messages(full.plan(100.0))
    turns.clear()
    for now in (700.0, 5000.0):
        plan = full.plan(now)
        bounds = {each.protections[0].bound for each in plan.unplaced}
        assert bounds == {share.fair_share["gpu"] for share in plan.queues}
    assert not turns
    assert messages(plan)["waits-b"] != before["waits-b"]


def test_a_share_that_suffices_gives_them_a_turn():
    """Of three shares of 4/3 GPUs, two are left once the third queue requests none any more."""
    full = full_cluster()
    third = job_with_pods("third", 1, gpus=2, queue="c", created=50.0)
    full.add(job_with_pods("more", 2, queue="b", created=2.0), third)
    full.plan(100.0)
    fresh = full_cluster()
    fresh.add(job_with_pods("more", 2, queue="b", created=2.0))
    for each in third:
        full.remove(each)
    assert messages(full.plan(101.0)) == messages(fresh.plan(101.0))


def drawn(chance, options):
    queues = [
        queue(
            name,
            chance.choice([0, 0, 1, 2, 3]),
            chance.choice([None, None, None, 4]),
            weight=chance.randint(0, 2),
            priority=chance.choice([0, 0, 0, 1]),
        )
        for name in QUEUES
    ]
    made = cluster(*queues, *(node(f"n{i}", 3) for i in range(3)), **options)
    for number in range(9):
        name = f"r{number}"
        if chance.random() < 0.95:
            where = f"n{number // 3}"
            made.add(job_with_pods(name, 1, queue=chance.choice(QUEUES), node=where))
    # With past usage, shares change although no object does.
    made.memory.history = chance.choice([None, UsageHistory(600.0)])
    return made


def arrival(chance, number):
    """A job; those with equal pods have equally many, as else all get a turn."""
    gpus, cpu = chance.choice([0, 1, 1, 1, 2, 3, 4]), chance.choice([1, 1, 2, 30, 300])
    return job_with_pods(
        f"j{number:02d}",
        2 if (gpus, cpu) in ((1, 2), (2, 1), (4, 1)) else 1,
        gpus=gpus,
        queue=chance.choice(QUEUES),
        priority=chance.choice([0, 0, 1]),
        created=float(number),
        requests={"cpu": str(cpu)},
    )


def course(seed, options, *, cached):
    """The plans while pods come that may wait, leave again, and sometimes only time passes."""
    chance = random.Random(seed)
    made = drawn(chance, options)
    if not cached:
        made.memory.search_cache = SearchCache(enabled=False)
    waiting, now = [], 100.0
    for number in range(14):
        change = chance.random()
        if waiting and change < 0.25:
            for each in waiting.pop(chance.randrange(len(waiting))):
                made.remove(each)
        elif change < 0.9:
            waiting.append(arrival(chance, number))
            made.add(waiting[-1])
        now += chance.choice([0.0, 1.0, 200.0])
        plan = made.plan(now)
        yield plan
        started = {each.pod.name for gang in plan.placements for each in gang.pods}
        if started or plan.evictions:
            # What the plan decides does not come about, so that pods go on waiting.
            for each in list(waiting):
                if started & {one.metadata.name for one in each}:
                    waiting.remove(each)
                    for one in each:
                        made.remove(one)


@pytest.mark.slow
@pytest.mark.parametrize("rules", [NATIVE, KAI], ids=["native", "kai"])
@pytest.mark.parametrize(
    "loss_rules", [pytest.param(NO_LOSS_RULES, id="plain"), pytest.param(WEIGHED, id="weighed")]
)
def test_plans_are_those_of_a_scheduler_that_remembers_nothing(rules, loss_rules):
    kept, options = Counter(), {"rules": rules, "loss_rules": loss_rules}
    real = SettledCycle._still_refused

    def counted(self, quota):
        found = real(self, quota)
        kept["answers"] += len(found)
        return found

    with patch.object(SettledCycle, "_still_refused", counted):
        for seed in range(examples(12)):
            plans = zip(
                course(seed, options, cached=True), course(seed, options, cached=False), strict=True
            )
            for number, (with_memory, without) in enumerate(plans):
                assert with_memory == without, (seed, number)
    assert kept["answers"] > examples(12)
