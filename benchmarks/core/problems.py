"""Clusters to plan for: the problems of the peer's benchmarks, and ours.

``factor`` multiplies nodes and pods alike.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

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
from kai_py.plan.plan import Action


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


def more_replicas_than_racks(node_count: int) -> Callable[[int], Cluster]:
    """Five replicas, one to a rack; three run, and there are three racks. All GPUs are in use."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus - 3, count, "queue-0")
        works += [
            Work(
                name=f"replica-{i}",
                queue="queue-1",
                number=gpus + i,
                on=(count - 3 + i,) if i < 3 else (),
                one_per_rack=True,
            )
            for i in range(5)
        ]
        queues = [queue("queue-0", 0, weight=0), queue("queue-1", NODE_GPUS, weight=0)]
        return Cluster(queues, nodes(count, racks=3), objects_of(works))

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


def reclaim_nodes(
    node_count: int, jobs: int, *, pods: int = 1, gpus: int = NODE_GPUS, racks: int = 0
) -> Callable[[int], Cluster]:
    """Jobs reclaim GPUs of one node for each pod from one-GPU jobs of four queues.

    With ``racks`` all their pods repel each other.
    """

    def build(factor: int) -> Cluster:
        count = factor * node_count
        total = NODE_GPUS * count
        works = [
            replace(each, queue=f"above-{number % 4}")
            for number, each in enumerate(running(total, count, ""))
        ]
        works += [
            Work(
                name=f"job-{i}",
                queue="below",
                pods=pods,
                gpus=gpus,
                number=total + i,
                one_per_rack=racks > 0,
            )
            for i in range(factor * jobs)
        ]
        queues = [queue("below", total, weight=0)]
        queues += [queue(f"above-{i}", 0, weight=0) for i in range(4)]
        return Cluster(queues, nodes(count, racks=factor * racks), objects_of(works))

    return build


def reclaim_among_queues(queues: int) -> Callable[[int], Cluster]:
    """Queues without any GPU take two each from as many queues that have twice their share."""

    def build(factor: int) -> Cluster:
        count, gpus = factor * queues, NODE_GPUS * factor * queues
        works = [
            Work(name=f"running-{i}", queue=f"above-{i % count}", number=i, on=(i % count,))
            for i in range(gpus)
        ]
        works += [
            Work(name=f"job-{i}", queue=f"below-{i % count}", number=gpus + i)
            for i in range(2 * count)
        ]
        deserving = [f"{side}-{i}" for side in ("above", "below") for i in range(count)]
        all_queues = [queue(name, NODE_GPUS / 2) for name in deserving]
        return Cluster(all_queues, nodes(count), objects_of(works))

    return build


def reclaim_halves(node_count: int, pods: int) -> Callable[[int], Cluster]:
    """Pods with half a GPU each take them from a queue that has all GPUs in halves."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        halves = 2 * NODE_GPUS * count
        works = [
            Work(
                name=f"running-{i}",
                queue="above",
                number=i,
                on=(i // (2 * NODE_GPUS),),
                half=i // 2,
            )
            for i in range(halves)
        ]
        works += [
            Work(name=f"job-{i}", queue="below", number=halves + i, half=0)
            for i in range(factor * pods)
        ]
        queues = [queue(name, halves / 4) for name in ("above", "below")]
        return Cluster(queues, nodes(count), objects_of(works))

    return build


def unschedulable(node_count: int, *, beyond: int = 79, racks: int = 0) -> Callable[[int], Cluster]:
    """A gang of 10 x 8 GPUs; the running ones deserve all but ``beyond`` GPUs.

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


def preempt_for_nodes(node_count: int, jobs: int) -> Callable[[int], Cluster]:
    """Jobs of one pod for a whole node preempt one-GPU jobs of their queue."""

    def build(factor: int) -> Cluster:
        count = factor * node_count
        gpus = NODE_GPUS * count
        works = running(gpus, count, "queue-0")
        works += [
            Work(name=f"job-{i}", queue="queue-0", gpus=8, number=gpus + i, priority=75)
            for i in range(factor * jobs)
        ]
        return Cluster([queue("queue-0", gpus)], nodes(count), objects_of(works))

    return build


def reclaim_for_gang(factor: int) -> Cluster:
    """512 pods of 8 GPUs take capacity from 20,000 gangs of two 2-GPU pods on 10,000 full nodes."""
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
