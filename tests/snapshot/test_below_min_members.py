"""Gangs below minMember: which of them are finishing, and since when the others are stale."""

import pytest

from kai_py.grouping.gang import is_satisfied
from kai_py.snapshot.below_min_members import StaleGangs, as_finishing, has_leaf_of
from kai_py.snapshot.gangs import PodState
from tests.support.records import replace
from tests.support.scenario import START
from tests.support.worlds import gang, subgroup

NOW = START + 1000.0
STAGES = subgroup(
    "",
    children=(
        subgroup("over", needs=0, children=(subgroup("x", 2),)),
        subgroup("next", needs=1, children=(subgroup("y", 2),)),
    ),
)


def of(total, made):
    return replace(made, total_pods=total)


@pytest.mark.parametrize(
    ("made", "succeeded", "counted", "startable"),
    [
        (gang("g", nodes="a-", floor=3), {}, 0, False),
        (gang("g", nodes="a-", floor=3), {"": 1}, 1, True),
        (gang("g", nodes="a-", floor=4), {"": 1}, 1, False),  # a pod was lost
        (gang("g", nodes="a-", floor=3), {"other": 1}, 0, False),
        (gang("g", nodes="aa", floor=3), {"": 1}, 1, False),  # no pod waits
        (gang("g", nodes="a--", floor=3), {"": 1}, 1, True),
        # Without running pods, they may be those of an earlier gang of that name.
        (gang("g", nodes="--", floor=3), {"": 1}, 1, True),
        (gang("g", nodes="--", floor=3), {"": 2}, 2, False),
        (of(4, gang("g", nodes="--", floor=3)), {"": 2}, 2, True),
        (of(3, gang("g", nodes="--", floor=3)), {"": 2}, 2, False),
        (gang("g", nodes="a-", floor=3), {"": 2}, 2, True),
        (gang("g", nodes="b-", leaves="yy", tree=STAGES), {"x": 2}, 0, True),
        (gang("g", nodes="b", leaves="y", tree=STAGES), {"y": 1}, 1, False),
        (gang("g", nodes="-", leaves="y", tree=STAGES), {"y": 1}, 1, True),
        (gang("g", nodes="-", leaves="y", tree=STAGES), {"y": 1, "x": 2}, 1, True),
    ],
)
def test_a_gang_of_which_pods_succeeded_needs_only_the_others(made, succeeded, counted, startable):
    found = as_finishing(made, succeeded)
    assert found.succeeded == counted
    exist = found.counts(PodState.PENDING, PodState.BOUND)
    assert is_satisfied(found.tree, exist) is startable


def test_gated_pods_are_needed_as_well():
    made = gang("g", nodes="a--", floor=4)
    gated = replace(made.members[2], state=PodState.GATED)
    found = as_finishing(replace(made, members=(*made.members[:2], gated)), {"": 1})
    assert found.tree.min_members == 3


@pytest.mark.parametrize(
    ("names", "has"), [((), False), (("x",), False), (("y",), True), (("next",), False)]
)
def test_a_stage_that_is_over_has_no_leaf_that_counts(names, has):
    assert has_leaf_of(STAGES, names) is has


WHOLE, PART = gang("g", nodes="aa"), gang("g", nodes="a", floor=2, created=100.0)


@pytest.mark.parametrize(
    ("seen", "made", "is_finishing", "since"),
    [
        ((), WHOLE, False, None),
        ((), replace(WHOLE, stale_since=7.0), False, None),
        ((), PART, True, None),
        ((), gang("g", nodes="--"), False, None),
        ((), PART, False, NOW),  # its pods do not tell when the other was lost
        ((WHOLE,), PART, False, NOW),
        ((), replace(PART, stale_since=NOW - 50), False, NOW - 50),
        ((), replace(PART, stale_since=NOW + 50), False, NOW),
        ((WHOLE,), replace(PART, stale_since=NOW - 50), False, NOW),
        ((), of(1, PART), False, START + 100.0),  # as all of its pods exist
        ((), of(2, PART), False, NOW),
        ((), of(2, gang("g", nodes="a-", created=300.0)), False, START + 300.0),
    ],
)
def test_a_gang_is_stale_since_it_was_seen_below_its_minimum(seen, made, is_finishing, since):
    stale = StaleGangs()
    for each in seen:
        stale.updated(each, NOW - 500.0, is_finishing=False)
    found = stale.updated(made, NOW, is_finishing=is_finishing)
    assert found.stale_since == since
    assert stale.keys == (() if since is None else (made.key,))
    again = stale.updated(made, NOW + 500.0, is_finishing=is_finishing)
    assert again.stale_since == since, "the time stays"


def test_the_last_change_of_its_pods_counts_without_those_that_leave():
    made = gang("g", nodes="a-", created=300.0)
    first, second = made.members
    left = replace(first, pod=replace(first.pod, uid="left"), state=PodState.RELEASING)
    for late, total, since in ((second, 2, START + 400.0), (first, 2, START + 300.0)):
        members = (first, replace(late, pod=second.pod, created=START + 400.0), left)
        found = StaleGangs().updated(
            replace(made, members=members, total_pods=total, tree=gang("x", pods=3).tree),
            NOW,
            is_finishing=False,
        )
        assert found.stale_since == since
    missing = replace(made, members=(first, left), total_pods=2)
    assert StaleGangs().updated(missing, NOW, is_finishing=False).stale_since == NOW


def test_a_gang_that_is_gone_is_forgotten():
    stale = StaleGangs()
    stale.updated(WHOLE, NOW, is_finishing=False)
    stale.forget(WHOLE.key)
    known = replace(PART, stale_since=NOW - 50)
    assert stale.updated(known, NOW, is_finishing=False).stale_since == NOW - 50
    stale.forget(WHOLE.key)
    assert stale.keys == ()


def test_times_that_lie_ahead_begin_again():
    stale = StaleGangs()
    stale.updated(PART, NOW, is_finishing=False)
    assert [*stale.restart(NOW - 60.0)] == []
    assert [*stale.restart(NOW - 61.0)] == [PART.key]
    assert stale.updated(PART, NOW, is_finishing=False).stale_since == NOW - 61.0
