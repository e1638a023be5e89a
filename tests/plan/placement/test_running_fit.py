"""The kept fit equals a fresh one, and its first node is the one that ``fill`` takes for a pod."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.plan.placement.preferences import with_idle
from kai_py.plan.placement.running_fit import RunningFit, is_resources_only
from kai_py.plan.plan import Action
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from kai_py.policy.fill import fill
from kai_py.policy.fit import replicas_that_fit
from tests.support.examples import examples
from tests.support.scenario import cluster, node, placed, pod, queue, shared

NODES = 24
REQUESTS = ((1, "1"), (2, "4"), (0, "3"))


def statement():
    world = cluster(
        queue("q", 100),
        [node(f"n{i:02d}", gpus=i % 5, cpu=str(8 + i % 3)) for i in range(NODES)],
        [pod(f"run{i}", queue="q", node=f"n{3 * i + 1:02d}") for i in range(8)],
        [
            pod(f"p{kind}-{i}", gpus, queue="q", requests={"cpu": cpu})
            for kind, (gpus, cpu) in enumerate(REQUESTS)
            for i in range(20)
        ],
        pod("elsewhere", 0, queue="q", requests={"example.com/card": "1"}),
        shared(pod("part", 0, queue="q"), "0.5"),
    )
    snapshot = world.snapshot()
    accounting, gpus = world.devices.accounting, world.devices.node_gpus(snapshot.nodes)
    quota = quota_of(snapshot, CycleSettings().rules, accounting, gpus)
    return Statement(snapshot, quota, CycleDevices(world.devices, snapshot))


def running_fit(trial, shape, preference, capacity=Capacity.IDLE):
    allowed = np.arange(NODES) % 7 != 0
    slack_row = trial.snapshot.resources.positions["nvidia.com/gpu"]
    return RunningFit(trial, shape, allowed, preference, slack_row, capacity=capacity)


def agrees(running, shape, preference):
    trial = running.statement
    nodes, resources = trial.snapshot.nodes, trial.snapshot.resources
    now, fresh = (
        replicas_that_fit(
            shape, resources, trial.free(capacity), running.allowed, nodes.allocatable
        )
        for capacity in (Capacity.IDLE, running.capacity)
    )
    if running.capacity is Capacity.FUTURE_IDLE:
        preference = with_idle(preference, idle=now > 0)
    slack = trial.free(running.capacity)[resources.positions["nvidia.com/gpu"]]
    taken = fill(1, fresh, preference, slack)
    assert running.first_row() == (taken[0][0] if taken else None)
    assert running.replicas.tolist() == fresh.tolist()
    assert running.preference.tolist() == preference.tolist()
    assert running.slack[running.allowed].tolist() == slack[running.allowed].tolist()


def members(trial, prefix):
    gangs = sorted(trial.snapshot.gangs.values(), key=lambda gang: gang.key)
    return [(g, m) for g in gangs for m in g.members if m.pod.name.startswith(prefix)]


steps = st.lists(
    st.tuples(
        st.sampled_from(["first", "first", "first", "row", "evict", "many"]),
        st.integers(0, len(REQUESTS) - 1),
        st.integers(0, NODES - 1),
        st.sampled_from([Capacity.IDLE, Capacity.IDLE, Capacity.FUTURE_IDLE]),
        st.booleans(),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(steps, st.booleans(), st.sampled_from(list(Capacity)))
def test_kept_equals_fresh(done, tiers, kept_for):
    trial = statement()
    waiting = [members(trial, f"p{kind}-") for kind in range(len(REQUESTS))]
    runs = members(trial, "run")
    preference = np.arange(NODES) % 3 if tiers else np.zeros(NODES, dtype=np.int64)
    shapes = [each[0][1].shape for each in waiting]
    kept = [running_fit(trial, shape, preference, kept_for) for shape in shapes]
    for act, kind, row, capacity, keep in done:
        with trial.trial() as attempt:
            if act == "evict" and runs:
                gang, victim = runs.pop()
                trial.evict(Evicted(victim, gang, Action.PREEMPT, gang, ""))
            elif act == "many":
                for other in range(NODES):
                    _place(trial, waiting[kind], other, capacity)
            else:
                first = kept[kind].first_row() if act == "first" else row
                _place(trial, waiting[kind], first, capacity)
            if keep:
                attempt.keep()
        agrees(kept[kind], shapes[kind], preference)
    for shape, running in zip(shapes, kept, strict=True):
        agrees(running, shape, preference)


def _place(trial, waiting, row, capacity):
    if row is None or not waiting:
        return
    gang, member = waiting[-1]
    free = trial.free(capacity)[:, row]
    if (trial.request_vector(member.shape) <= free).all():
        trial.place(gang, [member], row, Action.ALLOCATE, capacity=capacity)
        waiting.pop()


@pytest.mark.parametrize("together", [False, True])
def test_pods_start_at_once_only_where_all_that_they_request_is_idle(together):
    trial = statement()
    shapes = [members(trial, f"p{kind}-")[0][1].shape for kind in range(len(REQUESTS))]
    preference = np.arange(NODES) % 3
    kept = [running_fit(trial, shape, preference, Capacity.FUTURE_IDLE) for shape in shapes]
    starting = [each.preference.tolist() for each in kept]
    for gang, victim in members(trial, "run"):
        trial.evict(Evicted(victim, gang, Action.PREEMPT, gang, ""))
        if not together:
            kept[0].refresh()
    if together:
        trial.changed_rows.extend(range(NODES))
    for running, shape in zip(kept, shapes, strict=True):
        agrees(running, shape, preference)
    # What is evicted is not idle yet.
    assert [each.preference.tolist() for each in kept] == starting
    assert any(each.replicas.any() for each in kept)


def test_a_resource_that_no_node_has_fits_nowhere():
    trial = statement()
    ((_, member),) = members(trial, "elsewhere")
    running = running_fit(trial, member.shape, np.zeros(NODES, dtype=np.int64))
    assert running.first_row() is None
    ((_, plain), *_) = members(trial, "p0")
    trial.place(
        trial.snapshot.gangs["default/Pod/p0-0"],
        [plain],
        4,
        Action.ALLOCATE,
        capacity=Capacity.IDLE,
    )
    assert running.first_row() is None


def test_only_capacity_may_decide():
    trial = statement()
    assert is_resources_only(members(trial, "p0")[0][1].shape, trial.limits)
    assert not is_resources_only(members(trial, "part")[0][1].shape, trial.limits)


def test_pods_of_two_shapes_share_nodes_tightly():
    world = cluster(
        queue("q", 100),
        [node(f"n{i}", gpus=4) for i in range(3)],
        [pod(f"a{i}", 1, queue="q", created=2 * i) for i in range(5)],
        [pod(f"b{i}", 3, queue="q", created=2 * i + 1) for i in range(2)],
    )
    assert placed(world.plan()) == {
        "a0": "n0",
        "b0": "n0",
        "a1": "n1",
        "b1": "n1",
        "a2": "n2",
        "a3": "n2",
        "a4": "n2",
    }
