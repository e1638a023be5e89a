"""The rows: a workload by both schedulers, one after the other, each on a real control plane."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from benchmarks.api import documents
from benchmarks.api.cluster import Cluster
from benchmarks.api.documents import KAI_PY, KUBE_SCHEDULER
from benchmarks.api.watching import watching
from benchmarks.row import Benchmark, Measured
from benchmarks.scheduler_perf.lists import Workload, reduced, workload
from benchmarks.scheduler_perf.run import Outcome, Run
from tests.cluster.controlplane import control_plane
from tests.support.cluster.api import Api
from tests.support.cluster.scheduling import install_definitions

ALL_PODS = "/api/v1/pods"
GPUS = 1_000_000
"""What the queue deserves: no pod of these lists waits for it."""
CHOSEN = (
    ("SchedulingBasic", "500Nodes", 1),
    ("SchedulingPodAffinity", "500Nodes", 1),
    ("SchedulingPodAntiAffinity", "500Nodes", 1),
    ("SchedulingPreferredPodAffinity", "500Nodes", 1),
    ("SchedulingPreferredPodAntiAffinity", "500Nodes", 1),
    ("SchedulingNodeAffinity", "500Nodes", 1),
    ("TopologySpreading", "500Nodes", 2),
    ("PreferredTopologySpreading", "500Nodes", 2),
    ("MixedSchedulingBasePod", "500Nodes", 2),
    ("PreemptionBasic", "1000Nodes", 4),
    ("SchedulingWithResourceClaimTemplate", "2000pods_200nodes", 2),
)
"""Test case, workload, and by what its nodes and pods are divided for a machine of two cores."""


def scheduler_perf_benchmarks() -> list[Benchmark]:
    """The rows."""
    return [
        Benchmark(
            part="scheduler-perf",
            name=case,
            title=f"scheduler_perf's {case}/{name}{_size(divisor)} on a real control plane",
            run=partial(_run, case, name, divisor),
            aim="faster than kube-scheduler, at most 1.2 times its processor time per pod",
        )
        for case, name, divisor in CHOSEN
    ]


def _size(divisor: int) -> str:
    return "" if divisor == 1 else f" with 1/{divisor} of its nodes and pods"


def _run(case: str, name: str, divisor: int) -> Measured:
    return asyncio.run(compare(reduced(workload(case, name), divisor)))


async def compare(chosen: Workload) -> Measured:
    """Both schedulers, each on a control plane that nothing was on before."""
    theirs = await measure(chosen, KUBE_SCHEDULER)
    ours = await measure(chosen, KAI_PY)
    return Measured(
        seconds=ours.seconds,
        outcome=f"{_told(ours)}; {ours.rate / theirs.rate:.2f} times as fast as kube-scheduler, "
        f"{ours.processor / max(theirs.processor, 1e-9):.2f} times its processor time",
        peer=f"kube-scheduler, same run: {_told(theirs)}",
    )


def _told(outcome: Outcome) -> str:
    return (
        f"{outcome.rate:.0f} pods/s (created at {outcome.creation_rate:.0f} pods/s), "
        f"{outcome.processor_per_pod:.2f} ms of processor time a pod"
    )


async def measure(chosen: Workload, scheduler: str) -> Outcome:
    """One scheduler on a fresh control plane."""
    async with prepared() as on:
        with on.scheduler(scheduler) as process:
            async with watching(on.api, ALL_PODS) as seen:
                return await Run(on.api, seen, scheduler, process, chosen).perform()


@asynccontextmanager
async def prepared() -> AsyncIterator[Cluster]:
    """A control plane with the admission of the lists: priorities are numbers of the pods."""
    with (
        tempfile.TemporaryDirectory() as directory,
        control_plane(
            Path(directory),
            apiserver_flags={
                "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition,Priority"
            },
            controller_manager_flags={"controllers": "*,-node-lifecycle-controller"},
        ) as plane,
    ):
        async with Api(plane.kubeconfig) as api:
            await install_definitions(api)
            await api.create(documents.queue(GPUS))
            yield Cluster(plane, api, 0)
