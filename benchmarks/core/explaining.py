"""What do explanations cost, and questions about changes?

10,000 nodes of 8 GPUs, all taken. Explaining: 1,000 gangs wait; what is timed is the part of the
cycle that finds out which pods keep the capacity, and a record for every gang; the outcome sets it
against the rest of the cycle. What-if: one gang waits for 100 nodes more; the cluster is loaded
already.
"""

import math
import resource
import time
from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

from benchmarks.core.cluster import Cluster
from benchmarks.core.objects import NODE_GPUS, NOW, Work, departments, node_name, nodes
from benchmarks.core.problems import objects_of
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.api.queue import API_VERSION
from kai_py.config import Configuration
from kai_py.observe.explanation import Explainer
from kai_py.plan import cycle
from kai_py.plan.explain.protections import explain_protections
from kai_py.plan.plan import Action, Plan
from kai_py.plan.session.cycle_state import CycleState
from kai_py.simulate.changes import AddNodes
from kai_py.simulate.files.objects import Document
from kai_py.simulate.what_if import LoadedCluster
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

ADDED = 100
ASKED = 5
GANG_PODS = 4
CREATED = "2026-01-01T00:00:00Z"


def benchmarks() -> list[Benchmark]:
    """The rows."""
    return [
        Benchmark(
            part="core",
            name="explain",
            title="explaining 1,000 gangs that wait on 10,000 full nodes",
            run=partial(measure_explaining, 10_000, 1_000),
            aim="20 % of the cycle",
        ),
        Benchmark(
            part="core",
            name="what-if",
            title="what 100 nodes more would do to 10,000 full ones with 10,000 Jobs, once loaded",
            run=partial(measure_what_if, 10_000),
            aim="500 ms",
        ),
    ]


def measure_explaining(node_count: int, waiting: int) -> Measured:
    """Time explanations beside the cycle that they explain."""
    cluster = full_cluster(node_count, waiting)
    snapshot = cluster.snapshot()
    spent: list[float] = []

    def timed(state: CycleState, gangs: Sequence[Gang], actions: Sequence[Action]) -> None:
        start = time.perf_counter()
        explain_protections(state, gangs, actions)
        spent.append(time.perf_counter() - start)

    with patch.object(cycle, "explain_protections", timed):
        whole, plan = median_seconds(lambda: cluster.decide(snapshot), prepare=cluster.forget)
    records, explained = median_seconds(lambda: explain_all(snapshot, plan))
    told = sorted(spent)[len(spent) // 2]
    stages = sorted({each.stage.value for each in plan.unplaced})
    share = (told + records) / (whole - told)
    return Measured(
        seconds=told + records,
        outcome=f"{share:.0%} of {1e3 * (whole - told):.0f} ms; {explained} {', '.join(stages)}",
        peak_mb=peak_resident_mb(),
    )


def explain_all(snapshot: Snapshot, plan: Plan) -> int:
    """Make the record of every gang that waits; gives how many there are."""
    explainer = Explainer(snapshot, plan)
    return len([explainer.explain(each.gang) for each in plan.unplaced])


def full_cluster(node_count: int, waiting: int) -> Cluster:
    """Whole nodes in use, evenly by four queues, and gangs of four pods that wait in them."""
    held = [
        Work(
            name=f"held-{i}",
            queue=f"queue-{i % 4}",
            pods=NODE_GPUS,
            number=i,
            on=(i,) * NODE_GPUS,
        )
        for i in range(node_count)
    ]
    asked = [
        Work(
            name=f"asked-{i}",
            queue=f"queue-{i % 4}",
            pods=GANG_PODS,
            cpu=1 + i % 10,
            number=node_count + i,
        )
        for i in range(waiting)
    ]
    queues = departments(NODE_GPUS * node_count)
    return Cluster(queues, nodes(node_count), objects_of(held), objects_of(asked))


def measure_what_if(node_count: int) -> Measured:
    """Time one question, loading left out."""
    documents = full_documents(node_count)
    start = time.perf_counter()
    present = LoadedCluster(documents, Configuration(), NOW)
    loading = time.perf_counter() - start
    change = AddNodes(node_name(0), ADDED)
    before = _processor_seconds()
    seconds, given = median_seconds(lambda: present.settled(change), most=ASKED, budget=math.inf)
    busy = (_processor_seconds() - before) / ASKED
    started = "starts" if not given.waiting else "WRONG: waits"
    return Measured(
        seconds=seconds,
        outcome=f"the gang {started}; {busy:.2f} s of processor; loaded in {loading:.1f} s",
        peak_mb=peak_resident_mb(),
    )


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    usages = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def full_documents(node_count: int) -> Sequence[Document]:
    """Nodes, a pod on each that takes all of it, and a gang that needs ``ADDED`` nodes."""
    pods = [_pod(f"held-{i}", on=node_name(i)) for i in range(node_count)]
    group = {
        "scheduling.kai.io/pod-group": "asked",
        "scheduling.kai.io/min-available": str(ADDED),
    }
    pods += [_pod(f"asked-{i}", **group) for i in range(ADDED)]
    queue = _document(API_VERSION, "Queue", "team", spec={"deservedGPUs": NODE_GPUS * node_count})
    return [queue, *(_node(node_name(i)) for i in range(node_count)), *pods]


def _node(name: str) -> Document:
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(NODE_GPUS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"kubernetes.io/hostname": name}
    return _document("v1", "Node", name, labels=labels, spec={}, status=status)


def _pod(name: str, *, on: str = "", **annotations: str) -> Document:
    gpus = {"limits": {"nvidia.com/gpu": str(NODE_GPUS)}}
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "none", "resources": gpus}],
    }
    marks = {"scheduling.kai.io/queue-name": "team", **annotations}
    made = _document("v1", "Pod", name, annotations=marks, spec=spec)
    made["metadata"]["namespace"] = "default"
    if on:
        spec["nodeName"] = on
    return {**made, "status": {"phase": "Running" if on else "Pending"}}


def _document(api_version: str, kind: str, name: str, **parts: object) -> Document:
    own = {key: parts.pop(key) for key in ("labels", "annotations") if key in parts}
    meta = {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": CREATED, **own}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}
