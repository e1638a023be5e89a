"""The problems of the peer's benchmarks, and ours at a size it does not reach.

Definitions: KAI-Scheduler ``pkg/scheduler/actions/benchmark_test.go`` and
``integration_tests/reclaim``; ``factor`` multiplies nodes and pods alike. The peer times the single
action it names, without building its session; here every scenario is a full cycle of all actions.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchmarks.core.cluster import Cluster
from benchmarks.core.objects import (
    BLOCK,
    NODE_GPUS,
    RACK,
    Work,
    departments,
    grouped_queues,
    nodes,
    queue,
)
from kai_py.api.records.core import Pod
from kai_py.api.records.job import Job
from kai_py.plan.decisions import Action


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A cluster and what a cycle must make of it, both for a factor of the size.

    ``peer``: KAI's milliseconds for the plain size on the machine of the reference figures, the
    floor of its harness taken off.
    """

    name: str
    title: str
    build: Callable[[int], Cluster]
    outcome: Callable[[int], str]
    peer: str = ""
    aim_ms: float | None = None


def singles(count: int, *, queues: int = 4, shapes: int = 1, start: int = 0) -> list[Work]:
    """``count`` pending one-GPU jobs, dealt to the queues."""
    return [
        Work(name=f"job-{i}", queue=f"queue-{i % queues}", cpu=1 + i % shapes, number=i)
        for i in range(start, start + count)
    ]


def running(
    count: int, on_nodes: int, in_queue: str, *, pods: int = 1, gpus: int = 1
) -> list[Work]:
    """``count`` running jobs, dealt to the nodes pod by pod."""
    return [
        Work(
            name=f"running-{i}",
            queue=in_queue,
            pods=pods,
            gpus=gpus,
            number=i,
            on=tuple((i * pods + p) % on_nodes for p in range(pods)),
        )
        for i in range(count)
    ]


def objects_of(works: Iterable[Work]) -> Iterator[Job | Pod]:
    """All objects of workloads."""
    for work in works:
        yield from work.objects()


def in_departments(node_count: int, works: Iterable[Work]) -> Cluster:
    """Nodes, four queues in two departments, and work."""
    return Cluster(departments(NODE_GPUS * node_count), nodes(node_count), objects_of(works))


def allocate(node_count: int, jobs: int) -> Callable[[int], Cluster]:
    """Pending one-GPU jobs on empty nodes."""
    return lambda factor: in_departments(factor * node_count, singles(factor * jobs))


def gangs(node_count: int, count: int, pods: int, gpus: int = 1) -> Callable[[int], Cluster]:
    """``count`` pending gangs, dealt to the queues."""
    return lambda factor: in_departments(
        factor * node_count,
        [
            Work(name=f"gang-{i}", queue=f"queue-{i % 4}", pods=pods, gpus=gpus, number=i)
            for i in range(factor * count)
        ],
    )


def one_gang(node_count: int, pods: int, gpus: int) -> Callable[[int], Cluster]:
    """One gang on empty nodes; it grows with the cluster."""
    return lambda factor: in_departments(
        factor * node_count,
        [Work(name="gang", queue="queue-0", pods=factor * pods, gpus=gpus)],
    )


def one_gang_in_a_block(node_count: int, pods: int, block: int) -> Callable[[int], Cluster]:
    """One gang of whole nodes that needs a whole block."""

    def build(factor: int) -> Cluster:
        count, size = factor * node_count, factor * block
        gang = Work(name="gang", queue="queue-0", pods=factor * pods, gpus=8, within=BLOCK)
        queues = departments(NODE_GPUS * count)
        return Cluster(queues, nodes(count, block=size), gang.objects())

    return build


def unschedulable_in_a_rack(node_count: int, racks: int) -> Callable[[int], Cluster]:
    """The gang that can't be, of which all pods must be in one rack."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus, count, "queue-0")
        works.append(Work(name="gang", queue="queue-1", pods=10, gpus=8, number=gpus, within=RACK))
        queues = [queue("queue-0", gpus - 79, weight=0), queue("queue-1", 80, weight=0)]
        return Cluster(queues, nodes(count, racks=factor * racks), objects_of(works))

    return build


def half_running(
    node_count: int, jobs: int, *, actions: tuple[Action, ...] = ()
) -> Callable[[int], Cluster]:
    """Every second job runs, the others wait: only the queues of the others have them."""

    def build(factor: int) -> Cluster:
        works = [
            Work(
                name=f"job-{i}",
                queue=f"queue-{i % 4}",
                number=i,
                on=(i % (factor * node_count),) if i % 2 == 0 else (),
            )
            for i in range(factor * jobs)
        ]
        cluster = in_departments(factor * node_count, works)
        cluster.actions = actions
        return cluster

    return build


def many_queues(factor: int) -> Cluster:
    """200 jobs for 20 queues in 5 departments, on 50 nodes."""
    queues = grouped_queues(queues=20, departments=5, gpus=factor * 50 * NODE_GPUS)
    return Cluster(queues, nodes(factor * 50), objects_of(singles(factor * 200, queues=20)))


def reclaim_large(node_count: int) -> Callable[[int], Cluster]:
    """A gang of whole nodes takes half of a cluster back that is full of one-GPU jobs."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus, count, "queue-0")
        works.append(Work(name="gang", queue="queue-1", pods=count // 2, gpus=8, number=gpus))
        queues = [queue("queue-0", 0, weight=0), queue("queue-1", gpus, weight=0)]
        return Cluster(queues, nodes(count), objects_of(works))

    return build


def reclaim_many(node_count: int) -> Callable[[int], Cluster]:
    """One-GPU jobs take the whole cluster back from one-GPU jobs."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus, count, "queue-0")
        works += [Work(name=f"job-{i}", queue="queue-1", number=gpus + i) for i in range(gpus)]
        queues = [queue("queue-0", 0, weight=0), queue("queue-1", gpus, weight=0)]
        return Cluster(queues, nodes(count), objects_of(works))

    return build


def unschedulable(node_count: int, *, beyond: int = 79, racks: int = 0) -> Callable[[int], Cluster]:
    """A gang of 10 x 8 GPUs; those who run deserve all but ``beyond`` GPUs.

    Of 79 one GPU less than needed may be reclaimed. With ``racks`` the pods repel each other.
    """

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus, count, "queue-0")
        gang = Work(
            name="gang", queue="queue-1", pods=10, gpus=8, number=gpus, one_per_rack=racks > 0
        )
        queues = [queue("queue-0", gpus - beyond, weight=0), queue("queue-1", 80, weight=0)]
        return Cluster(queues, nodes(count, racks=racks), objects_of([*works, gang]))

    return build


def shapes_in_queues(factor: int) -> Cluster:
    """10,000 one-GPU pods of ten shapes in 20 queues, on 10,000 nodes."""
    count = factor * 10_000
    queues = grouped_queues(queues=20, departments=5, gpus=NODE_GPUS * count)
    return Cluster(queues, nodes(count), objects_of(singles(count, queues=20, shapes=10)))


def reclaim_for_gang(factor: int) -> Cluster:
    """512 pods of 8 GPUs take room from 20,000 gangs of two 2-GPU pods on 10,000 full nodes."""
    count = factor * 10_000
    gpus = NODE_GPUS * count
    pods = factor * 512
    works = running(2 * count, count, "queue-0", pods=2, gpus=2)
    works.append(Work(name="gang", queue="queue-1", pods=pods, gpus=8, number=2 * count))
    queues = [queue("queue-0", gpus - 8 * pods), queue("queue-1", 8 * pods)]
    return Cluster(queues, nodes(count), objects_of(works))


def bound(count: int) -> Callable[[int], str]:
    """The outcome of work that all fits."""
    return lambda factor: f"{factor * count} bound"


def won(pods: int, victims: int) -> Callable[[int], str]:
    """The outcome of work that fits when others leave."""
    return lambda factor: f"{factor * pods} nominated, {factor * victims} evicted"


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="allocate",
        title="500 one-GPU jobs, 100 nodes, 4 queues",
        build=allocate(100, 500),
        outcome=bound(500),
        peer="152 ms",
        aim_ms=10,
    ),
    Scenario(
        name="gangs",
        title="100 gangs of 4, 50 nodes",
        build=gangs(50, 100, 4),
        outcome=bound(400),
        peer="110 ms",
        aim_ms=10,
    ),
    Scenario(
        name="full-cycle",
        title="250 running + 250 pending, 100 nodes",
        build=half_running(100, 500),
        outcome=bound(250),
        peer="121 ms",
        aim_ms=10,
    ),
    Scenario(
        name="consolidation",
        title="consolidation alone: 100 running + 100 pending, 50 nodes",
        build=half_running(50, 200, actions=(Action.CONSOLIDATE,)),
        outcome=lambda factor: f"{factor * 100} nominated",
        peer="351 ms",
        aim_ms=20,
    ),
    Scenario(
        name="many-queues",
        title="200 jobs, 50 nodes, 20 queues in 5 departments",
        build=many_queues,
        outcome=bound(200),
        peer="75 ms",
    ),
    Scenario(
        name="reclaim-large",
        title="reclaim by one gang of 250 × 8, 500 nodes of one-GPU jobs",
        build=reclaim_large(500),
        outcome=won(250, 2000),
        peer="11.7 s",
        aim_ms=200,
    ),
    Scenario(
        name="reclaim-many-200",
        title="reclaim by 1,600 one-GPU jobs, 200 nodes of one-GPU jobs",
        build=reclaim_many(200),
        outcome=won(1600, 1600),
        peer="26.2 s",
        aim_ms=200,
    ),
    Scenario(
        name="reclaim-many-500",
        title="reclaim by 4,000 one-GPU jobs, 500 nodes of one-GPU jobs",
        build=reclaim_many(500),
        outcome=won(4000, 4000),
        peer="351 s (busy machine)",
        aim_ms=1000,
    ),
    Scenario(
        name="unschedulable",
        title="gang of 10 × 8 that can't be, 200 nodes",
        build=unschedulable(200),
        outcome=lambda _: "nothing to do",
        peer="122 s (search cut)",
        aim_ms=50,
    ),
    Scenario(
        name="unschedulable-apart",
        title="the same, enough may be reclaimed, but one pod to a rack and only 9 racks",
        build=unschedulable(200, beyond=80, racks=9),
        outcome=lambda _: "nothing to do",
        peer="22 s at 100 nodes",
        aim_ms=50,
    ),
    Scenario(
        name="unschedulable-rack",
        title="the same, one GPU too few, all pods in one of 12 racks",
        build=unschedulable_in_a_rack(200, 12),
        outcome=lambda _: "nothing to do",
        peer="27 s at 100 nodes",
        aim_ms=50,
    ),
    Scenario(
        name="gang-64-1k",
        title="gang of 64 × 8, 1,000 nodes",
        build=one_gang(1_000, 64, 8),
        outcome=bound(64),
        peer="0.15 s",
        aim_ms=2,
    ),
    Scenario(
        name="gang-64-10k",
        title="gang of 64 × 8, 10,000 nodes",
        build=one_gang(10_000, 64, 8),
        outcome=bound(64),
        peer="1.4 s",
        aim_ms=8,
    ),
    Scenario(
        name="gang-512-1k",
        title="gang of 512 × 8, 1,000 nodes",
        build=one_gang(1_000, 512, 8),
        outcome=bound(512),
        peer="1.06 s",
        aim_ms=4,
    ),
    Scenario(
        name="gang-512-10k",
        title="gang of 512 × 8, 10,000 nodes",
        build=one_gang(10_000, 512, 8),
        outcome=bound(512),
        peer="12.1 s",
        aim_ms=10,
    ),
    Scenario(
        name="gang-64-block",
        title="gang of 64 × 8 within a block of 64 nodes, 10,000 nodes",
        build=one_gang_in_a_block(10_000, 64, 64),
        outcome=bound(64),
        peer="26 ms",
        aim_ms=5,
    ),
    Scenario(
        name="singles-1000-1k",
        title="1,000 one-GPU jobs, 1,000 nodes",
        build=allocate(1_000, 1_000),
        outcome=bound(1_000),
        peer="1.9 s",
        aim_ms=25,
    ),
    Scenario(
        name="singles-1000-10k",
        title="1,000 one-GPU jobs, 10,000 nodes",
        build=allocate(10_000, 1_000),
        outcome=bound(1_000),
        peer="18.7 s",
        aim_ms=50,
    ),
    Scenario(
        name="singles-4000-10k",
        title="4,000 one-GPU jobs, 10,000 nodes",
        build=allocate(10_000, 4_000),
        outcome=bound(4_000),
        peer="72 s",
        aim_ms=200,
    ),
    Scenario(
        name="shapes",
        title="10,000 one-GPU pods of ten shapes, 20 queues, 10,000 nodes",
        build=shapes_in_queues,
        outcome=bound(10_000),
        aim_ms=500,
    ),
    Scenario(
        name="reclaim-gang",
        title="reclaim for a gang of 512 × 8, 10,000 nodes full with 20,000 gangs",
        build=reclaim_for_gang,
        outcome=won(512, 2048),
        aim_ms=1000,
    ),
)
