"""Kubernetes' own groups in the shapes of 1.35 and 1.37, found by discovery over HTTP.

The embedded cluster serves the kinds by definitions; a control plane that has them built in is
asked in ``test_native_groups``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster, embedded_cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework, served
from tests.support.cluster.manifests import IN_TEAM_A, pod, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View, condition

GROUP = "scheduling.k8s.io"
OLDEST, COMPOSED, NEWEST = (f"{GROUP}/{version}" for version in ("v1alpha1", "v1alpha3", "v1beta1"))
SHAPES = {
    OLDEST: ("Workload",),
    COMPOSED: ("Workload", "PodGroup", "CompositePodGroup"),
    NEWEST: ("Workload", "PodGroup"),
}
WHOLE: Document = {"all": {}}


@pytest.fixture(params=sorted(SHAPES))
def api(request: pytest.FixtureRequest) -> str:
    """The version in which the cluster serves groups."""
    return str(request.param)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, api: str) -> AsyncIterator[Cluster]:
    """An embedded cluster that serves the kinds of ``api``, with a scheduler at work."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(embedded_cluster(request))
        await install_definitions(opened.api)
        for kind in SHAPES[api]:
            framework = Framework(GROUP, api.removeprefix(f"{GROUP}/"), kind, {}, ())
            await stack.enter_async_context(served(opened, framework))
        await stack.enter_async_context(scheduling(opened))
        await opened.submit(queue())
        yield opened


@pytest.mark.parametrize("api", [OLDEST], indirect=True)
async def test_each_copy_of_a_group_in_a_workload_starts_whole_or_waits_whole(
    cluster: Cluster, api: str
) -> None:
    view = View(cluster.api)
    groups = [{"name": "workers", "policy": {"gang": {"minCount": 3}}}]
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await cluster.submit(made(api, "Workload", "train", {"podGroups": groups}))
        await cluster.submit(*copies("a", 2))
        await view.wait_incomplete("a", 2, note="minMember is 3; existing pods: 2.")
        await cluster.submit(copies("a", 3)[2])
        await view.wait_bound("a", 3)
        await cluster.submit(*copies("b", 3))
        await view.wait_pending("b", 3, reason="Unschedulable")


@pytest.mark.parametrize("api", [COMPOSED, NEWEST], indirect=True)
async def test_a_group_starts_whole_or_waits_whole_and_says_so(cluster: Cluster, api: str) -> None:
    view = View(cluster.api)
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await cluster.submit(group(api, "train", 3), *members("train", 2))
        await view.wait_incomplete("train", 2, note="minMember is 3; existing pods: 2.")
        assert await said(cluster, api, "train") == ("", "")
        await cluster.submit(members("train", 3)[2])
        await view.wait_bound("train", 3)
        await says(cluster, api, "train", "True", "Scheduled")
        await cluster.submit(group(api, "late", 2), *members("late", 2))
        await view.wait_pending("late", 2, reason="Unschedulable")
        await says(cluster, api, "late", "False", "Unschedulable")


@pytest.mark.parametrize("api", [COMPOSED, NEWEST], indirect=True)
@pytest.mark.parametrize(("mode", "leaving"), [(WHOLE, 3), ({"single": {}}, 1)])
async def test_a_group_gives_way_as_its_disruption_mode_says(
    cluster: Cluster, api: str, mode: Document, leaving: int
) -> None:
    view = View(cluster.api)
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=3)):
        await cluster.submit(group(api, "low", 1, disruptionMode=mode), *members("low", 3))
        await view.wait_bound("low", 3)
        await cluster.submit(group(api, "high", 1, priority=1000), *members("high", 1))
        await view.wait_bound("high", 1)
        assert 3 - len(await view.pods("low")) == leaving


@pytest.mark.parametrize("api", [COMPOSED, NEWEST], indirect=True)
async def test_the_queue_of_a_group_is_that_of_its_workload(cluster: Cluster, api: str) -> None:
    """Its own labels go before those of its Workload, these before what its pods say."""
    view = View(cluster.api)
    elsewhere = {"scheduling.kai.io/queue-name": "nowhere"}
    workload = made(api, "Workload", "w", {}, labels=IN_TEAM_A)
    of_workload: Document = {"workloadRef": {"workloadName": "w", "templateName": "workers"}}
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await cluster.submit(workload, group(api, "plain", 1, labels={}, **of_workload))
        await cluster.submit(*members("plain", 1, annotations=elsewhere))
        await view.wait_bound("plain", 1)
        await cluster.submit(group(api, "own", 1, labels=elsewhere, **of_workload))
        await cluster.submit(*members("own", 1))
        message = await view.wait_pending("own", 1, reason="QueueNotFound")
        assert '"nowhere"' in message


@pytest.mark.parametrize("api", [COMPOSED], indirect=True)
async def test_groups_of_groups_start_together_or_wait_together(cluster: Cluster, api: str) -> None:
    view = View(cluster.api)
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await cluster.submit(*serving(api, "serve"), *members("serve-prefill", 1))
        await view.wait_incomplete("serve", 1, note="minMember is 3; existing pods: 1.")
        await cluster.submit(*members("serve-decode", 2))
        await view.wait_bound("serve", 3)
        await says(cluster, api, "serve-decode", "True", "Scheduled")
        await says(cluster, api, "serve", "True", "Scheduled", kind="CompositePodGroup")
        await cluster.submit(*serving(api, "next"))
        await cluster.submit(*members("next-prefill", 1), *members("next-decode", 2))
        await view.wait_pending("next", 3, reason="Unschedulable")
        await says(cluster, api, "next", "False", "Unschedulable", kind="CompositePodGroup")


def serving(api: str, name: str) -> list[Document]:
    """Two groups below one, both of which are needed."""
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    above: Document = {"parentCompositePodGroupName": name}
    return [
        made(api, "CompositePodGroup", name, policy),
        group(api, f"{name}-prefill", 1, **above),
        group(api, f"{name}-decode", 2, **above),
    ]


def made(api: str, kind: str, name: str, spec: Document, **metadata: Any) -> Document:
    metadata |= {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def group(
    api: str, name: str, floor: int, *, labels: Mapping[str, str] = IN_TEAM_A, **spec: Any
) -> Document:
    policy = {"schedulingPolicy": {"gang": {"minCount": floor}}}
    return made(api, "PodGroup", name, policy | spec, labels=dict(labels))


def members(
    name: str, count: int, *, annotations: Mapping[str, str] = IN_TEAM_A
) -> list[dict[str, Any]]:
    spec = pod_spec(gpus=1, schedulingGroup={"podGroupName": name})
    return [pod(f"{name}-{i}", spec, annotations=dict(annotations)) for i in range(count)]


def copies(key: str, count: int) -> list[dict[str, Any]]:
    reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": key}
    return [pod(f"{key}-{i}", pod_spec(gpus=1, workloadRef=reference)) for i in range(count)]


async def said(cluster: Cluster, api: str, name: str, *, kind: str = "PodGroup") -> tuple[str, str]:
    path = f"/apis/{api}/namespaces/default/{kind.lower()}s/{name}"
    found = condition(await cluster.api.get(path), f"{kind}InitiallyScheduled")
    return found.get("status", ""), found.get("reason", "")


async def says(
    cluster: Cluster, api: str, name: str, status: str, reason: str, *, kind: str = "PodGroup"
) -> None:
    async def reached() -> bool:
        assert await said(cluster, api, name, kind=kind) == (status, reason)
        return True

    await eventually(reached)
