"""The rows of the files part: ``kai-py plan`` on a cluster as ``kubectl get -o json`` prints it.

Of the nodes, a fifth is idle and the others are full, with a pod on each of eight GPUs. Each node
has three pods of DaemonSets. Waiting Jobs of one to eight pods each request another amount of CPU,
so that each has a size of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import MAIN
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import MEGABYTE
from benchmarks.watch import documents

Document = dict[str, Any]

NODES, QUEUES, JOBS = 10_000, 50, 2_000
IDLE_PART, DAEMON_SETS, GPUS = 5, 3, 8


def files_benchmarks() -> list[Benchmark]:
    """The rows."""
    sizes = {"plan-half": 2, "plan": 1}
    return [
        Benchmark(
            part="files",
            name=name,
            title=f"kai-py plan: a file of {NODES // part:,} nodes and {PODS // part:,} pods of "
            f"4 KB, {JOBS // part:,} waiting Jobs of as many sizes (CPU)",
            run=partial(measure, part),
            aim="60 s" if part == 1 else "",
        )
        for name, part in sizes.items()
    ]


def measure(part: int) -> Measured:
    """Plan one cycle; ``part``: how many times smaller than in full the cluster is."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.json"
        with path.open("w") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": list(objects(part))}, file)
        command = [sys.executable, "-c", MAIN, "plan", str(path), "-o", "json"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            assert run.stdout is not None
            found = json.loads(run.stdout.read())
            _, _, usage = os.wait4(run.pid, 0)
        waited = time.perf_counter() - began
    outcome = f"{len(found['placements'])} placed, {len(found['pending'])} gangs pending, "
    return Measured(
        seconds=usage.ru_utime + usage.ru_stime,
        outcome=f"{outcome}{len(found['rejected'])} rejected; {waited:.0f} s by the clock",
        peak_mb=usage.ru_maxrss * 1024 / MEGABYTE,
    )


def _pods_of_job(job: int) -> int:
    return 1 + job % GPUS


def _full(nodes: int) -> int:
    """How many of the nodes are full."""
    return nodes * (IDLE_PART - 1) // IDLE_PART


PODS = NODES * DAEMON_SETS + _full(NODES) * GPUS + sum(map(_pods_of_job, range(JOBS)))


def objects(part: int) -> Iterator[Document]:
    """The objects of the file."""
    nodes, jobs = NODES // part, JOBS // part
    yield _typed("v1", "Namespace", documents.namespaces()(0))
    for queue in range(QUEUES):
        meta = {"name": f"queue-{queue}", "uid": f"uid-queue-{queue}"}
        spec = {"deservedGPUs": nodes * GPUS // QUEUES}
        yield {
            "apiVersion": "scheduling.kai.io/v1alpha1",
            "kind": "Queue",
            "metadata": meta,
            "spec": spec,
        }
    node, pod = documents.nodes(), documents.pods(_full(nodes))
    for row in range(nodes):
        yield _typed("v1", "Node", node(row))
        for daemon_set in range(DAEMON_SETS):
            yield _daemon(row, daemon_set, pod(row))
    running = _full(nodes) * GPUS
    for number in range(running):
        if number % documents.PODS_PER_JOB == 0:
            yield _job(number // documents.PODS_PER_JOB, documents.PODS_PER_JOB, pod(number))
        yield _in_queue(number // documents.PODS_PER_JOB, _typed("v1", "Pod", pod(number)))
    first = running // documents.PODS_PER_JOB
    for number in range(first, first + jobs):
        count = _pods_of_job(number - first)
        yield _job(number, count, pod(number * documents.PODS_PER_JOB))
        for of in range(count):
            encoded = pod(number * documents.PODS_PER_JOB + of)
            yield _in_queue(number, _waiting(number - first, of, encoded))


def _typed(api_version: str, kind: str, encoded: bytes) -> Document:
    """An object as ``kubectl`` prints it: with its kind, without managedFields."""
    document: Document = {"apiVersion": api_version, "kind": kind, **json.loads(encoded)}
    document["metadata"].pop("managedFields", None)
    return document


def _in_queue(number: int, document: Document) -> Document:
    queue = {"scheduling.kai.io/queue-name": f"queue-{number % QUEUES}"}
    document["metadata"].setdefault("annotations", {}).update(queue)
    return document


def _job(number: int, pods: int, encoded: bytes) -> Document:
    """The Job of ``pods`` pods like the encoded one."""
    job, pod = _typed("batch/v1", "Job", documents.jobs()(number)), json.loads(encoded)
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": spec}
    job["spec"] = {"parallelism": pods, "completions": pods, "template": template}
    return _in_queue(number, job)


def _waiting(job: int, number: int, encoded: bytes) -> Document:
    """A pod of a waiting Job, of its size."""
    pod = _typed("v1", "Pod", encoded)
    pod["metadata"]["name"] = f"{pod['metadata']['name']}-{number}"
    pod["status"] = {"phase": "Pending"}
    del pod["spec"]["nodeName"]
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"]["cpu"] = f"{8_000 + job}m"
    return pod


def _daemon(row: int, daemon_set: int, encoded: bytes) -> Document:
    """A pod of a DaemonSet on a node."""
    pod = _typed("v1", "Pod", encoded)
    meta, name = pod["metadata"], f"agent-{daemon_set}"
    meta.update(name=f"{name}-{row}", generateName=f"{name}-", namespace="kube-system")
    meta["uid"] = f"uid-{name}-{row}"
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": f"uid-{name}"}
    meta["ownerReferences"] = [{**owner, "controller": True}]
    meta["annotations"] = {}
    pod["spec"] |= {"schedulerName": "default-scheduler", "nodeName": f"node-{row:05d}"}
    requests = {"cpu": "100m", "memory": "128Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    return pod
