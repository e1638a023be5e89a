"""A trial that is not kept leaves nothing behind, whatever was done in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from tests.plan.state.limits.test_host_ports import listening
from tests.plan.state.limits.test_numa import report, whole
from tests.plan.state.limits.volumes import bound, local, local_class, takes, unbound, using
from tests.support.examples import examples
from tests.support.scenario import (
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    pod,
    queue,
    shared,
)


def statement():
    world = cluster(
        device_class(),
        node("a", 8),
        node("b", 0),
        gpu_slice("b", 8),
        queue("q", 8),
        [pod(f"run{i}", queue="q", node="a") for i in range(3)],
        claim("held", 2, owner="claimer", held_by=["claimer"], on=[("b", "gpu-0"), ("b", "gpu-1")]),
        claiming(pod("claimer", 0, queue="q", node="b"), "held"),
        job_with_pods("plain", 3, queue="q"),
        [shared(pod(f"part{i}", 0, queue="q", node="a"), "0.4", group="g") for i in range(2)],
        [shared(pod(f"half{i}", 0, queue="q"), "0.5") for i in range(2)],
        claiming_job("devices", 3, queue="q"),
        report("a", 3, 2),
        takes("a", 2),
        takes("b", 1),
        bound("vwx"),
        [using("disk0", "v", node="a"), using("disk1", "w"), using("disk2", "x", "v")],
        local_class(),
        [local("l0", "a"), local("l1", "a", "b")],
        unbound("u0", "u1"),
        [using("local0", "u0"), using("local1", "u1")],
        [whole(f"whole{i}", 2, node=where) for i, where in enumerate(("a", "", ""))],
        [listening(f"port{i}", node=where) for i, where in enumerate(("a", "b", "", ""))],
    )
    return statement_of(world)


def statement_of(world):
    snapshot = world.snapshot()
    quota = quota_of(
        snapshot,
        CycleSettings().rules,
        world.devices.accounting,
        world.devices.node_gpus(snapshot.nodes),
    )
    return Statement(snapshot, quota, CycleDevices(world.devices, snapshot))


def state(trial):
    shapes = {m.shape.number: m.shape for g in trial.snapshot.gangs.values() for m in g.members}
    everywhere = np.ones(len(trial.snapshot.nodes), dtype=bool)
    return (
        trial.idle.copy(),
        trial.future_idle.copy(),
        trial.quota.usage.allocated.copy(),
        trial.quota.usage.non_preemptible.copy(),
        *(
            trial.devices.replicas(shapes[number], everywhere, 9, capacity)
            for number in sorted(shapes)
            for capacity in Capacity
        ),
        *(
            copies
            for number in sorted(shapes)
            for capacity in Capacity
            if (copies := trial.limits.replicas(shapes[number], capacity, 9)) is not None
        ),
        *(
            column
            for number in sorted(shapes)
            for capacity in Capacity
            if (parts := trial.gpu_share_replicas(shapes[number], capacity, 9))
            for column in (parts.shared, parts.total)
        ),
        np.array(sorted(trial.placed)),
        np.array(sorted(trial.evicted)),
    )


def do(trial, step):
    kind, index, row, capacity = step
    gangs = sorted(trial.snapshot.gangs.values(), key=lambda gang: gang.key)
    if kind == "place":
        waiting = [(g, m) for g in gangs for m in g.pending if m.pod.uid not in trial.placed]
        if waiting:
            gang, member = waiting[index % len(waiting)]
            trial.place(gang, [member], row, Action.ALLOCATE, capacity=capacity)
        return
    running = [(g, m) for g in gangs for m in g.bound if m.pod.uid not in trial.evicted]
    if running:
        gang, member = running[index % len(running)]
        trial.evict(Evicted(member, gang, Action.PREEMPT, gang, "test"))


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "evict"]),
        st.integers(0, 19),
        st.integers(0, 1),
        st.sampled_from(Capacity),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(steps, steps)
def test_undoing_restores_everything(kept, undone):
    trial = statement()
    with trial.trial() as outer:
        for step in kept:
            do(trial, step)
        outer.keep()
    before = state(trial)
    with trial.trial():
        for step in undone:
            do(trial, step)
        with trial.trial() as inner:
            for step in undone:
                do(trial, step)
            inner.keep()
    for ours, theirs in zip(state(trial), before, strict=True):
        assert np.array_equal(ours, theirs)


@settings(max_examples=examples(40), deadline=None)
@given(steps, steps)
def test_limits_say_how_many_pods_they_take(kept, undone):
    """Answers that were kept while others were placed, evicted and undone are still true."""
    trial = statement()
    gangs = sorted(trial.snapshot.gangs.values(), key=lambda gang: gang.key)
    limited = [m for g in gangs for m in g.pending if trial.limits.refusing(m.shape)]
    for step in kept:
        do(trial, step)
        told(trial, limited)
    with trial.trial():
        for step in undone:
            do(trial, step)
            told(trial, limited)
    for member in limited:
        for capacity in Capacity:
            for row, copies in enumerate(trial.limits.replicas(member.shape, capacity, 1)):
                taken = trial.limits.allocate(member, row, capacity)
                assert (taken is not None) == (copies > 0), (member.pod.name, row, capacity)
                for undo in reversed(taken or ()):
                    undo()


def test_a_limit_knows_at_once_what_was_placed_and_undone():
    trial = statement()
    members = {m.pod.name: m for g in trial.snapshot.gangs.values() for m in g.members}
    before = {}
    for name in ("disk2", "local0", "whole1"):
        shape = members[name].shape
        before[name] = trial.limits.replicas(shape, Capacity.IDLE, 1).tolist()
        assert before[name][0] == 1
        others = [each for each in members.values() if trial.limits.refusing(each.shape)]
        with trial.trial():
            for each in others:
                trial.place(
                    gang_of(trial, each), [each], 0, Action.ALLOCATE, capacity=Capacity.IDLE
                )
            assert trial.limits.replicas(shape, Capacity.IDLE, 1)[0] == 0, name
        assert trial.limits.replicas(shape, Capacity.IDLE, 1).tolist() == before[name], name


def gang_of(trial, member):
    return next(gang for gang in trial.snapshot.gangs.values() if member in gang.members)


def told(trial, members):
    for member in members:
        for capacity in Capacity:
            trial.limits.replicas(member.shape, capacity, 2)
