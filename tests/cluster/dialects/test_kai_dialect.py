"""In a cluster with KAI's definitions its users change nothing but the scheduler."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

import kai_py.watch.mirror as mirror_module
from kai_py.api.times import format_time
from kai_py.commit.settings import CommitSettings
from kai_py.dialects.kai.keys import STALE_SINCE
from kai_py.watch.kinds import KAI_POD_GROUPS
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import RUN_SECONDS
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.kai_definitions import install_kai_api
from tests.support.cluster.manifests import TEMPLATE, claim_template, job, pod, pod_spec, queue
from tests.support.cluster.scheduling import DEFINITIONS, Running, scheduling
from tests.support.cluster.view import View, condition

QUEUES = "/apis/scheduling.run.ai/v2/queues"
POD_GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


@pytest.fixture(autouse=True)
async def kai_scheduler(cluster: Cluster, definitions: None) -> AsyncIterator[Running]:
    await install_kai_api(cluster.api)
    async with scheduling(cluster) as running:
        yield running


def kai_queue(name: str, parent: str = "", **gpu: Any) -> Document:
    resources = {"cpu": UNLIMITED, "memory": UNLIMITED, "gpu": UNLIMITED | gpu}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"parentQueue": parent, "resources": resources},
    }


def pod_group(name: str, **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queue": "kai-team", "priorityClassName": "train"} | spec,
    }


def members(group: str, count: int, leaf: str = "") -> list[Document]:
    labels = {"kai.scheduler/subgroup-name": leaf} if leaf else {}
    marks = {"pod-group-name": group}
    names = [f"{group}-{leaf or 'pod'}-{number}" for number in range(count)]
    return [pod(name, annotations=marks, labels=labels) for name in names]


async def status_of(cluster: Cluster, path: str) -> Document:
    status: Document = (await cluster.api.get(path)).get("status", {})
    return status


async def test_a_pod_group_starts_whole_and_is_accounted_for(cluster: Cluster, view: View):
    leaves = [{"name": "decode", "minMember": 2}, {"name": "prefill", "minMember": 1}]
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-org"),
            kai_queue("kai-team", "kai-org", quota=4),
            claim_template(),
            pod_group("serve", subGroups=leaves),
            *members("serve", 2, "decode"),
        )
        not_ready = (
            "Job is not ready for scheduling. Waiting for 1 pods for SubGroup prefill, "
            "currently 0 exist, 0 are gated"
        )
        await view.wait_incomplete("serve", 2, note=not_ready)
        await cluster.submit(*members("serve", 1, "prefill"))
        await view.wait_bound("serve", 3)

        async def told() -> bool:
            group = await status_of(cluster, f"{POD_GROUPS}/serve")
            team = await status_of(cluster, f"{QUEUES}/kai-team")
            org = await status_of(cluster, f"{QUEUES}/kai-org")
            held = {"nvidia.com/gpu": "3"}
            assert group.get("resourcesStatus", {}).get("allocated") == held
            assert team.get("allocated") == team.get("requested") == held
            assert org.get("allocated") == held
            assert org.get("childQueues") == ["kai-team"]
            assert condition({"status": team}, "Ready").get("status") == "True"
            return True

        await eventually(told, within=15.0)


async def test_a_limit_is_kept_told_on_the_group_and_lifted(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-team", quota=1, limit=2),
            claim_template(),
            pod_group("big", minMember=3),
            *members("big", 3),
        )
        await view.wait_pending("big", 3, reason="QueueMax")

        async def refused() -> bool:
            said = (await status_of(cluster, f"{POD_GROUPS}/big")).get("schedulingConditions")
            assert said
            [reason] = said[0]["reasons"]
            assert (said[0]["type"], reason["reason"]) == ("UnschedulableOnNodePool", "OverLimit")
            assert "Limit is 2 GPUs" in reason["message"]
            return True

        await eventually(refused, within=15.0)
        gpu = {"spec": {"resources": {"gpu": {"limit": 3}}}}
        await cluster.api.patch(f"{QUEUES}/kai-team", gpu)
        await view.wait_bound("big", 3)

        async def forgotten() -> bool:
            status = await status_of(cluster, f"{POD_GROUPS}/big")
            return status["schedulingConditions"] == []

        await eventually(forgotten, within=15.0)


async def test_what_nodes_lack_is_told_of_a_group_as_seldom_as_of_its_pods(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=4)):
        [waits] = members("waits", 1)
        waits["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4k"}
        await cluster.submit(kai_queue("kai-team"), claim_template(), pod_group("waits"), waits)
        await view.wait_pending("waits", 1, reason="Unschedulable")
        path, began = f"{POD_GROUPS}/waits", time.monotonic()
        for is_cordoned in (True, False, True, False):
            cordon = {"spec": {"unschedulable": is_cordoned}}
            await cluster.api.patch("/api/v1/nodes/node-0", cordon)
            await asyncio.sleep(1.0)
        [told] = (await status_of(cluster, path))["schedulingConditions"]
        interval = CommitSettings().message_interval
        assert int(told["transitionID"]) <= 1 + (time.monotonic() - began) / interval, told


async def test_a_group_without_pods_has_nothing_allocated_and_waits_for_nothing(
    cluster: Cluster, view: View, kai_scheduler: Running
):
    groups = ("done", "deleted", "waits", "gone-meanwhile")
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(kai_queue("kai-team"), claim_template(), *map(pod_group, groups))
        # Pods are in the pool that their own label names.
        pool = {"metadata": {"labels": {"kai.scheduler/node-pool": "other"}}}
        await cluster.api.patch(f"{POD_GROUPS}/done", pool)
        short = members("done", 1)[0]
        short["metadata"]["annotations"][RUN_SECONDS] = "3"
        others = [pod for name in groups[1:] for pod in members(name, 1)]
        others[1]["spec"]["nodeSelector"] = {"kind": "none"}
        await cluster.submit(short, *others)
        await eventually(lambda: has_resources(cluster, *groups[1:]), within=15.0)
        await cluster.api.delete("/api/v1/namespaces/default/pods/deleted-pod-0")
        await cluster.api.delete("/api/v1/namespaces/default/pods/waits-pod-0")
        await eventually(lambda: has_no_status(cluster, *groups[:3]), within=15.0)
        await kai_scheduler.stop()
        await cluster.api.delete("/api/v1/namespaces/default/pods/gone-meanwhile-pod-0")
        await eventually(lambda: gone(cluster, "gone-meanwhile-pod-0"))
        async with scheduling(cluster, identity="second"):
            await eventually(lambda: has_no_status(cluster, *groups), within=15.0)


async def test_a_group_of_another_scheduler_keeps_the_status_that_it_writes(cluster: Cluster):
    written = {"resourcesStatus": {"requested": {"cpu": "1"}}}
    theirs, ours = members("theirs", 1)[0], members("ours", 1)[0]
    theirs["spec"]["schedulerName"] = "another"
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=1)):
        await cluster.submit(kai_queue("kai-team"), claim_template())
        await cluster.submit(pod_group("theirs"), pod_group("ours"), theirs, ours)
        await eventually(lambda: has_resources(cluster, "ours"), within=15.0)
        await cluster.api.patch(f"{POD_GROUPS}/theirs/status", {"status": written})
        await cluster.api.delete("/api/v1/namespaces/default/pods/ours-pod-0")
        await eventually(lambda: has_no_status(cluster, "ours"), within=15.0)
    assert await status_of(cluster, f"{POD_GROUPS}/theirs") == written


async def has_resources(cluster: Cluster, *groups: str) -> bool:
    statuses = [await status_of(cluster, f"{POD_GROUPS}/{name}") for name in groups]
    return all(each.get("resourcesStatus", {}).get("requested") for each in statuses)


async def has_no_status(cluster: Cluster, *groups: str) -> bool:
    statuses = [await status_of(cluster, f"{POD_GROUPS}/{name}") for name in groups]
    return not any(
        each.get("schedulingConditions") or any(each.get("resourcesStatus", {}).values())
        for each in statuses
    )


async def test_a_limit_left_out_lets_nothing_run(cluster: Cluster, view: View):
    closed = kai_queue("kai-team")
    closed["spec"]["resources"]["gpu"] = {"quota": 4}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(closed, claim_template(), pod_group("one"), *members("one", 1))
        assert "Limit is 0 GPUs" in await view.wait_pending("one", 1, reason="QueueMax")


async def test_native_and_kai_queues_work_side_by_side_and_one_name_in_both_is_told(
    cluster: Cluster, view: View
):
    kais = job("kais", 3, annotations={})
    kais["metadata"]["labels"] = {"kai.scheduler/queue": "kai-team"}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-team"),
            kai_queue("twice"),
            queue("twice"),
            queue("team-a"),
            claim_template(),
            job("ours", 2, pod_spec(template=TEMPLATE)),
        )
        await view.wait_bound("ours", 2)
        await cluster.submit(kais)
        await view.wait_bound("kais", 2)

        async def told() -> bool:
            native = "/apis/scheduling.kai.io/v1alpha1/queues/twice"
            for path in (native, f"{QUEUES}/twice"):
                ready = condition({"status": await status_of(cluster, path)}, "Ready")
                assert (ready.get("status"), ready.get("reason")) == ("False", "Duplicate")
            return True

        await eventually(told, within=15.0)


async def test_a_group_that_appears_later_starts_its_pods(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(kai_queue("kai-team"), claim_template(), *members("late", 2))
        message = await view.wait_pending("late", 2, reason="Invalid")
        assert message == "PodGroup default/late does not exist (yet)"
        await cluster.submit(pod_group("late", minMember=2))
        await view.wait_bound("late", 2)


async def test_a_pod_of_an_unknown_subgroup_is_kept_back_alone_and_told(
    cluster: Cluster, view: View
):
    leaves = [{"name": "decode", "minMember": 1}]
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-team"), claim_template(), pod_group("serve", subGroups=leaves)
        )
        await cluster.submit(*members("serve", 1, "decode"), *members("serve", 1, "encode"))
        await view.wait_bound("serve-decode", 1)

        async def told() -> bool:
            message = await view.wait_pending("serve-encode", 1, reason="Invalid")
            name = "serve-encode-0"
            events = await view.events(kind="Pod", name=name, reason="FailedScheduling")
            return '"encode"' in message and message in events

        await eventually(told, within=30.0)


async def test_a_gang_that_stays_short_is_ended_after_its_grace_also_after_a_restart(
    cluster: Cluster, view: View, kai_scheduler: Running
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-team"),
            claim_template(),
            pod_group("short", minMember=3, stalenessGracePeriod="1h"),
            *members("short", 3),
        )
        await view.wait_bound("short", 3)
        await cluster.api.delete("/api/v1/namespaces/default/pods/short-pod-2")
        path = f"{POD_GROUPS}/short"
        since = await eventually(lambda: stale_mark(cluster, path), within=15.0)
        await kai_scheduler.stop()
        async with scheduling(cluster, identity="second") as second:
            await eventually(lambda: has_planned(second), what="a plan of the second scheduler")
            assert len(await view.bound("short")) == 2, "it ended early"
            assert await stale_mark(cluster, path) == since, "the grace period was restarted"
        before = format_time(datetime.fromisoformat(since).timestamp() - 3600.0)
        await cluster.api.patch(path, {"metadata": {"annotations": {STALE_SINCE: before}}})
        async with scheduling(cluster, identity="third"):
            await eventually(lambda: gone(cluster, "short-pod-0", "short-pod-1"), within=30.0)


async def has_planned(running: Running) -> bool:
    return running.scheduler.last_view is not None


async def stale_mark(cluster: Cluster, path: str) -> str:
    found = await cluster.api.get(path)
    marks = found["metadata"].get("annotations", {})
    return str(marks.get(STALE_SINCE, ""))


async def gone(cluster: Cluster, *names: str) -> bool:
    pods = await cluster.api.items("/api/v1/namespaces/default/pods")
    return not {pod["metadata"]["name"] for pod in pods} & {*names}


@pytest.fixture
def frequent_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that come and go are noticed soon."""
    monkeypatch.setattr(mirror_module, "DISCOVERY_SECONDS", 1.0)


@REAL_FIRST
@pytest.mark.usefixtures("frequent_discovery")  # before the scheduler: it waits from its start on
async def test_the_definition_of_groups_may_go_and_come_back(
    cluster: Cluster, view: View, kai_scheduler: Running
):
    mirror = kai_scheduler.scheduler.mirror
    definition = f"{DEFINITIONS}/podgroups.scheduling.run.ai"

    async def served(*, wanted: bool) -> bool:
        return (mirror.served(KAI_POD_GROUPS) is not None) == wanted

    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            kai_queue("kai-team"), claim_template(), pod_group("first", minMember=1)
        )
        await cluster.submit(*members("first", 1))
        await view.wait_bound("first", 1)
        await cluster.api.delete(definition)
        await eventually(lambda: served(wanted=False), within=45.0)
        await cluster.submit(*members("late", 2))
        message = await view.wait_pending("late", 2, reason="Invalid")
        assert message == "PodGroup default/late does not exist (yet)"
        await install_kai_api(cluster.api)
        await eventually(lambda: served(wanted=True), within=45.0)
        await cluster.submit(pod_group("late", minMember=2))
        await view.wait_bound("late", 2)
