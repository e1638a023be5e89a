"""Beside Kueue, which the tests play: what it lets in starts as a gang, with no queue of ours."""

import pytest

from kai_py.config import KueueConfig
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import pod, pod_spec
from tests.support.cluster.scheduling import EAGER, scheduling
from tests.support.cluster.view import View

BESIDE = EAGER.model_copy(update={"kueue": KueueConfig(coexistence=True)})
GATE = "kueue.x-k8s.io/admission"
GROUP = {"kueue.x-k8s.io/pod-group-name": "train", "kueue.x-k8s.io/managed": "true"}
COUNT = {"kueue.x-k8s.io/pod-group-total-count": "2"}


@pytest.mark.usefixtures("definitions")
async def test_a_group_starts_when_kueue_has_let_all_of_it_in(cluster: Cluster, view: View) -> None:
    spec = pod_spec(gpus=2, schedulingGates=[{"name": GATE}])
    async with cluster.run_nodes(gpu_nodes(2, plugin_gpus=3)), scheduling(cluster, BESIDE):
        for name in ("train-0", "train-1"):
            await cluster.submit(pod(name, spec, annotations=COUNT, labels=GROUP))
        await let_in(cluster, view, "train-0", "node-1")
        await cluster.submit(pod("alone", pod_spec(gpus=1), annotations={}))
        await view.wait_bound("alone", 1)
        assert await view.bound("train") == {}
        await let_in(cluster, view, "train-1", "node-0")
        assert await view.wait_bound("train", 2) == {"train-0": "node-1", "train-1": "node-0"}


async def let_in(cluster: Cluster, view: View, name: str, node: str) -> None:
    """Take the gate and name the node at once, as Kueue does."""
    change = {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": node}}
    await cluster.api.patch(f"{view.path('pods')}/{name}", {"spec": change})
