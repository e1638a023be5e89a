"""Nodes without machines: registered, kept Ready, and running the pods bound to them.

    async with Api(kubeconfig) as api, FakeKubelet(api, gpu_nodes(8, published_gpus=8)):
        ...

As a process of its own, for benchmarks: `python -m tests.cluster.fake_kubelet --help`.
"""

from tests.cluster.fake_kubelet.kubelet import FakeKubelet
from tests.cluster.fake_kubelet.nodes import FakeNode, gpu_nodes

__all__ = ["FakeKubelet", "FakeNode", "gpu_nodes"]
