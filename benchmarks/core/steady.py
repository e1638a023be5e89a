"""What does a cycle cost in a full cluster where little or nothing happens?

10,000 nodes of 8 GPUs, all taken by 10,000 Jobs of eight one-GPU pods; 20,000 more pods belong to
another scheduler (two on each node): 100,000 pods. The snapshot is part of what is timed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import NODE_GPUS, Work, departments, node_name, nodes, pod_spec
from benchmarks.core.problems import objects_of, singles
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.api.records.core import ObjectMeta, Pod, PodStatus
from kai_py.commit.dependencies import assumed_binding
from kai_py.plan.plan import Plan

FINISHED = PodStatus(phase="Succeeded")


def benchmarks() -> list[Benchmark]:
    """The rows."""
    return [
        Benchmark(
            part="core",
            name="idle",
            title="nothing changed: 10,000 full nodes, 100,000 pods, snapshot included",
            run=partial(measure_idle, 10_000),
            peer="43 ms + seconds of snapshot",
            aim="5 ms",
        ),
        Benchmark(
            part="core",
            name="idle-x2",
            title="— 2× nodes and pods",
            run=partial(measure_idle, 20_000),
        ),
        Benchmark(
            part="core",
            name="events",
            title="after 100 pod events (50 end, 50 come), same size, snapshot included",
            run=partial(measure_events, 10_000),
            aim="20 ms",
        ),
        Benchmark(
            part="core",
            name="events-x2",
            title="— 2× nodes and pods",
            run=partial(measure_events, 20_000),
        ),
        Benchmark(
            part="core",
            name="backlog",
            title="after one pod event, 1,000 full nodes, 10,000 equal Jobs of four queues wait",
            run=partial(measure_backlog, 1_000, 10_000),
        ),
        Benchmark(
            part="core",
            name="backlog-x2",
            title="— 2× nodes and Jobs",
            run=partial(measure_backlog, 2_000, 20_000),
        ),
    ]


def full_cluster(node_count: int) -> Cluster:
    """The cluster, its first cycle done."""
    cluster = Cluster(
        departments(NODE_GPUS * node_count),
        nodes(node_count),
        objects_of(full_works(node_count)),
        foreign_pods(node_count),
    )
    cluster.decide(cluster.snapshot())
    return cluster


def full_works(count: int, first: int = 0) -> Iterator[Work]:
    """Jobs of eight one-GPU pods, of which each takes a node, from node ``first`` on."""
    for i in range(first, first + count):
        yield Work(
            name=f"full-{i}",
            queue=f"queue-{i % 4}",
            pods=NODE_GPUS,
            number=i % 10_000,
            on=(i,) * NODE_GPUS,
        )


def foreign_pods(node_count: int, first: int = 0) -> Iterator[Pod]:
    """Two running pods of another scheduler on each node, from number ``first`` on."""
    for row in range(node_count):
        spec = replace(pod_spec(0, scheduler="default-scheduler"), node_name=node_name(row))
        for i in range(first, first + 2):
            name = f"daemon-{i}-{row}"
            meta = ObjectMeta(name=name, namespace="kube-system", uid=f"pod-{name}")
            yield Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running"))


def measure_idle(node_count: int) -> Measured:
    """Time snapshot and cycle."""
    cluster = full_cluster(node_count)
    seconds, plan = median_seconds(lambda: cluster.decide(cluster.snapshot()), most=20)
    return Measured(seconds=seconds, outcome=counts(plan), peak_mb=peak_resident_mb())


def measure_events(node_count: int) -> Measured:
    """Time taking in the events, snapshot and cycle."""
    churn = Churn(full_cluster(node_count))
    seconds, plan = median_seconds(churn.step, prepare=churn.prepare, most=20)
    return Measured(seconds=seconds, outcome=counts(plan), peak_mb=peak_resident_mb())


def measure_backlog(node_count: int, jobs: int) -> Measured:
    """Time taking in one pod of another scheduler, snapshot and cycle."""
    cluster = full_cluster(node_count)
    cluster.tell(objects_of(singles(jobs)))
    cluster.decide(cluster.snapshot())
    others = foreign_pods(node_count, first=2)

    def step() -> Plan:
        cluster.tell([next(others)])
        return cluster.decide(cluster.snapshot())

    seconds, plan = median_seconds(step, most=10)
    return Measured(seconds=seconds, outcome=counts(plan), peak_mb=peak_resident_mb())


@dataclass
class Churn:
    """Each step 50 running pods end and 50 new ones come, which take their capacity."""

    cluster: Cluster
    size: int = 50
    _round: int = 0
    _events: list[tuple[Pod | None, Pod]] = field(default_factory=list)

    def prepare(self) -> None:
        """Make the events of the next step."""
        first = self._round * self.size
        self._round += 1
        ending = [_first_pod(work) for work in full_works(self.size, first)]
        coming = [
            _first_pod(Work(name=f"new-{i}", queue=f"queue-{i % 4}", number=i))
            for i in range(first, first + self.size)
        ]
        self._events = [(pod, replace(pod, status=FINISHED)) for pod in ending]
        self._events += [(None, pod) for pod in coming]

    def step(self) -> Plan:
        """Take the events in and plan; what is placed is bound, as commit would assume."""
        builder = self.cluster.planner.builder
        for old, new in self._events:
            builder.apply("pods", old, new)
        plan = self.cluster.decide(self.cluster.snapshot())
        for gang in plan.placements:
            for placement in gang.pods:
                builder.assume(assumed_binding(placement))
        return plan


def _first_pod(work: Work) -> Pod:
    return next(each for each in work.objects() if isinstance(each, Pod))
