"""Whatever is asked for: no queue passes its max, and what can't be taken back stays in deserved.

Both hold at every level of the tree. A queue that was above a bound may stay so,
and gets no more.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.worlds import World, at_node, gang, replayed

PARENTS = {"root": "", "left": "root", "right": "root", "l1": "left", "l2": "left", "r1": "right"}
LEAVES = ("l1", "l2", "r1")
SETTINGS = settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


@st.composite
def worlds(draw):
    """Three levels of queues with bounds anywhere, gangs that run, and more that wait."""
    nodes = {f"n{i}": 6 for i in range(3)}
    queues = tuple(
        QueueInfo(
            name=name,
            parent=parent,
            deserved={"gpu": float(draw(st.integers(0, 8)))},
            max={"gpu": float(draw(st.integers(0, 12)))} if draw(st.booleans()) else {},
        )
        for name, parent in PARENTS.items()
    )
    return World(nodes, tuple(_gangs(draw, nodes)), queues)


def _gangs(draw, nodes):
    free = dict(nodes)
    for i in range(draw(st.integers(3, 12))):
        gpus, pods = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        made = gang(
            f"g{i}",
            gpus=gpus,
            pods=pods,
            floor=draw(st.integers(0, pods)),
            queue=draw(st.sampled_from(LEAVES)),
            priority=draw(st.integers(0, 2)),
            created=i,
            preemptible=draw(st.booleans()),
        )
        at = draw(st.sampled_from(["", *nodes]))
        if at and free[at] >= gpus * pods:
            free[at] -= gpus * pods
            made = replace(made, members=tuple(at_node(m, at) for m in made.members))
        yield made


def held(world, *, fixed):
    """GPUs by queue with everything below it; ``fixed``: only what can't be taken back."""
    sums = dict.fromkeys(PARENTS, 0.0)
    for each in world.gangs:
        gpus = sum(m.charge["gpu"] for m in each.members if m.state == PodState.BOUND)
        at = each.queue if not (fixed and each.preemptible) else ""
        while at:
            sums[at] += gpus
            at = PARENTS[at]
    return sums


@pytest.mark.slow
@SETTINGS
@given(worlds())
def test_no_queue_passes_its_max_at_any_level(world):
    before = held(world, fixed=False)
    after = held(replayed(world, world.plan()), fixed=False)
    for spec in world.queues:
        bound = spec.max.get("gpu", float("inf"))
        assert after[spec.name] <= max(bound, before[spec.name]), spec.name


@SETTINGS
@given(worlds())
def test_what_cannot_be_taken_back_stays_within_deserved_at_any_level(world):
    before = held(world, fixed=True)
    after = held(replayed(world, world.plan()), fixed=True)
    for spec in world.queues:
        assert after[spec.name] <= max(spec.deserved["gpu"], before[spec.name]), spec.name
