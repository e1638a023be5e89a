"""The clock was hours ahead and is set right: what waits for a time does not wait for hours."""

import pytest

from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import SetAside, Stage
from kai_py.plan.session.startups import Attempts
from kai_py.plan.session.turns import backoff_after
from tests.support.scenario import START, cluster, node, pod, queue

HOURS_AHEAD = START + 3 * 3600
GANG = "default/Pod/waits"


def waiting():
    return cluster(node("a", 1), queue("team", 8), pod("waits", queue="team"))


def starts(world):
    return [gang.gang for gang in world.plan(now=1000).placements] == [GANG]


def test_after_failed_bindings():
    world = waiting()
    world.builder.back_off(GANG, HOURS_AHEAD + 5)
    assert starts(world)


def test_set_aside():
    world = waiting()
    failed = SetAside(GANG, "planning it failed", "an error")
    world.memory.backoffs[GANG] = backoff_after(failed, 1, HOURS_AHEAD)
    assert starts(world)


@pytest.mark.parametrize(("until", "starting"), [(HOURS_AHEAD, True), (START + 1060, False)])
def test_after_starts_without_getting_ready(until, starting):
    world = waiting()
    uid = world.snapshot().gangs[GANG].owner.uid
    reason = Unschedulable(Stage.BACKOFF, "it did not get ready")
    world.memory.startups.attempts[GANG] = Attempts(uid, 1, 0.0, 0.0, until - 60, until, reason)
    assert starts(world) is starting


def test_capacity_nominated_before():
    world = waiting()
    world.builder.nominate("pod-waits", "a", HOURS_AHEAD)
    assert not world.snapshot().nominations
    # A correction by seconds changes nothing.
    world.builder.nominate("pod-waits", "a", START + 1010)
    assert world.snapshot().nominations
