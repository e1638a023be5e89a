"""The whole scheduler against the embedded cluster over HTTP."""

import asyncio
import contextlib

import pytest
from prometheus_client import CollectorRegistry

import kai_py.scheduler
from kai_py.api.crd import crds
from kai_py.audit import finding
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.embedded import cluster as http_front
from kai_py.observe import auditor
from kai_py.observe.metrics import Metrics
from kai_py.planner import Planner
from kai_py.process_settings import commit_settings
from kai_py.scheduler import Scheduler
from kai_py.watch.credentials import Anonymous
from kai_py.watch.http_transport import connect
from tests.support.dying import run_until_killed
from tests.support.faulty_cluster import Fault, FaultyCluster, Refuse
from tests.support.patience import patience
from tests.support.records import replace

pytestmark = pytest.mark.cluster

ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}


@pytest.fixture
async def cluster():
    async with FaultyCluster() as cluster:
        cluster.create_all(crds().values())
        for name in ("node-0", "node-1"):
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": ready}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            cluster.create(node | {"status": status})
        cluster.create(
            {
                "apiVersion": "scheduling.kai.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "team-a"},
                "spec": {"deservedGPUs": 8, "maxGPUs": 16},
            }
        )
        yield cluster


@pytest.fixture
async def devices(cluster):
    """Eight GPUs on node-0, published by their driver."""
    create_devices(cluster, [{"name": f"gpu-{index}"} for index in range(8)])


def create_devices(cluster, published):
    cluster.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.example.com"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
        }
    )
    cluster.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "node-0-gpus"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "node-0",
                "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
                "devices": published,
            },
        }
    )
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    cluster.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


@contextlib.asynccontextmanager
async def scheduling(cluster, *, identity="one", on_plan=lambda _plan: None, dry_run=False):
    metrics = Metrics(CollectorRegistry())
    async with connect(Anonymous(cluster.url), on_call=metrics.count_call) as client:
        scheduler = Scheduler(
            client,
            Configuration(),
            metrics,
            identity=identity,
            dry_run=dry_run,
            on_plan=on_plan,
        )
        running = asyncio.create_task(scheduler.run())
        try:
            yield scheduler
        finally:
            scheduler.stop()
            async with asyncio.timeout(patience(20)):
                await running


def submit(cluster, name, parallelism, *, claim=False):
    resources = {"claims": [{"name": "gpu"}]} if claim else {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "trainer", "resources": resources}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}] if claim else []
    pod = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]}
    pod["resourceClaims"] = claims
    cluster.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "annotations": {"scheduling.kai.io/queue-name": "team-a"},
            },
            "spec": {
                "parallelism": parallelism,
                "completions": parallelism,
                "template": {"spec": pod},
            },
        }
    )


def pods(cluster, job):
    everything = cluster.api.list(cluster.registry.named("pods"))
    return [pod for pod in everything if pod["metadata"]["name"].startswith(f"{job}-")]


def bound(cluster, job):
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods(cluster, job))


def reasons(cluster, job):
    return {
        condition.get("reason")
        for pod in pods(cluster, job)
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled"
    }


async def until(condition, within=10.0):
    for _ in range(round(patience(within) / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


async def test_a_gang_starts_whole_and_one_that_does_not_fit_says_why(cluster):
    async with scheduling(cluster) as scheduler:
        submit(cluster, "fits", 12)
        await until(lambda: bound(cluster, "fits") == 12)
        submit(cluster, "waits", 6)
        await until(lambda: len(pods(cluster, "waits")) == 6)
        await until(lambda: reasons(cluster, "waits") == {"QueueMax"})
        assert bound(cluster, "waits") == 0
        assert scheduler.unhealthy() == []
        assert scheduler.unready() == []
        for pod in pods(cluster, "fits")[:4]:
            cluster.api.patch_status(cluster.registry.named("pods"), pod, {"phase": "Succeeded"})
        await until(lambda: bound(cluster, "waits") == 6)


async def test_a_lone_device_that_failed_is_tried_again_when_its_pause_ends(cluster, monkeypatch):
    def short_pause(configuration):
        return replace(commit_settings(configuration), failed_device_backoff=3.0)

    monkeypatch.setattr(kai_py.scheduler, "commit_settings", short_pause)
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    create_devices(cluster, [{"name": "gpu-0", "bindsToNode": True, **conditions}])
    async with scheduling(cluster):
        submit(cluster, "alone", 1, claim=True)
        await until(lambda: allocations(cluster))
        await asyncio.sleep(0.1)
        report(cluster, "Broken")
        await until(lambda: not allocations(cluster))
        await until(lambda: allocations(cluster))
        report(cluster, "Attached")
        await until(lambda: bound(cluster, "alone") == 1)


def allocations(cluster):
    """The claims that have an allocation."""
    claims = cluster.api.list(cluster.registry.named("resourceclaims.resource.k8s.io"))
    return [each for each in claims if each["status"].get("allocation")]


def report(cluster, condition):
    """The driver reports a condition of the only allocated device."""
    [claim] = allocations(cluster)
    [device] = claim["status"]["allocation"]["devices"]["results"]
    known = {key: device[key] for key in ("driver", "pool", "device")}
    known["conditions"] = [{"type": condition, "status": "True"}]
    cluster.api.patch_status(
        cluster.registry.named("resourceclaims.resource.k8s.io"), claim, {"devices": [known]}
    )


async def test_a_stopped_leader_gives_way_to_the_next_at_once(cluster):
    async with scheduling(cluster, identity="one"):
        submit(cluster, "first", 2)
        await until(lambda: bound(cluster, "first") == 2)
    async with scheduling(cluster, identity="two"):
        submit(cluster, "second", 2)
        await until(lambda: bound(cluster, "second") == 2)


async def test_the_next_leader_knows_what_the_last_one_decided(cluster):
    async with scheduling(cluster, identity="one") as first:
        submit(cluster, "first", 2)
        await until(lambda: bound(cluster, "first") == 2)
        await until(lambda: len(cluster.api.list(cluster.registry.named("events"))) >= 2)
        before = first.decisions.newest
    async with scheduling(cluster, identity="two") as second:
        await until(lambda: second.decisions.since(0))
        [placed] = second.decisions.since(0)
        assert (placed.kind, placed.gang) == ("placed", "default/Job/first")
        assert len(placed.pods) == 2
        assert placed.number <= before
        submit(cluster, "second", 2)
        await until(lambda: len(second.decisions.since(0)) >= 2)
        numbers = [each.number for each in second.decisions.since(0)]
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


async def test_a_standby_does_nothing(cluster):
    async with scheduling(cluster, identity="one"):
        submit(cluster, "first", 2)
        await until(lambda: bound(cluster, "first") == 2)
        plans = []
        async with scheduling(cluster, identity="two", on_plan=plans.append) as standby:
            await until(lambda: standby.unready() == [])
            submit(cluster, "second", 2)
            await until(lambda: bound(cluster, "second") == 2)
            assert plans == []


async def test_a_failing_cycle_is_survived(cluster, monkeypatch):
    decide = Planner.decide
    failures = [ZeroDivisionError("boom")]

    def fail_once(self, snapshot, **options):
        if failures:
            raise failures.pop()
        return decide(self, snapshot, **options)

    monkeypatch.setattr(Planner, "decide", fail_once)
    async with scheduling(cluster):
        submit(cluster, "fits", 2)
        await until(lambda: bound(cluster, "fits") == 2)
    assert failures == []


async def test_a_dry_run_plans_and_writes_nothing(cluster):
    plans = []
    async with scheduling(cluster, dry_run=True, on_plan=plans.append):
        submit(cluster, "fits", 4)
        await until(lambda: any(plan.placements for plan in plans))
    assert bound(cluster, "fits") == 0
    assert cluster.api.list(cluster.registry.named("leases.coordination.k8s.io")) == []
    assert cluster.api.list(cluster.registry.named("events")) == []


async def test_an_api_server_that_fails_now_and_then_only_costs_time(cluster):
    for skip in range(0, 12, 3):
        cluster.faults.add(Fault(effect=Refuse(code=500), verb="create", skip=skip))
    async with scheduling(cluster):
        submit(cluster, "fits", 8)
        await until(lambda: bound(cluster, "fits") == 8)


def held(cluster):
    """Devices in the order of claims, and the consumers they are held for."""
    claims = cluster.api.list(cluster.registry.named("resourceclaims.resource.k8s.io"))
    allocated = [claim for claim in claims if claim.get("status", {}).get("allocation")]
    devices = [
        result["device"]
        for claim in allocated
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    consumers = {c["name"] for claim in allocated for c in claim["status"].get("reservedFor") or ()}
    return sorted(devices), consumers


@pytest.mark.usefixtures("devices")
async def test_a_gang_with_claims_gets_a_device_each_or_none(cluster):
    async with scheduling(cluster):
        submit(cluster, "single", 1, claim=True)
        await until(lambda: bound(cluster, "single") == 1)
        submit(cluster, "train", 8, claim=True)
        await until(lambda: reasons(cluster, "train") == {"Unschedulable"})
        assert bound(cluster, "train") == 0
        assert len(held(cluster)[0]) == 1
        (single,) = pods(cluster, "single")
        cluster.api.patch_status(cluster.registry.named("pods"), single, {"phase": "Succeeded"})
        await until(lambda: bound(cluster, "train") == 8)
    devices, consumers = held(cluster)
    assert devices == [f"gpu-{index}" for index in range(8)]
    assert consumers == {pod["metadata"]["name"] for pod in pods(cluster, "train")}


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("writes", [1, 5, 8, 12, 15, 16, 17, 20, 23])
async def test_a_scheduler_killed_at_any_write_leaves_a_gang_to_be_completed(cluster, writes):
    submit(cluster, "train", 8, claim=True)
    async with connect(Anonymous(cluster.url)) as client:
        configuration = Configuration(leader_election=LeaderElectionConfig(enabled=False))

        def make(client):
            metrics = Metrics(CollectorRegistry())
            return Scheduler(client, configuration, metrics, identity="dying")

        await run_until_killed(client, make, writes)
    assert bound(cluster, "train") < 8
    async with scheduling(cluster, identity="next"):
        await until(lambda: bound(cluster, "train") == 8)
    assert held(cluster)[0] == [f"gpu-{index}" for index in range(8)]


async def test_the_auditor_looks_at_the_cluster_beside_the_cycles(cluster, monkeypatch):
    monkeypatch.setattr(finding, "GRACE", 0.0)
    monkeypatch.setattr(finding, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(auditor, "INTERVAL", 0.1)
    # A finding counts once every kind has shown the versions of all others, by a bookmark at last.
    monkeypatch.setattr(http_front, "BOOKMARK_SECONDS", 0.5)
    async with scheduling(cluster) as scheduler:
        submit(cluster, "fits", 8)
        await until(lambda: bound(cluster, "fits") == 8)
        nodes = cluster.registry.named("nodes")
        assert scheduler.auditor.findings == ()
        for node in cluster.api.list(nodes):
            fewer = {**ALLOCATABLE, "nvidia.com/gpu": "1"}
            cluster.api.patch_status(nodes, node, {"allocatable": fewer, "capacity": fewer})
        await until(lambda: scheduler.auditor.findings)
        kinds = {each.kind.value for each in scheduler.auditor.findings}
        assert kinds == {"node-over-capacity"}
