"""Kubernetes' own Workload and PodGroup, on a control plane that has them switched on."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane, control_plane
from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.cluster.installation.permission_needs import Need
from tests.cluster.installation.test_dry_run import plans
from tests.cluster.installation.test_permissions import NATIVE, is_refused_without
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, claim_template, job, pod, pod_spec, queue
from tests.support.cluster.process import kai_py
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.sweep import Sweep
from tests.support.cluster.view import View, condition

GATES = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "DRAWorkloadResourceClaims",
    "WorkloadWithJob",
)
API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(
        tmp_path_factory.mktemp("native"),
        feature_gates=dict.fromkeys(GATES, True),
        runtime_config={API: True},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def sweep(plane: ControlPlane) -> Sweep:
    """What the control plane is brought back to after each test."""
    return Sweep(plane.etcd_url)


@pytest.fixture
async def unscheduled(plane: ControlPlane, sweep: Sweep) -> AsyncIterator[Cluster]:
    """The control plane, emptied afterwards."""
    async with Api(plane.kubeconfig) as api:
        account = await scheduler_account(api)
        await sweep.remember(api)
        kubelet = partial(FakeKubelet, api)
        cluster = Cluster("native", plane.kubeconfig, account, plane.url, api, kubelet)
        await install_definitions(api)
        yield cluster
        await sweep.clean(api)


@pytest.fixture
async def native(unscheduled: Cluster) -> AsyncIterator[Cluster]:
    """The control plane with a scheduler at work."""
    async with scheduling(unscheduled):
        yield unscheduled


async def test_a_group_starts_whole_or_waits_whole(native: Cluster):
    view = View(native.api)
    async with native.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await native.submit(queue(), workload("train", 3), group("train", 3), *members("train", 2))
        await view.wait_incomplete("train", 2, note="minMember is 3; existing pods: 2.")
        assert await said(native.api, "train") == ("", "")
        await native.submit(members("train", 3)[2])
        await view.wait_bound("train", 3)
        await says(native.api, "train", "True", "Scheduled")
        await native.submit(workload("late", 2), group("late", 2), *members("late", 2))
        await view.wait_pending("late", 2, reason="Unschedulable")
        await says(native.api, "late", "False", "Unschedulable")


async def test_a_group_stays_within_the_domain_that_it_asks_for(native: Cluster):
    view = View(native.api)
    constraint = {"topology": [{"key": "kubernetes.io/hostname"}]}
    async with native.run_nodes(gpu_nodes(2, plugin_gpus=4)):
        await native.submit(
            queue(), workload("a", 3, constraint), group("a", 3, constraint), *members("a", 3)
        )
        assert len(set((await view.wait_bound("a", 3)).values())) == 1
        await native.submit(
            workload("b", 5, constraint), group("b", 5, constraint), *members("b", 5)
        )
        await view.wait_pending("b", 5, reason="Unschedulable")


async def test_a_job_of_the_controller_with_a_group_is_a_gang(native: Cluster):
    view = View(native.api)
    async with native.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        indexed = job("j", 3, pod_spec(gpus=1), pod_annotations=IN_TEAM_A)
        indexed["spec"]["completionMode"] = "Indexed"
        await native.submit(queue(), indexed)
        bound = await view.wait_bound("j", 3)
        found = await native.api.get(f"/api/v1/namespaces/default/pods/{min(bound)}")
        await says(
            native.api, found["spec"]["schedulingGroup"]["podGroupName"], "True", "Scheduled"
        )


async def test_pods_of_several_schedulers_are_refused(native: Cluster):
    view = View(native.api)
    strange = members("mixed", 2)[1]
    strange["spec"]["schedulerName"] = "default-scheduler"
    async with native.run_nodes(gpu_nodes(1, plugin_gpus=4)):
        await native.submit(
            queue(), workload("mixed", 2), group("mixed", 2), members("mixed", 1)[0], strange
        )
        message = await view.wait_pending("mixed-0", 1, reason="Invalid")
        assert '"default-scheduler", "kai-scheduler"' in message
        await says(native.api, "mixed", "False", "SchedulerError")


@pytest.mark.usefixtures("hasty")
async def test_a_claim_of_a_group_is_one_allocation_for_all_of_its_pods(native: Cluster):
    view = View(native.api)
    shared = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    async with native.run_nodes(gpu_nodes(2, published_gpus=1)):
        await native.submit(queue(), claim_template())
        for name in ("a", "b", "c"):
            await native.submit(workload(name, 3), group(name, 3, resourceClaims=[shared]))
        await native.submit(*members("a", 3, gpus=0, resourceClaims=[shared]))
        await native.submit(*members("b", 3, gpus=0, resourceClaims=[shared]))
        at = [set((await view.wait_bound(name, 3)).values()) for name in ("a", "b")]
        assert sorted(map(len, at)) == [1, 1]
        assert at[0] != at[1]
        await eventually(lambda: all_run(view, 6), what="pods that their kubelets accept")
        held = {
            user["name"]: (user["apiGroup"], user["resource"], len(each["status"]["reservedFor"]))
            for each in await view.claims()
            for user in each.get("status", {}).get("reservedFor", ())
        }
        assert held == dict.fromkeys(("a", "b"), ("scheduling.k8s.io", "podgroups", 1))
        await native.submit(*members("c", 3, gpus=0, resourceClaims=[shared]))
        await view.wait_pending("c", 3, reason="Unschedulable")
        for each in range(3):
            await native.api.delete(f"{view.path('pods')}/a-{each}")
        assert set((await view.wait_bound("c", 3, within=30.0)).values()) == at[0]


@pytest.mark.usefixtures("hasty")
async def test_the_next_scheduler_gives_back_the_claim_of_a_group_that_lost_its_pods_before(
    unscheduled: Cluster,
):
    view = View(unscheduled.api)
    shared = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    async with unscheduled.run_nodes(gpu_nodes(1, published_gpus=1)):
        await unscheduled.submit(queue(), claim_template())
        for name in ("a", "b"):
            await unscheduled.submit(workload(name, 2), group(name, 2, resourceClaims=[shared]))
        await unscheduled.submit(*members("a", 2, gpus=0, resourceClaims=[shared]))
        async with scheduling(unscheduled):
            await view.wait_bound("a", 2)
        for each in range(2):
            await unscheduled.api.delete(f"{view.path('pods')}/a-{each}")

        async def gone() -> bool:
            return await view.pods() == []

        await eventually(gone, what="no pods of the group")
        await unscheduled.submit(*members("b", 2, gpus=0, resourceClaims=[shared]))
        async with scheduling(unscheduled):
            await view.wait_bound("b", 2, within=30.0)


async def test_a_dry_run_writes_neither_claims_nor_conditions_of_groups(
    unscheduled: Cluster, tmp_path: Path
):
    shared = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    async with unscheduled.run_nodes(gpu_nodes(1, published_gpus=1)):
        await unscheduled.submit(queue(), claim_template(), workload("a", 2), workload("b", 2))
        for name in ("a", "b"):
            await unscheduled.submit(group(name, 2, resourceClaims=[shared]))
            await unscheduled.submit(*members(name, 2, gpus=0, resourceClaims=[shared]))
        options = ("--dry-run", "--json")
        async with kai_py(unscheduled, tmp_path, *options, configuration={}) as scheduler:

            async def planned() -> bool:
                last = plans(scheduler)[-1]
                return (len(last["placements"]), len(last["unplaced"])) == (1, 1)

            await eventually(planned, within=30.0, what="a group that starts and one that waits")
            assert scheduler.proxy.writes == []
        assert await said(unscheduled.api, "a") == ("", "")
        assert await View(unscheduled.api).held() == []


@pytest.mark.slow
async def test_without_the_permission_the_scheduler_cannot_tell_of_groups(
    unscheduled: Cluster, tmp_path: Path
):
    async def starting(cluster: Cluster) -> None:
        await cluster.submit(queue(), workload("a", 1), group("a", 1), *members("a", 1))

    need = Need(starting, gpu_nodes(1, plugin_gpus=1))
    await is_refused_without(unscheduled, NATIVE, need, tmp_path)


async def all_run(view: View, count: int) -> bool:
    phases = [each["status"].get("phase") for each in await view.pods()]
    assert phases == ["Running"] * count
    return True


def workload(name: str, floor: int, constraints: Document | None = None) -> Document:
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": floor}}}
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podGroupTemplates": [template | _constraints(constraints)]},
    }


def group(name: str, floor: int, constraints: Document | None = None, **spec: Any) -> Document:
    reference = {"workloadName": name, "podGroupTemplateName": "workers"}
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "podGroupTemplateRef": {"workload": reference},
            "schedulingPolicy": {"gang": {"minCount": floor}},
        }
        | spec
        | _constraints(constraints),
    }


def _constraints(constraints: Document | None) -> Document:
    return {"schedulingConstraints": constraints} if constraints else {}


def members(name: str, count: int, *, gpus: int = 1, **spec: Any) -> list[Document]:
    spec |= {"schedulingGroup": {"podGroupName": name}}
    return [pod(f"{name}-{i}", pod_spec(gpus=gpus, **spec)) for i in range(count)]


async def said(api: Api, name: str) -> tuple[str, str]:
    found = condition(await api.get(f"{GROUPS}/{name}"), "PodGroupScheduled")
    return found.get("status", ""), found.get("reason", "")


async def says(api: Api, name: str, status: str, reason: str) -> None:
    async def reached() -> bool:
        assert await said(api, name) == (status, reason)
        return True

    await eventually(reached)
