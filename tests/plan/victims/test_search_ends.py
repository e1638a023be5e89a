"""Every search for victims ends, whatever the shapes of the gang and of its victims."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.cpu_limit import cpu_limit
from tests.support.examples import examples
from tests.support.patience import processor_seconds
from tests.support.records import replace
from tests.support.scenario import cluster, evicted, job_with_pods, node, pod, queue
from tests.support.worlds import GPU, World, at_node, gang

SECONDS = 5.0
"""Many times what a case takes."""

QUEUES = ("x", "x", "y")
SETTINGS = settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


def in_gang(name: str, **annotations: str) -> dict[str, str]:
    return {"scheduling.kai.io/pod-group": name, **annotations}


def test_a_gang_of_two_shapes_finds_its_victims():
    """Counting per shape says "enough" before any unit is taken, and placing the two says no."""
    low = job_with_pods("low", 3, queue="team", node="n", priority=1)
    urgent = [
        pod(
            f"urgent-{i}",
            queue="team",
            priority=10,
            requests={"cpu": cpu},
            annotations=in_gang("urgent", **{"scheduling.kai.io/min-available": "2"}),
        )
        for i, cpu in enumerate(("3", "1"))
    ]
    with cpu_limit(processor_seconds(SECONDS)):
        plan = cluster(node("n", 4), queue("team", 4), low, urgent).plan()
    assert evicted(plan) == ["low-0", "low-1", "low-2"]
    assert {each.pod.name for each in plan.nominations} == {"urgent-0", "urgent-1"}


@st.composite
def worlds(draw):
    """Small nodes that are full, and gangs that wait with pods of several shapes each."""
    nodes = {f"n{i}": draw(st.integers(1, 5)) for i in range(draw(st.integers(1, 4)))}
    free, gangs = dict(nodes), []
    for i in range(draw(st.integers(2, 8))):
        gpus, where = draw(st.integers(1, 2)), []
        for _ in range(draw(st.integers(1, 4))):
            fitting = sorted(name for name, left in free.items() if left >= gpus)
            if fitting:
                where.append(draw(st.sampled_from(fitting)))
                free[where[-1]] -= gpus
        if where:
            gangs.append(running(draw, f"run{i}", gpus, where))
    gangs += [waiting(draw, f"wait{i}") for i in range(draw(st.integers(1, 3)))]
    total = sum(nodes.values())
    queues = tuple(
        QueueInfo(name=name, deserved={"gpu": float(draw(st.integers(0, total)))})
        for name in sorted(set(QUEUES))
    )
    return World(nodes, tuple(gangs), queues, {"victim_probes_per_gang": draw(st.integers(1, 60))})


def running(draw, name, gpus, where):
    made = gang(
        name,
        gpus=gpus,
        pods=len(where),
        floor=draw(st.sampled_from((len(where), draw(st.integers(0, len(where)))))),
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.integers(0, 1)),
    )
    placed = zip(made.members, where, strict=True)
    return replace(made, members=tuple(at_node(each, node) for each, node in placed))


def waiting(draw, name):
    """Every pod has one of four shapes."""
    pods = draw(st.integers(2, 5))
    made = gang(
        name, pods=pods, queue=draw(st.sampled_from(QUEUES)), priority=draw(st.integers(1, 3))
    )
    return replace(made, members=tuple(of_some_shape(draw, each) for each in made.members))


def of_some_shape(draw, member):
    gpus, cores = draw(st.sampled_from(((1, 1), (1, 3), (2, 1), (2, 40))))
    requests = {"cpu": 1000.0 * cores, "pods": 1.0, GPU: float(gpus)}
    shape = replace(member.shape, number=100 * gpus + cores, requests=requests)
    return replace(member, shape=shape, charge={"gpu": float(gpus), "cpu": 1000.0 * cores})


@pytest.mark.slow
@SETTINGS
@given(worlds())
def test_a_search_for_a_gang_of_several_shapes_ends(world):
    with cpu_limit(processor_seconds(SECONDS)):
        world.plan()
