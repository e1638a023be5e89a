"""Whatever is wrong is told where it is wrong, in one sentence, and stops nothing else.

In every test a healthy Job starts beside the broken thing, and the scheduler logs no error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import kai_py.scheduler as scheduler_module
from tests.cluster.fake_kubelet import FakeNode, gpu_nodes
from tests.support.cluster.api import STRATEGIC_MERGE_PATCH, ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import FRAMEWORKS, owned, owner, served
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    MIN_AVAILABLE_KEY,
    POD_GROUP_KEY,
    QUEUE_KEY,
    claim,
    claim_template,
    gpu_request,
    job,
    pod,
    pod_spec,
    queue,
)
from tests.support.cluster.process import kai_py
from tests.support.cluster.scheduling import EAGER
from tests.support.cluster.view import View, condition
from tests.support.records import replace

QUEUES = "/apis/scheduling.kai.io/v1alpha1/queues"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that soon takes for lasting what is wrong."""
    settings = replace(scheduler_module.commit_settings(EAGER), claim_grace=0.9)
    monkeypatch.setattr(scheduler_module, "commit_settings", lambda _configuration: settings)


async def healthy_job_starts(cluster: Cluster, view: View, *, size: int = 2) -> None:
    """Another gang starts, with a queue and a template of its own."""
    in_team_z = {QUEUE_KEY: "team-z"}
    await cluster.submit(queue("team-z"), claim_template("healthy"))
    spec = pod_spec(template="healthy")
    await cluster.submit(job("healthy", size, spec, annotations=in_team_z))
    await view.wait_bound("healthy", size)


async def queue_says(cluster: Cluster, name: str, *words: str) -> None:
    async def said() -> bool:
        ready = condition(await cluster.api.get(f"{QUEUES}/{name}"), "Ready")
        assert ready.get("status") == "False", ready
        assert all(word in ready["message"] for word in words), ready
        return True

    await eventually(said, what=f"a condition of queue {name}")


@pytest.mark.usefixtures("scheduler")
async def test_a_queue_whose_parent_is_missing(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(parent="nowhere"), claim_template(), job("orphan", 1))
        await queue_says(cluster, "team-a", "spec.parent", "nowhere")
        await healthy_job_starts(cluster, view)


@pytest.mark.usefixtures("scheduler")
async def test_queues_in_a_cycle(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue("hen", parent="egg"), queue("egg", parent="hen"))
        for name in ("hen", "egg"):
            await queue_says(cluster, name, "spec.parent", "hen", "egg")
        await healthy_job_starts(cluster, view)


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_that_names_no_queue_or_one_that_does_not_exist(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(claim_template(), pod("nameless", annotations={}))
        await cluster.submit(pod("misled", annotations={QUEUE_KEY: "nowhere"}))
        message = await view.wait_pending("nameless", 1, reason="QueueNotFound")
        assert QUEUE_KEY in message
        message = await view.wait_pending("misled", 1, reason="QueueNotFound")
        assert '"nowhere"' in message
        await healthy_job_starts(cluster, view)


@pytest.mark.usefixtures("scheduler")
async def test_a_template_that_does_not_exist(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), job("train", 2, pod_spec(template="forgotten")))
        message = await view.wait_pending("train", 2, reason="ClaimsNotReady")
        assert 'ResourceClaimTemplate "forgotten"' in message
        assert "spec.resourceClaims" in message
        await healthy_job_starts(cluster, view)
        # Made later, it is enough.
        await cluster.submit(claim_template("forgotten"))
        await view.wait_bound("train", 2, within=30)


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.nvidia.com"].missing == 1',
        'device.attributes["gpu.nvidia.com"].productName > 3',
        'quantity("forty").isGreaterThan(device.capacity["gpu.nvidia.com"].memory)',
    ],
)
async def test_a_selector_that_fails(cluster: Cluster, view: View, expression: str):
    broken = gpu_request(selectors=[{"cel": {"expression": expression}}])
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim("broken", broken))
        await cluster.submit(pod("asking", pod_spec(claim="broken")))
        message = await view.wait_pending("asking", 1, reason="Unschedulable")
        assert "selector" in message or "CEL" in message, message
        await healthy_job_starts(cluster, view)


def device_slice(name: str, driver: str, **spec: object) -> Document:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": "node-0", "pool": pool, "devices": []} | spec,
    }


@pytest.mark.usefixtures("hasty", "scheduler")
async def test_slices_of_unknown_drivers_and_absurd_sizes(cluster: Cluster, view: View):
    unknown = "weird.example.com"
    huge = {"memory": {"value": "1e400"}, "bandwidth": {"value": "-7"}}
    endless = {"name": "endless", "generation": 1, "resourceSliceCount": 100_000}
    drawn = [{"counterSet": "nowhere", "counters": {"x": {"value": "1"}}}]
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            device_slice("unknown", unknown, devices=[{"name": "d"}]),
            device_slice("huge", unknown, devices=[{"name": "d", "capacity": huge}]),
            device_slice("endless", "gpu.nvidia.com", pool=endless, devices=[{"name": "d"}]),
            device_slice("draws", unknown, devices=[{"name": "d", "consumesCounters": drawn}]),
        )
        await healthy_job_starts(cluster, view, size=4)

        async def told() -> bool:
            (endless,) = await view.events(
                kind="ResourceSlice", name="endless", reason="InvalidObject"
            )
            assert "spec.pool.resourceSliceCount" in endless
            (draws,) = await view.events(kind="ResourceSlice", name="draws", reason="InvalidObject")
            assert "unknown counter set nowhere" in draws
            return True

        await eventually_without_errors(told)


@pytest.mark.usefixtures("scheduler")
async def test_a_node_with_more_memory_than_numbers_can_hold(cluster: Cluster, view: View):
    async with cluster.run_nodes([FakeNode(name="absurd"), *gpu_nodes(1, published_gpus=4)]):
        await set_allocatable(cluster, "absurd", {"memory": "1e400"})
        await healthy_job_starts(cluster, view)


@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/gpu"])
async def test_negative_amounts_do_not_get_past_the_api_server(cluster: Cluster, resource: str):
    """So the scheduler's own answer to them is shown on the plan alone."""
    async with cluster.run_nodes([FakeNode(name="absurd")]):
        with pytest.raises(ApiError, match="must be greater than or equal to 0") as refused:
            await set_allocatable(cluster, "absurd", {resource: "-1"})
        assert refused.value.code == 422


async def set_allocatable(cluster: Cluster, node: str, amounts: dict[str, str]) -> None:
    patch = {"status": {"allocatable": amounts}}
    path = f"/api/v1/nodes/{node}/status"
    await cluster.api.patch(path, patch, content_type=STRATEGIC_MERGE_PATCH)


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_that_can_never_fit_stops_no_other(cluster: Cluster, view: View):
    enormous = {"deservedGPUs": 400, "maxGPUs": 400}
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=4)):
        await cluster.submit(queue(**enormous), claim_template(), job("whale", 300))
        message = await view.wait_pending("whale", 300, reason="Unschedulable", within=60)
        assert message.startswith("Infeasible: ")
        assert " 300 pods must start together but only 8" in message
        for index in range(3):
            await cluster.submit(job(f"minnow-{index}", 2))
            await view.wait_bound(f"minnow-{index}", 2)
        assert await view.bound("whale") == {}
        assert len(await view.held()) == 6


async def eventually_without_errors(probe: Callable[[], Awaitable[bool]]) -> None:
    async def probed() -> bool:
        try:
            return await probe()
        except ValueError as error:  # no event, or one too many
            raise AssertionError(str(error)) from error

    await eventually(probed, what="events that name object and field")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cyclePeriods: 20ms\n", ":1: cyclePeriods:"),
        ("eviction:\n  preempt: perhaps\n", ":2: eviction.preempt:"),
        ("leaderElection: {retry: 20s}\n", "retry must be shorter than renewDeadline"),
        (
            "grouping:\n  rules:\n    - owners: [{kinds: [Campaign]}]\n      flor: {default: 2}\n",
            ":4: grouping.rules[0].flor:",
        ),
    ],
)
async def test_configuration_mistakes_end_the_start(
    real: Cluster, tmp_path: Path, text: str, problem: str
):
    file = tmp_path / "mistaken.yaml"
    await asyncio.to_thread(file.write_text, text)
    async with kai_py(real, tmp_path, "--config", str(file)) as scheduler:
        assert await scheduler.wait_ended() == 2
        assert scheduler.log.startswith(f"kai-py: {file}")
        assert problem in scheduler.log
        assert scheduler.log.count("\n") == 1
        assert scheduler.proxy.writes == []


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_that_asks_for_two_groups_is_told_which_one_counts(
    cluster: Cluster, view: View
):
    both = pod(
        "torn",
        annotations=IN_TEAM_A | {POD_GROUP_KEY: "ring", MIN_AVAILABLE_KEY: "1"},
        labels={"scheduling.x-k8s.io/pod-group": "other"},
    )
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template(), both)
        await view.wait_bound("torn", 1)

        async def told() -> bool:
            (note,) = await view.events(kind="Pod", name="torn", reason="InvalidObject")
            assert 'ignored: label scheduling.x-k8s.io/pod-group "other"' in note
            return True

        await eventually_without_errors(told)
        await healthy_job_starts(cluster, view)


@pytest.mark.usefixtures("scheduler")
async def test_a_kind_of_owners_that_is_removed_at_run_time(cluster: Cluster, view: View):
    kind = FRAMEWORKS[0]
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=6)):
        async with served(cluster, kind):
            await cluster.submit(queue(), claim_template())
            await cluster.submit(*owned(kind, await cluster.api.create(owner(kind, "early"))))
            await view.wait_bound("early", 3)
        await healthy_job_starts(cluster, view)


@pytest.mark.usefixtures("scheduler")
async def test_an_owner_that_is_deleted_meanwhile(cluster: Cluster, view: View):
    kind = FRAMEWORKS[0]
    path = f"/apis/{kind.group}/{kind.version}/namespaces/default/{kind.plural}/half"
    async with served(cluster, kind), cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        made = owned(kind, await cluster.api.create(owner(kind, "half")))
        await cluster.submit(*made[:2])
        await view.wait_incomplete("half", 2, note="minMember is 3; existing pods: 2.")
        await cluster.api.delete(path)
        await healthy_job_starts(cluster, view)
        assert await view.bound("half") == {}, "the garbage collector takes them in its own time"
