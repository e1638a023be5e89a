"""The clock was hours ahead and is set right: what waits for a time does not wait for hours."""

import numpy as np
import pytest

from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.observations import SetAside
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.startups import Attempts, Blame, Startups
from kai_py.plan.session.turns import backoff_after
from kai_py.plan.state.eviction_history import EvictionHistory
from kai_py.policy.usage_history import ExternalUsage
from kai_py.snapshot.tables.ended_pods import Completions
from kai_py.snapshot.tables.queues import EvictionRecord, QueueInfo
from tests.plan.test_refusals import refused
from tests.support.records import replace
from tests.support.scenario import START, cluster, evicted, job, node, placed, pod, queue
from tests.support.worlds import gang, world

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


def test_a_device_that_was_avoided():
    made = waiting()
    made.builder.avoid_device(("gpu.nvidia.com", "a", "gpu-0"), "Broken", 60.0)
    made.snapshot(10_000.0)
    assert made.snapshot(9990.0).next_device == START + 10_060
    assert made.snapshot(1000.0).next_device == float("inf")


def test_a_node_that_refused_a_pod():
    owner = job("train", 1, "q")
    first, second = (pod(f"train-{number}", 1, owner=owner) for number in range(2))
    made = cluster(node("a", 1), queue("q", 8), owner, first)
    made.plan(20_000)
    made.add(refused(first, "a", 20_000.0), second)
    assert not placed(made.plan(20_001))
    assert placed(made.plan(1000)) == {"train-1": "a"}


def two_tenants(time):
    blames = [Blame(time, f"queue-{n}", f"namespace-{n}", f"gang-{n}") for n in range(2)]
    return Startups(blames={"a": tuple(blames)}, device_blames={("d", "p", "0"): tuple(blames)})


@pytest.mark.parametrize(("time", "counts"), [(HOURS_AHEAD, False), (START + 1030, True)])
def test_nodes_and_devices_on_which_gangs_did_not_get_ready(time, counts):
    startups = two_tenants(time)
    startups.observe(waiting().snapshot(1000), {})
    assert (bool(startups.avoided()), bool(startups.device_blames)) == (counts, counts)


@pytest.mark.parametrize(("time", "counts"), [(13_000.0, False), (1030.0, True)])
def test_evictions_in_the_status_of_a_queue(time, counts):
    past = EvictionHistory()
    past.restore([QueueInfo(name="q", evictions=(EvictionRecord("g", time, 2),))])
    assert past.evicted_last_hour(1000.0) == ({"q": 2} if counts else {"q": 0})
    assert past.in_cooldown(1000.0, 60.0) == frozenset(["g"] if counts else [])
    past.prune(1000.0, 60.0)
    assert bool(past.by_queue) is counts


def test_evictions_of_this_process():
    low, urgent = gang("low", node="a", pods=1), gang("urgent", pods=1, priority=10)
    [each] = world({"a": 1}, low, urgent).plan().evictions
    past = EvictionHistory()
    for name, time in (("then", 1000.0), ("ahead", 50_000.0), ("now", 1010.0)):
        past.record([replace(each, gang=name)], time)
    assert past.in_cooldown(1020.0, 60.0) == frozenset(["then", "now"])
    assert [len(past.times_of(name, 1020.0)) for name in ("then", "ahead", "now")] == [1, 0, 1]


def test_a_gang_below_min_member_has_its_grace_again_and_no_more():
    owner = job("train", 2, "q")
    pods = [pod(f"train-{number}", 1, owner=owner, node="a") for number in range(2)]
    made = cluster(node("a", 2), queue("q", 8), owner, pods)
    made.plan(20_000)
    made.remove(pods[1])
    assert not evicted(made.plan(20_010))
    assert not evicted(made.plan(1000))
    assert evicted(made.plan(1061))


def test_when_a_gang_was_first_not_ready():
    startups = Startups(since={"g": (HOURS_AHEAD, HOURS_AHEAD)})
    made = cluster(node("a", 1), queue("q", 8), pod("g", queue="q", node="a"))
    [key] = made.snapshot(1000).gangs
    startups.since = {key: (HOURS_AHEAD, HOURS_AHEAD)}
    startups.observe(made.snapshot(1000), {})
    startups.observe(made.snapshot(1061), {})
    assert not startups.since


def test_usage_that_another_source_measured():
    usage = ExternalUsage(stale_after=300.0)
    usage.record({"q": {"gpu": 2.0}}, 10_000.0)
    total = np.array([4.0])
    assert usage.fractions(10_100.0, ["q"], ["gpu"], total).tolist() == [[0.5]]
    assert usage.fractions(1000.0, ["q"], ["gpu"], total).tolist() == [[0.0]]


def test_pods_that_have_just_succeeded():
    completions = Completions()
    completions.note(pod("done"))
    assert completions.snapshot(10_000.0)
    assert not completions.snapshot(1000.0)


def test_capacity_for_pods_that_their_framework_has_not_created():
    base = world({"a": 4}, gang("part", node="a", pods=1)).snapshot(1000.0)
    [(key, one)] = base.gangs.items()
    [member] = one.bound
    ahead = replace(member, bound_since=50_000.0)
    held = replace(one, members=(ahead,), placeholders=(member,))
    snapshot = replace(base, gangs={key: held}, started_in_part=(key,))
    [hold] = capacity_holds(snapshot, 60.0)
    assert hold.is_over
