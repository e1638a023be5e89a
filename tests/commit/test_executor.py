"""What of a plan is carried out and reported on a stale view, and when events are written."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from kai_py.commit import events
from kai_py.commit.dependencies import ExecutorDependencies
from kai_py.commit.executor import Executor
from kai_py.commit.gpu_reservations import SharedGpuGroups
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Plan
from kai_py.watch.client import Client
from kai_py.watch.kinds import NODES, PODS, RESOURCE_CLAIMS
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import JOB, SETTINGS, Cluster, Fresh, eviction_of, gang_of, placed
from tests.support.records import replace

STALE = ["Pod: its watch has not shown a write of this process"]


@pytest.mark.parametrize(
    ("silent", "behind", "evicts"), [([], [], True), ([], STALE, False), (STALE, [], False)]
)
async def test_evictions_that_are_held_back_are_not_told(silent, behind, evicts):
    plan = Plan(evictions=(eviction_of(Cluster().add_pod("p")),))
    carried, told, woken = [], [], []
    executor = object.__new__(Executor)
    executor._stale = ()
    executor._dependencies = SimpleNamespace(
        failures=SimpleNamespace(contained=lambda _part: nullcontext()),
        freshness=SimpleNamespace(silent=lambda: silent, behind=lambda: behind),
        wake=woken.append,
    )
    executor._reports = SimpleNamespace(
        complete=lambda given, *_: given, update=lambda given, _gangs: told.append(given)
    )
    executor._maintenance = SimpleNamespace()
    executor.committer = SimpleNamespace(commit=lambda given, _now: carried.append(given))
    executor.execute(plan, SimpleNamespace(gangs={}), 0.0)
    expected = plan.evictions if evicts else ()
    assert [each.evictions for each in (*carried, *told)] == [expected, expected]
    assert bool(woken) is not evicts, "it is planned again while a view is stale"


def dependencies(cluster, mirror):
    return ExecutorDependencies(
        client=Client(cluster),
        mirror=mirror,
        freshness=Fresh(),
        assume_cache=RecordingAssumeCache(),
        claiming_groups=SimpleNamespace(),
        holders=cluster.holders,
        gpu_groups=SharedGpuGroups(),
        metrics=Metrics(CollectorRegistry()),
        settings=replace(SETTINGS, concurrency=1),
        identity="host-1",
        wake=lambda _seconds: None,
        failures=SimpleNamespace(),
    )


def test_claims_are_written_at_the_version_that_is_served_now():
    served = {}
    access = dependencies(Cluster(), SimpleNamespace(served=served.get)).access(1)
    seen = [access.about("team-a").claims.version]
    for version in ("v1beta2", "v1"):
        served[RESOURCE_CLAIMS] = RESOURCE_CLAIMS.at(version)
        seen.append(access.about("team-a").claims.version)
    assert seen == ["v1", "v1beta2", "v1"]


async def test_events_wait_while_as_many_bindings_are_under_way_as_may_be(monkeypatch):
    """What counts is the limit that bindings share, not those of statuses and events."""
    monkeypatch.setattr(events, "DEFER_POLL_SECONDS", 0.001)
    cluster, is_binding, may_bind = Cluster(), asyncio.Event(), asyncio.Event()
    pod = cluster.add_pod("p")
    shown = {
        PODS: {(pod.namespace, pod.name): cluster.pod("p")},
        NODES: {("", name): node for name, node in cluster.shown_nodes.items()},
    }

    async def hold(_call, serve):
        is_binding.set()
        await may_bind.wait()
        return await serve()

    cluster.fail_once("create", "Pod/binding", hold)
    mirror = SimpleNamespace(objects=lambda kind: shown.get(kind, {}), served=lambda _kind: None)
    executor = Executor(dependencies(cluster, mirror))
    reports = executor._reports
    writing = asyncio.create_task(dict(reports.background())["events"]())
    executor.committer.commit(Plan(placements=(gang_of(placed(pod, "node-a")),)), now=0.0)
    await is_binding.wait()
    reports.events.report_not_resumed(JOB, "the server refused it")
    await asyncio.sleep(0.05)
    assert not cluster.made("create", "Event")
    may_bind.set()
    assert await executor.committer.drain(5.0)
    await reports.drain()
    assert cluster.made("create", "Event") == 2
    writing.cancel()
