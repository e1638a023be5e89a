"""What KAI's users apply to a fresh cluster works where only ``--with-kai-api`` was installed."""

from typing import Any

import pytest

from kai_py.api.choices import Profile
from kai_py.deploy.kai_api import kai_defaults
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.kai_definitions import install_kai_api
from tests.support.cluster.scheduling import EAGER, scheduling
from tests.support.cluster.view import View

QUEUES = "/apis/scheduling.run.ai/v2/queues"
POD_GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
TOPOLOGIES = "/apis/kai.scheduler/v1alpha1/topologies"
SHARDS = "/apis/kai.scheduler/v1/schedulingshards"
STRICT = "?fieldValidation=Strict"


def kai_pod(name: str, queue: str = "", gpus: int = 0, **labels: str) -> Document:
    marks = {"kai.scheduler/queue": queue} if queue else {}
    requests = {"cpu": "100m", "memory": "250M"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": "ubuntu", "resources": {"limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": marks | labels},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }


def kai_queue(name: str, **more: Any) -> Document:
    share = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": dict.fromkeys(("cpu", "gpu", "memory"), share), **more},
    }


@pytest.mark.usefixtures("definitions")
async def test_the_quickstart_runs_unchanged(cluster: Cluster, view: View):
    await install_kai_api(cluster.api)
    await cluster.submit(*kai_defaults())
    async with (
        scheduling(cluster, EAGER.model_copy(update={"rules": Profile.KAI})),
        cluster.run_nodes(gpu_nodes(1, plugin_gpus=4)),
    ):
        await cluster.submit(
            kai_queue("default"),
            kai_queue("test", parentQueue="default"),
            kai_pod("cpu-only-pod", "test"),
            kai_pod("gpu-pod", "test", gpus=1),
            kai_pod("unnamed"),
            kai_pod("by-class", "default-queue", gpus=1, priorityClassName="train"),
        )
        for name in ("cpu-only-pod", "gpu-pod", "unnamed", "by-class"):
            await view.wait_bound(name, 1)
        # Over its quota of none nothing may start that cannot be evicted again.
        await cluster.submit(kai_pod("built", "default-queue", 1, priorityClassName="build"))
        await view.wait_pending("built", 1, reason="NonPreemptibleOverDeserved")


LEVELS = [{"nodeLabel": "example.com/zone"}, {"nodeLabel": "example.com/rack", "alias": "rack"}]


def topology(name: str, *levels: Document) -> Document:
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": list(levels)},
    }


@pytest.mark.usefixtures("definitions")
async def test_every_field_that_kai_documents_is_known(cluster: Cluster):
    await install_kai_api(cluster.api)
    api = cluster.api
    queue = kai_queue(
        "full", displayName="f", priority=1, preemptMinRuntime="1m", reclaimMinRuntime="1m"
    )
    await api.post(QUEUES + STRICT, queue)
    constraint = {
        "topology": "t",
        "requiredTopologyLevel": "rack",
        "preferredTopologyLevel": "kubernetes.io/hostname",
    }
    subgroups = [
        {"name": "all", "minSubGroup": 1, "topologyConstraint": constraint},
        {"name": "leader", "parent": "all", "minMember": 0},
    ]
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "full", "namespace": "default"},
        "spec": {
            "queue": "full",
            "priorityClassName": "train",
            "preemptibility": "non-preemptible",
            "minMember": 1,
            "minSubGroup": 1,
            "subGroups": subgroups,
            "topologyConstraint": constraint,
            "markUnschedulable": True,
            "schedulingBackoff": 1,
            "preemptionDelay": "10s",
            "stalenessGracePeriod": "-1s",
            "backoffLimit": 1,
            "completions": 1,
            "parallelism": 1,
        },
    }
    await api.post(POD_GROUPS + STRICT, group)
    await api.post(TOPOLOGIES + STRICT, topology("t", *LEVELS))
    shard = {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "spread"},
        "spec": {"partitionLabelValue": "a", "placementStrategy": {"gpu": "spread"}},
    }
    await api.post(SHARDS + STRICT, shard)
    kept = await api.get(f"{SHARDS}/spread")
    assert kept["spec"] == shard["spec"]


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((), "should have at least 1"),
        ((LEVELS[0], LEVELS[0]), "labels of levels must differ"),
        (({"nodeLabel": "kubernetes.io/hostname"}, LEVELS[0]), "can only be the finest level"),
        (({"nodeLabel": "not a label"},), "should match"),
    ],
)
async def test_wrong_levels_are_refused(
    cluster: Cluster, levels: tuple[Document, ...], message: str
):
    await install_kai_api(cluster.api)
    with pytest.raises(ApiError, match=message):
        await cluster.api.post(TOPOLOGIES, topology("wrong", *levels))
