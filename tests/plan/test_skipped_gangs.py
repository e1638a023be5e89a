"""Gangs that are equivalent to one that has failed get no turn, and the same answer."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.plan import Action
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.skipped_gangs import SkippedGangs
from kai_py.plan.victims.solver import VictimSolver
from kai_py.snapshot.tables.queues import QueueInfo
from tests.plan.mixed_worlds import backlogged_world
from tests.support.examples import examples
from tests.support.scenario import budget, cluster, job_with_pods, node, placed, queue
from tests.support.worlds import gang, world


def waiting(count, pods=1, **options):
    """As many Jobs that request the same; each is younger than the one before."""
    return [
        job_with_pods(f"waits-{pods}-{i:02}", pods, created=float(i), **options)
        for i in range(count)
    ]


def full_cluster(*added, **options):
    """Four GPUs, which the Jobs of two queues use; ``options``: of the pods of queue a."""
    return cluster(
        [queue(name, 2) for name in "ab"],
        [node(f"n{i}", 2) for i in range(2)],
        job_with_pods("runs-a", 2, queue="a", node="n0", **options),
        job_with_pods("runs-b", 2, queue="b", node="n1"),
        *added,
    )


def names(keys):
    return [key.rpartition("/")[2] for key in keys]


def messages(plan):
    return {names([each.gang])[0]: each.message for each in plan.unplaced}


def started(plan):
    nominated = {each.pod.name for each in plan.nominations}
    return nominated | set(placed(plan))


def without_skipping(world):
    with patch.object(SkippedGangs, "add_failed", lambda *_: None):
        return world.plan()


@pytest.fixture
def searches():
    """The keys of the gangs for which preempt and reclaim looked for victims."""
    seen, original = [], VictimSolver.solve

    def solve(solver, strategy, *variant):
        seen.append(strategy.gang.key)
        return original(solver, strategy, *variant)

    with patch.object(VictimSolver, "solve", solve):
        yield seen


def test_one_gang_of_a_class_gets_a_turn(turns, searches):
    """A budget protects what they could preempt, which only a search shows."""
    gangs = [each for pods in (1, 2) for each in waiting(20, pods, queue="a", priority=1)]
    plan = full_cluster(*gangs, budget(0), labels={"app": "web"}).plan(100.0)
    assert names(turns) == ["waits-1-00", "waits-2-00"]
    assert set(names(searches)) == {"waits-1-00", "waits-2-00"}
    assert len(plan.unplaced) == 40


def test_no_gang_gets_a_turn_that_may_preempt_and_reclaim_nothing(turns, searches):
    gangs = [each for pods in (1, 2) for each in waiting(20, pods, queue="a")]
    assert len(full_cluster(*gangs).plan(100.0).unplaced) == 40
    assert names(turns) == ["waits-1-00", "waits-2-00"]
    assert not searches


def test_a_single_queue_skips_them_too(turns):
    full = cluster(queue("a"), node("n0", 2), job_with_pods("runs", 2, queue="a", node="n0"))
    full.add(*waiting(20, queue="a"))
    assert len(full.plan(100.0).unplaced) == 20
    assert names(turns) == ["waits-1-00"]


def test_each_names_its_own_pod():
    found = messages(full_cluster(*waiting(3, pods=3, queue="a")).plan())
    assert found == messages(without_skipping(full_cluster(*waiting(3, pods=3, queue="a"))))


@pytest.mark.parametrize(
    "other",
    [
        {"queue": "b"},
        {"queue": "a", "priority": 5},
        {"queue": "a", "gpus": 2},
        {"queue": "a", "pods": 2},
        {"queue": "a", "requests": {"cpu": "2"}},
    ],
)
def test_gangs_that_differ_get_turns_of_their_own(turns, other):
    full = full_cluster(*waiting(3, queue="a"), job_with_pods("other", **{"pods": 1, **other}))
    full.plan(100.0)
    assert sorted(names(turns)) == ["other", "waits-1-00"]


@pytest.fixture
def backlog():
    """The gang queue of two queues with three equal gangs each; the one of b has a fourth kind."""
    gangs = [
        gang(f"{name}{i}", pods=1, queue=name, created=i) for name in ("a", "b") for i in range(3)
    ]
    queues = [QueueInfo(name=name, deserved={"gpu": 1.0}) for name in ("a", "b")]
    other = gang("other", gpus=2, pods=1, queue="b", created=9)
    each = world({"n0": 1}, *gangs, other, queues=queues)
    state = each.session()
    return GangQueue(state, [state.snapshot.gangs[key] for key in state.snapshot.pending])


def pop(gang_queue, count):
    return [found and names([found.key])[0] for found in (gang_queue.pop() for _ in range(count))]


def fail_next(gang_queue):
    """Pop the next gang, which fails."""
    found = gang_queue.pop()
    gang_queue.skip_equivalent(found)
    return names([found.key])[0]


def test_all_come_again_in_their_order_once_capacity_has_grown(backlog):
    assert [fail_next(backlog) for _ in range(3)] == ["a0", "b0", "other"]
    assert backlog.pop() is None
    assert {names([gang.key])[0] for gang, _ in backlog.skipped()} == {"a1", "a2", "b1", "b2"}
    backlog.resume_all()
    assert not list(backlog.skipped())
    assert sorted(pop(backlog, 4)) == ["a1", "a2", "b1", "b2"]


def test_one_of_a_class_comes_again_after_the_other(backlog):
    assert [fail_next(backlog) for _ in range(3)] == ["a0", "b0", "other"]
    assert backlog.pop() is None
    backlog.resume_first()
    assert fail_next(backlog) == "a1"
    assert pop(backlog, 3) == ["b1", "b2", None]
    assert [names([gang.key]) for gang, _ in backlog.skipped()] == [["a2"]]
    backlog.resume_first()
    assert pop(backlog, 2) == ["a2", None]


def test_they_keep_their_order_when_skipped_again(backlog):
    first = backlog.pop()
    backlog.skip_equivalent(first)
    assert pop(backlog, 1) == ["b0"]
    backlog.resume_first()
    backlog.skip_equivalent(first)
    backlog.update_all()
    backlog.resume_first()
    assert [name for name in pop(backlog, 5) if name[0] == "a"] == ["a1", "a2"]


@pytest.mark.parametrize("seed", [40, 66, 416])
def test_what_victims_release_goes_to_gangs_that_were_skipped(seed):
    plan, expected = backlogged_world(seed).plan(), without_skipping(backlogged_world(seed))
    assert started(plan) > started(expected)


@pytest.mark.parametrize(
    ("seed", "gang", "part"),
    [
        (69, "equal-1", "capacity is being freed for 1 pod"),  # its node drains: it was placed
        (152, "equal-8", "3 requested, most free 0 on n0"),  # tried again after an eviction
    ],
)
def test_an_answer_is_up_to_date(seed, gang, part):
    assert part in messages(backlogged_world(seed).plan())[gang]


PROVEN = {"placed": (), "searched": {"g": False}, "cut_short": (), "too_many": (), "postponed": ()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"placed": {"pod-g"}}, False),
        ({"searched": {"g": True}}, False),
        ({"cut_short": {"g"}}, False),
        ({"too_many": {"g"}}, False),
        ({"postponed": {(Action.PREEMPT, "g")}}, False),
        ({"postponed": {(Action.RECLAIM, "g")}}, True),
    ],
)
def test_nothing_is_proven_by_a_search_that(change, expected):
    case = SimpleNamespace(**PROVEN | change)
    budgets = SimpleNamespace(
        searched=case.searched, cut_short=case.cut_short, too_many_pods=case.too_many
    )
    solver = SimpleNamespace(
        _action=Action.PREEMPT,
        _state=SimpleNamespace(
            search_budgets=budgets,
            statement=SimpleNamespace(placed=case.placed),
            postponed=case.postponed,
        ),
    )
    first = SimpleNamespace(pod=SimpleNamespace(uid="pod-g"))
    strategy = SimpleNamespace(
        gang=SimpleNamespace(key="g"), request=SimpleNamespace(members=(first,))
    )
    assert VictimSolver.is_proven(solver, strategy) is expected


def test_gangs_that_may_wait_for_pods_to_end_get_their_turns(turns):
    with patch.object(Turnover, "may_wait", lambda *_: True):
        full_cluster(*waiting(5, queue="a")).plan(100.0)
    assert len(turns) == 5


@pytest.mark.parametrize("seed", range(examples(120)))
def test_plans_are_the_same_where_nothing_is_evicted(seed):
    plan, expected = backlogged_world(seed).plan(), without_skipping(backlogged_world(seed))
    assert started(plan) >= started(expected)
    if not (plan.evictions or expected.evictions):
        assert placed(plan) == placed(expected)
        assert plan.nominations == expected.nominations
        assert messages(plan) == messages(expected)
