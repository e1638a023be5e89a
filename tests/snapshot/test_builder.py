"""Feeding changes one by one must give what building from scratch gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.core import Condition
from kai_py.grouping.admitted import ADMITTED_KEY, Terms
from kai_py.plan.plan import Stage
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.gangs import PodState
from tests.support.examples import examples
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
)

GPU = "nvidia.com/gpu"


def used(snapshot, name):
    row = snapshot.nodes.positions[name]
    return {
        resource: snapshot.used[position, row]
        for resource, position in snapshot.resources.positions.items()
        if snapshot.used[position, row]
    }


states = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["", "n0", "n1", "n2"]),
        "phase": st.sampled_from(["Pending", "Running", "Succeeded"]),
        "gpus": st.integers(0, 3),
        "leaving": st.booleans(),
        "created": st.sampled_from([0.0, 5.0]),
    }
)
TRAIN = job("train", 2, queue="team")
events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 4), states),
        st.tuples(st.just("gone"), st.integers(0, 4)),
        st.tuples(st.just("assume"), st.integers(0, 4), st.sampled_from(["n0", "n1"])),
        st.tuples(st.just("forget"), st.integers(0, 4)),
        st.tuples(st.just("job"), st.sampled_from(["team", "other"])),
        st.tuples(st.just("node"), st.integers(0, 2), st.integers(0, 8)),
        st.tuples(st.just("node_gone"), st.integers(0, 2)),
        st.tuples(st.just("freeze")),
    ),
    min_size=12,
    max_size=40,
)


class Followed:
    """A cluster that hears of changes one by one, and what is there and assumed by then."""

    def __init__(self):
        self.world = cluster(queue("team", 8))
        self.live = {}
        self.assumed = {}

    def pod(self, number, state):
        owner = TRAIN if number else None
        each = pod(f"p{number}", queue="" if owner else "team", owner=owner, **state)
        self.live["pod", number] = each
        self.world.add(each)
        if state["node"] or state["phase"] == "Succeeded":
            self.assumed.pop(number, None)

    def gone(self, number):
        if ("pod", number) in self.live:
            self.world.remove(self.live.pop(("pod", number)))
            self.assumed.pop(number, None)

    def assume(self, number, at):
        each = self.live.get(("pod", number))
        if each and not each.spec.node_name and each.status.phase != "Succeeded":
            self.assumed[number] = at
            self.world.builder.assume(AssumedBinding(each.metadata.uid, at))

    def forget(self, number):
        self.assumed.pop(number, None)
        self.world.builder.forget(f"pod-p{number}")

    def job(self, team):
        """The queue of the Job; pods on nodes would stay in theirs, and no record tells it here."""
        numbers = range(1, 5)
        pods = (self.live.get(("pod", number)) for number in numbers)
        on_nodes = any(pod and pod.spec.node_name for pod in pods)
        if "job" in self.live and (on_nodes or self.assumed.keys() & set(numbers)):
            return
        self.live["job"] = job("train", 2, queue=team)
        self.world.add(self.live["job"])

    def node(self, number, gpus):
        self.live["node", number] = node(f"n{number}", gpus)
        self.world.add(self.live["node", number])

    def node_gone(self, number):
        if ("node", number) in self.live:
            self.world.remove(self.live.pop(("node", number)))

    def freeze(self):
        return self.world.snapshot()

    def rebuilt(self):
        fresh = cluster(queue("team", 8), *self.live.values())
        for number, at in self.assumed.items():
            uid = self.live["pod", number].metadata.uid
            fresh.builder.assume(AssumedBinding(uid, at))
        return fresh.snapshot()


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(events)
def test_incremental_equals_rebuilt(changes):
    told = Followed()
    for what, *about in changes:
        getattr(told, what)(*about)
    followed, fresh = told.freeze(), told.rebuilt()
    assert followed.nodes.names == fresh.nodes.names
    for name in fresh.nodes.names:
        assert used(followed, name) == used(fresh, name)
    for resource, position in fresh.resources.positions.items():
        ours = followed.resources.positions[resource]
        assert np.array_equal(followed.releasing[ours], fresh.releasing[position])
        assert np.array_equal(followed.nodes.allocatable[ours], fresh.nodes.allocatable[position])
    assert {
        k: [(m.pod, m.state, m.node) for m in g.members] for k, g in followed.gangs.items()
    } == {k: [(m.pod, m.state, m.node) for m in g.members] for k, g in fresh.gangs.items()}
    for gang in followed.gangs.values():
        assert list(gang.members) == sorted(gang.members, key=lambda m: (m.created, m.pod))
    assert followed.pending == fresh.pending
    assert nonzero(followed.queue_allocated) == nonzero(fresh.queue_allocated)
    assert nonzero(followed.queue_requested) == nonzero(fresh.queue_requested)
    assert nonzero(followed.queue_non_preemptible) == nonzero(fresh.queue_non_preemptible)
    gangs = sorted(followed.gangs.items())
    assert followed.below_min_members == tuple(key for key, g in gangs if g.stale_since is not None)
    assert followed.started_in_part == tuple(
        key for key, g in gangs if g.starts_in_part and g.bound
    )


def nonzero(ledger):
    kept = {queue: {r: a for r, a in usage.items() if a} for queue, usage in ledger.items()}
    return {queue: usage for queue, usage in kept.items() if usage}


def test_a_frozen_snapshot_does_not_change():
    world = cluster(node("a"), queue("team", 8), pod("p", queue="team", node="a"))
    before = world.snapshot()
    copy = before.used.copy()
    world.add(pod("q", queue="team", node="a"))
    assert np.array_equal(before.used, copy)
    assert not before.used.flags.writeable
    assert list(before.gangs) == ["default/Pod/p"]


def test_the_pods_of_a_gang_stand_in_order_also_when_one_changes_its_place():
    owner = job("train", 2, queue="team")
    first, second = (pod(f"p{i}", owner=owner, created=float(i)) for i in range(2))
    world = cluster(queue("team", 8), owner, second, first)
    assert names(world, "default/Job/train") == ["p0", "p1"]
    world.add(pod("p0", owner=owner, created=2.0))
    assert names(world, "default/Job/train") == ["p1", "p0"]


def names(world, gang):
    return [member.pod.name for member in world.snapshot().gangs[gang].members]


def test_an_assumed_pod_holds_its_capacity_until_forgotten():
    waiting = pod("p", 2, queue="team")
    world = cluster(node("a"), queue("team", 8), waiting)
    uid = waiting.metadata.uid
    world.builder.assume(AssumedBinding(uid, "a"))
    assumed = world.snapshot()
    assert world.builder.assumed_node(uid) == "a"
    assert used(assumed, "a")[GPU] == 2
    assert assumed.pending == ()
    assert assumed.queue_allocated["team"]["gpu"] == 2
    world.builder.forget(uid)
    assert used(world.snapshot(), "a") == {}
    assert world.snapshot().pending == ("default/Pod/p",)


def test_an_assumption_ends_when_the_watch_shows_the_binding():
    waiting = pod("p", 2, queue="team")
    world = cluster(node("a"), node("b"), queue("team", 8), waiting)
    world.builder.assume(AssumedBinding(waiting.metadata.uid, "a"))
    world.add(pod("p", 2, queue="team", node="b"))
    assert world.builder.assumed_node(waiting.metadata.uid) == ""
    world.builder.forget(waiting.metadata.uid)
    assert used(world.snapshot(), "b")[GPU] == 2
    assert used(world.snapshot(), "a") == {}


def counting_parses(world):
    """The pods whose gang is identified from now on."""
    parsed = world.builder._tables.parsed_pods
    identify, seen = parsed._identify, []
    parsed._identify = lambda pod, owners: seen.append(pod) or identify(pod, owners)
    return seen


def bound(waiting, node="a", **metadata):
    """The pod as a binding to ``node`` leaves it."""
    status = replace(waiting.status, conditions=(Condition(type="PodScheduled", status="True"),))
    meta = replace(waiting.metadata, **{"resource_version": "2", **metadata})
    return replace(
        waiting, metadata=meta, spec=replace(waiting.spec, node_name=node), status=status
    )


def parses_of_a_binding(waiting, **metadata):
    """How often the gang of a pod is identified again as the watch shows its assumed binding."""
    world = cluster(node("a"), queue("team", 8), TRAIN, waiting)
    world.builder.assume(AssumedBinding(waiting.metadata.uid, "a"))
    seen = counting_parses(world)
    world.add(bound(waiting, **metadata))
    assert used(world.snapshot(), "a")[GPU] == 2
    return len(seen)


def test_a_binding_that_changes_nothing_else_is_not_parsed_again():
    waiting = pod("p", 2, owner=TRAIN)
    assert parses_of_a_binding(waiting) == 0
    assert parses_of_a_binding(waiting, annotations={ADMITTED_KEY: Terms(queue="team").text()}) == 0


def test_a_binding_after_another_change_is_parsed():
    waiting = pod("p", 2, queue="team")
    assert parses_of_a_binding(waiting, annotations={"note": "new"}) == 1
    assert parses_of_a_binding(waiting, labels={"app": "web"}) == 1


def test_a_binding_with_a_record_of_a_share_is_parsed():
    record = Terms(queue="team", share=GpuShare(fraction=0.5), gpus={"group": 0})
    annotations = {ADMITTED_KEY: record.text()}
    assert parses_of_a_binding(pod("p", 2, owner=TRAIN), annotations=annotations) == 1


def test_a_change_of_state_is_not_parsed():
    waiting = pod("p", 2, owner=TRAIN)
    runs = bound(waiting)
    world = cluster(node("a"), queue("team", 8), TRAIN, waiting, runs)
    seen = counting_parses(world)
    status = replace(runs.status, phase="Running")
    running = replace(runs, metadata=replace(runs.metadata, resource_version="3"), status=status)
    world.add(running)
    world.builder.expect_eviction(running.metadata.uid)
    world.builder.cancel_eviction(running.metadata.uid)
    ends = pod("other", leaving=True).metadata.deletion_timestamp
    leaving = replace(running.metadata, resource_version="4", deletion_timestamp=ends)
    world.add(replace(running, metadata=leaving))
    assert seen == []
    (gang,) = world.snapshot().gangs.values()
    assert [member.state for member in gang.members] == [PodState.RELEASING]


def test_of_a_pod_that_is_ready_nothing_parsed_is_cached():
    waiting = pod("p", 2, owner=TRAIN)
    runs = bound(waiting)
    world = cluster(node("a"), queue("team", 8), TRAIN, waiting, runs)
    cached = world.builder._tables.parsed_pods._cached
    assert list(cached) == [runs.metadata.uid]
    ready = (Condition(type="Ready", status="True"),)
    world.add(replace(runs, status=replace(runs.status, phase="Running", conditions=ready)))
    assert not cached
    assert used(world.snapshot(), "a")[GPU] == 2


def test_what_a_pod_names_is_looked_at_again_wherever_it_is():
    waiting = pod("p", 2, owner=TRAIN)
    world = cluster(node("a"), queue("team", 8), waiting, bound(waiting))
    assert world.snapshot().gangs["default/Job/train"].total_pods == 0
    world.add(TRAIN)
    assert world.snapshot().gangs["default/Job/train"].total_pods == 2


def test_pods_of_other_schedulers_hold_capacity_and_are_no_gangs():
    world = cluster(node("a"), pod("x", 3, node="a", scheduler_name="default-scheduler"))
    assert used(world.snapshot(), "a")[GPU] == 3
    assert world.snapshot().gangs == {}


def test_a_late_owner_turns_its_pods_into_a_gang():
    owner = job("train", 2, "team")
    world = cluster(node("a"), queue("team", 8), pod("t-0", owner=owner), pod("t-1", owner=owner))
    assert "was not found" in world.snapshot().gangs["default/Job/train"].problem
    (waiting,) = world.plan().unplaced
    assert waiting.stage is Stage.BELOW_MIN_MEMBER, "how many more pods there will be is unknown"
    world.add(owner)
    gang = world.snapshot().gangs["default/Job/train"]
    assert (gang.queue, gang.tree.min_members, gang.problem) == ("team", 2, "")
    assert [m.state for m in gang.members] == [PodState.PENDING] * 2


def test_a_node_event_that_changes_nothing_relevant_keeps_the_columns():
    world = cluster(node("a"), node("b"))
    columns = world.snapshot().nodes
    world.add(node("a"))
    assert world.snapshot().nodes is columns
    world.add(node("a", unschedulable=True))
    changed = world.snapshot().nodes
    assert changed.generation != columns.generation
    assert list(changed.unschedulable) == [True, False]


def test_a_pod_under_eviction_counts_as_leaving_until_it_is_refused():
    running = pod("p", 2, queue="team", node="a")
    world = cluster(node("a"), queue("team", 8), running)
    world.builder.expect_eviction(running.metadata.uid)
    leaving = world.snapshot()
    assert leaving.releasing[leaving.resources.positions[GPU], 0] == 2
    assert [m.pod.name for m in leaving.terminating] == ["p"]
    assert not leaving.queue_allocated["team"].get("gpu")
    world.builder.cancel_eviction(running.metadata.uid)
    staying = world.snapshot()
    assert not staying.releasing.any()
    assert staying.terminating == ()
    assert staying.queue_allocated["team"]["gpu"] == 2


def test_a_gang_remembers_which_pods_succeeded():
    owner, *pods = job_with_pods("train", 3, queue="team", node="a")
    world = cluster(node("a"), owner, pods)
    assert world.snapshot().gangs["default/Job/train"].succeeded == 0
    ended = replace(pods[0], status=replace(pods[0].status, phase="Succeeded"))
    failed = replace(pods[1], status=replace(pods[1].status, phase="Failed"))
    gang = world.add(ended, failed).snapshot().gangs["default/Job/train"]
    assert (gang.succeeded, len(gang.members)) == (1, 1)
    assert world.remove(ended).snapshot().gangs["default/Job/train"].succeeded == 0


def test_pods_that_succeeded_a_moment_ago_are_named_but_not_those_that_were_deleted():
    running = [pod(name, 1, queue="q", node="a") for name in ("done", "failed", "deleted", "gone")]
    world = cluster(node("a"), queue("q", 8), running)
    done, failed, _, gone = running
    world.add(
        replace(done, status=replace(done.status, phase="Succeeded")),
        replace(failed, status=replace(failed.status, phase="Failed")),
        pod("deleted", 1, queue="q", node="a", leaving=True, phase="Succeeded"),
    ).remove(gone)
    assert world.snapshot(1000).completed == {done.metadata.uid}
    assert world.remove(done).snapshot(1060).completed == {done.metadata.uid}
    assert world.snapshot(1061).completed == frozenset()


def test_a_pod_that_ends_counts_in_the_gang_that_it_names_then():
    owner, *pods = job_with_pods("train", 3, queue="team", node="a")
    ended = [replace(each, status=replace(each.status, phase="Succeeded")) for each in pods]
    world = cluster(node("a"), job("later", 3, "team"), owner, pods[0], pods[2], ended[1])
    moved = pod("train-0", owner=job("later", 3, "team"), node="a", phase="Succeeded")
    gangs = world.add(moved).snapshot().gangs
    assert [gang.succeeded for gang in gangs.values()] == [1], "never seen to run"
    other = pod("other", owner=job("later", 3, "team"), node="a")
    assert world.add(other).snapshot().gangs["default/Job/later"].succeeded == 1


def test_capacity_of_a_pod_that_should_have_left_long_ago_is_not_counted_on():
    leaving = pod("old", 8, queue="q", node="a", leaving=True)
    world = cluster(node("a"), queue("q", 16), leaving, pod("new", 8, queue="q"))
    plan = world.plan(now=1119)
    assert [each.pod.name for each in plan.nominations] == ["new"]
    assert world.plan(now=1120).nominations == ()
    gpus = world.snapshot(1120).resources.positions["nvidia.com/gpu"]
    assert world.snapshot(1120).used[gpus, 0] == 8, "it holds its capacity until it is gone"
    world.remove(leaving)
    assert placed(world.plan(now=1121)) == {"new": "a"}


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_devices_of_a_leaving_pod_are_counted_on_until_it_should_have_left(scheduler):
    held = claim("held", 1, owner="old", held_by=("old",), on=(("a", "gpu-0"),))
    old = pod("old", 0, queue="q", node="a", leaving=True, scheduler_name=scheduler)
    leaving = claiming(old, "held")
    wanted = claim("wanted", 1, owner="new")
    world = cluster(
        node("a", 0), gpu_slice("a", 1), device_class(), queue("q", 4), held, leaving, wanted
    ).add(claiming(pod("new", 0, queue="q"), "wanted"))
    assert [each.pod.name for each in world.plan(now=1119).nominations] == ["new"]
    assert world.plan(now=1120).nominations == ()
    world.remove(leaving, held)
    assert placed(world.plan(now=1121)) == {"new": "a"}


def test_no_eviction_is_expected_of_a_pod_that_is_gone():
    running = pod("p", queue="team", node="n")
    world = cluster(node("n"), queue("team", 8), running)
    world.remove(running)
    world.builder.expect_eviction(running.metadata.uid)
    assert not world.builder._tables.assumptions._evicted
