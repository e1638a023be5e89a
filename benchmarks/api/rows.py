"""The rows of the api part.

Both schedulers fill the same server one after the other in the same run, each pod created and seen
by the same client. A figure is what that client sees: creation to last binding, or, when the pods
are there before the scheduler starts, first to last binding.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.api import documents
from benchmarks.api.cluster import Cluster, cluster
from benchmarks.api.documents import KAI_PY, KUBE_SCHEDULER
from benchmarks.api.watching import watching
from benchmarks.row import Benchmark, Measured

NODES, PODS = 500, 4000
CLAIM_NODES, CLAIM_PODS = 250, 1000
LONGEST = 240.0


def api_benchmarks() -> list[Benchmark]:
    """The rows."""
    filled = f"{PODS:,} one-GPU pods on {NODES} nodes through a real API server"
    return [
        _row("fill", f"{filled}, creation included", fill, aim="faster than kube-scheduler"),
        _row("fill-created", f"{filled}, all created before", fill_created, aim="server's limit"),
        _row(
            "claims",
            f"{CLAIM_PODS:,} pods with a claim for one device each, from a template, on "
            f"{CLAIM_NODES} nodes through a real API server, all created before",
            fill_claims,
            aim="faster than kube-scheduler",
        ),
        _row("bindings", f"the server's own limit: {PODS:,} bare bindings", bare_bindings),
        _row(
            "gang",
            "gang of 512 × 2 on 512 nodes, real API server: first pod created to last bound",
            partial(one_gang, 512),
            peer="KAI 48.7 s (its cluster test)",
        ),
    ]


def _row(
    name: str,
    title: str,
    measure: Callable[[], Coroutine[Any, Any, Measured]],
    *,
    peer: str = "",
    aim: str = "",
) -> Benchmark:
    run = partial(_run, measure)
    return Benchmark(part="api", name=name, title=title, run=run, peer=peer, aim=aim)


def _run(measure: Callable[[], Coroutine[Any, Any, Measured]]) -> Measured:
    return asyncio.run(measure())


@dataclass(frozen=True)
class Filled:
    """How long filling took, and processor time of scheduler and API server meanwhile."""

    seconds: float
    scheduler: float
    server: float
    pods: int = PODS

    @property
    def rate(self) -> float:
        """Pods bound in a second."""
        return self.pods / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:.0f} pods/s (CPU s: own {self.scheduler:.1f}, server {self.server:.1f})"


async def fill() -> Measured:
    """Create the pods while the scheduler runs."""

    async def filled(on: Cluster, name: str) -> Filled:
        with on.scheduler(name) as process:
            async with watching(on.api) as seen:
                own, server = on.processor_seconds(process)
                began = time.perf_counter()
                await on.create_pods(PODS, name)
                await seen.all_bound(PODS, within=LONGEST)
                own_after, server_after = on.processor_seconds(process)
        await on.delete_pods()
        return Filled(seen.last_bound - began, own_after - own, server_after - server)

    async with cluster(NODES) as on:
        theirs = await filled(on, KUBE_SCHEDULER)
        ours = await filled(on, KAI_PY)
    return _compared(ours, theirs, "KAI 398 s (its cluster test)")


async def fill_created() -> Measured:
    """Start the scheduler when the pods are there; bare bindings in the same run."""

    async def filled(on: Cluster, name: str) -> Filled:
        await on.create_pods(PODS, name)
        return await _bind_all(on, name, PODS)

    async with cluster(NODES) as on:
        theirs = await filled(on, KUBE_SCHEDULER)
        limit = await _bound_bare(on)
        watched = await _bound_bare_and_watched(on)
        requests = await on.requests()
        ours = await filled(on, KAI_PY)
        requests = await on.requests() - requests
    bare = f"bare bindings, same run: {watched}; with no client watching: {limit}"
    measured = _compared(ours, theirs, bare)
    reached = (
        f"{ours.rate / watched.rate:.0%} of bare bindings in the same run, "
        f"{ours.rate / limit.rate:.0%} of those that no client watches"
    )
    said = f"{measured.outcome}; {reached}; requests per pod: {_per_pod(requests)}"
    return replace(measured, outcome=said)


def _per_pod(requests: Counter[str]) -> str:
    """The requests of binding, without those that create and delete the pods."""
    of_client = {"POST pods", "DELETECOLLECTION pods", "LIST pods"}
    counts = [(kind, count / PODS) for kind, count in requests.most_common()]
    shown = [f"{count:.3f} {kind}" for kind, count in counts if kind not in of_client]
    return ", ".join(shown[:3])


async def _bound_bare(on: Cluster) -> Filled:
    """Bind without any scheduler, and delete the pods afterwards."""
    await on.create_pods(PODS, KAI_PY)
    bound = await _bind_bare(on)
    await on.delete_pods()
    return bound


async def _bound_bare_and_watched(on: Cluster) -> Filled:
    """The same, timed as a scheduler is: by a client that watches the pods."""
    await on.create_pods(PODS, KAI_PY)
    async with watching(on.api) as seen:
        bound = await _bind_bare(on)
        await seen.all_bound(PODS, within=LONGEST)
    await on.delete_pods()
    return replace(bound, seconds=seen.last_bound - seen.first_bound)


async def _bind_bare(on: Cluster) -> Filled:
    client, server = time.process_time(), on.processor_seconds()[1]
    began = time.perf_counter()
    await on.bind(PODS, writes=16)
    seconds = time.perf_counter() - began
    server = on.processor_seconds()[1] - server
    return Filled(seconds, time.process_time() - client, server)


async def fill_claims() -> Measured:
    """The same with a claim for each pod, which its controller has made."""

    async def filled(on: Cluster, name: str) -> Filled:
        await on.create_pods(CLAIM_PODS, name, documents.claiming_pod)
        await on.wait_for_claims(CLAIM_PODS)
        return await _bind_all(on, name, CLAIM_PODS)

    async with cluster(CLAIM_NODES) as on:
        await on.publish_devices()
        theirs = await filled(on, KUBE_SCHEDULER)
        ours = await filled(on, KAI_PY)
    return _compared(ours, theirs)


async def _bind_all(on: Cluster, name: str, pods: int) -> Filled:
    """Start a scheduler beside pods that wait, and delete the pods afterwards."""
    async with watching(on.api) as seen:
        _, server = on.processor_seconds()
        with on.scheduler(name) as process:
            await seen.all_bound(pods, within=LONGEST)
            own, server_after = on.processor_seconds(process)
    await on.delete_pods()
    return Filled(seen.last_bound - seen.first_bound, own, server_after - server, pods)


def _compared(ours: Filled, theirs: Filled, published: str = "") -> Measured:
    parts = (f"kube-scheduler, same run {theirs.seconds:.1f} s: {theirs}", published)
    return Measured(
        seconds=ours.seconds,
        outcome=f"{ours}; {theirs.seconds / ours.seconds:.2f} times as fast as kube-scheduler",
        peer="; ".join(part for part in parts if part),
    )


async def bare_bindings() -> Measured:
    """Bind without any scheduler."""
    async with cluster(NODES) as on:
        bound = await _bound_bare(on)
    said = f"{bound.rate:.0f} bindings/s, 16 at once (CPU s: server {bound.server:.1f})"
    return Measured(seconds=bound.seconds, outcome=said)


async def one_gang(size: int) -> Measured:
    """A Job whose pods its controller creates."""
    async with cluster(size) as on:
        with on.scheduler(KAI_PY):
            async with watching(on.api) as seen:
                await on.api.create(documents.gang(size, gpus=2))
                await seen.all_bound(size, within=LONGEST)
    decided = seen.first_bound - max(seen.created.values())
    return Measured(
        seconds=seen.last_bound - seen.first_created,
        outcome=f"{size} bound; {max(decided, 0.0) * 1e3:.0f} ms from last created to first bound",
    )
