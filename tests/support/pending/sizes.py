"""Gangs that are too large: for any node, for all nodes, for a domain, a queue, or for now."""

from collections.abc import Sequence

from kai_py.plan.plan import Stage
from tests.cluster.fake_kubelet.nodes import FakeNode, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import job, pod_spec
from tests.support.pending.names import CAPACITY, claiming
from tests.support.situations import (
    POOL,
    RACK,
    Situation,
    gpus,
    in_queue,
    labelled,
    marked,
    nodes,
    team,
)


def requesting(name: str, size: int, *, limits: bool = False, **requests: str) -> Document:
    """A Job whose pods request these amounts."""
    written = {key.replace("_", "-"): value for key, value in requests.items()}
    resources = {"requests": written} | ({"limits": written} if limits else {})
    container = {"name": "main", "image": "none", "resources": resources}
    return job(name, size, pod_spec(containers=[container]), annotations=in_queue("team"))


def small_nodes(count: int, **allocatable: str) -> Sequence[FakeNode]:
    return [
        FakeNode(name=f"node-{number}", allocatable=dict(allocatable)) for number in range(count)
    ]


def too_large(name: str, says: str, suggests: str, **fields: object) -> Situation:
    """On two nodes of 8 GPUs and 1Ti of memory."""
    given = {"stage": Stage.RESOURCES, "nodes": nodes(2), "pods": 1}
    return Situation(name=name, says=says, suggests=suggests, **{**given, **fields})


SIZES = (
    too_large(
        "gpus-of-a-pod",
        "1 Insufficient nvidia.com/gpu (16 requested, most free 8 on node-0)",
        "request nvidia.com/gpu 8 instead of 16, the most that a node has",
        nodes=nodes(),
        waits=[gpus("waiting", 1, count=16)],
    ),
    too_large(
        "memory-of-a-pod",
        "Infeasible: a pod requests memory 2Ti; each of 2 nodes has 1Ti",
        "request memory 1Ti instead of 2Ti, the most that a node has",
        waits=[requesting("waiting", 1, memory="2Ti")],
    ),
    too_large(
        "cpu-of-a-pod",
        "Infeasible: a pod requests cpu 200; each of 2 nodes has 128",
        "request cpu 128 instead of 200, the most that a node has",
        waits=[requesting("waiting", 2, cpu="200")],
        pods=2,
    ),
    too_large(
        "disk-of-a-pod",
        "Infeasible: a pod requests ephemeral-storage 3Ti; each of 2 nodes has 1Ti",
        "request ephemeral-storage 1Ti instead of 3Ti, the most that a node has",
        waits=[requesting("waiting", 1, ephemeral_storage="3Ti")],
    ),
    too_large(
        "gang-of-the-cluster",
        "Infeasible: with nothing else on them, the nodes hold 16 of the 20 pods",
        "let it start with 16 of its 20 pods (min-available)",
        waits=[gpus("waiting", 20)],
        pods=16,
    ),
    too_large(
        "gang-of-the-labelled-nodes",
        "Infeasible: with nothing else on them, the nodes hold 4 of the 6 pods",
        f"remove the requirement of node label {POOL}=x",
        nodes=labelled(POOL, "x", "y"),
        waits=[gpus("waiting", 6, nodeSelector={POOL: "x"})],
        pods=6,
    ),
    too_large(
        "gang-of-a-domain",
        f"Infeasible: 6 pods must share one {RACK}; with nothing else on it, the largest, r1, "
        "holds 4",
        f"only prefer one {RACK}, not require it",
        stage=Stage.TOPOLOGY,
        nodes=labelled(RACK, "r1", "r2"),
        waits=[
            marked(
                gpus("waiting", 6),
                annotations={"kai.scheduler/topology-required-placement": RACK},
            )
        ],
        pods=6,
    ),
    too_large(
        "gpus-of-a-queue",
        "Limit is 4 GPUs",
        "set maxGPUs of Queue team to 8",
        stage=Stage.QUEUE_MAX,
        objects=[team(maxGPUs=4)],
        waits=[gpus("waiting", 1, count=8)],
    ),
    too_large(
        "devices-of-a-pod",
        "requested 8 of class gpu.nvidia.com, at most 4 on a node",
        "claim 4 devices instead of 8 in ResourceClaimTemplate one-gpu",
        stage=Stage.DEVICES,
        nodes=gpu_nodes(2, published_gpus=4),
        waits=claiming(count=8),
    ),
    too_large(
        "memory-of-a-device",
        "no device matches selector: of 8 devices 8 fail",
        'remove device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("200Gi")) >= 0 from '
        "ResourceClaimTemplate one-gpu",
        stage=Stage.DEVICES,
        nodes=gpu_nodes(2, published_gpus=4),
        waits=claiming(f'{CAPACITY}.memory.compareTo(quantity("200Gi")) >= 0'),
    ),
    too_large(
        "full-now",
        "1 Insufficient nvidia.com/gpu (8 requested, most free 4 on node-0)",
        "add 1 node like node-0",
        nodes=nodes(),
        objects=[team(deserved=0)],
        before=[(gpus("theirs", 4), 4)],
        waits=[gpus("waiting", 1, count=8)],
    ),
    too_large(
        "cordoned",
        "1 unschedulable",
        "uncordon node node-0",
        stage=Stage.NODE_FILTERS,
        nodes=[
            FakeNode(
                name="node-0",
                allocatable={"nvidia.com/gpu": "8"},
                labels={POOL: "x"},
                unschedulable=True,
                taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            ),
            *labelled(POOL, "y"),
        ],
        waits=[gpus("waiting", 1, nodeSelector={POOL: "x"})],
    ),
    too_large(
        "pods-of-a-node",
        "Too many pods",
        "let it start with 3 of its 5 pods (min-available)",
        nodes=small_nodes(1, pods="3"),
        waits=[requesting("waiting", 5, cpu="1")],
        pods=3,
    ),
)
