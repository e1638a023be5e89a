"""Workloads as users apply them, from the samples of frameworks, and what a test does with them."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.fake_kubelet import FakeNode
from tests.cluster.frameworks.controllers import (
    JOB_SET,
    KSERVE,
    KUBERAY,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
    TRAINER,
    TRAINING_OPERATOR,
    Controller,
)
from tests.cluster.frameworks.modules import documents
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import IN_TEAM_A, SCHEDULER

RACK = "example.com/rack"


def in_queue(document: Document) -> Document:
    """A sample in `default`, with its queue, and this scheduler in every pod template."""
    changed = copy.deepcopy(document)
    meta = changed.setdefault("metadata", {})
    meta["annotations"] = meta.get("annotations", {}) | IN_TEAM_A
    meta["namespace"] = "default"
    for spec in _pod_specs(changed.get("spec", {})):
        spec["schedulerName"] = SCHEDULER
    return changed


def _pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        else:
            for each in value.values():
                yield from _pod_specs(each)
    for each in value if isinstance(value, list) else ():
        yield from _pod_specs(each)


def nodes(
    count: int,
    cpu: str,
    *,
    prefix: str,
    rack: str = "",
    labels: Mapping[str, str] | None = None,
) -> list[FakeNode]:
    """Nodes of so much CPU and more GPUs than needed, in a rack where one is named."""
    at = {RACK: rack} if rack else {}
    return [
        FakeNode(
            name=f"{prefix}-{i}",
            labels=at | dict(labels or {}),
            allocatable={"cpu": cpu, "nvidia.com/gpu": "64"},
        )
        for i in range(count)
    ]


def rival(cpu: str, name: str = "rival") -> list[Document]:
    """A pod of so much CPU, more important than all others, and its PriorityClass."""
    requests = {"requests": {"cpu": cpu}}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "above"},
            "value": 1000,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": dict(IN_TEAM_A)},
            "spec": {
                "schedulerName": SCHEDULER,
                "priorityClassName": "above",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": requests}],
            },
        },
    ]


@dataclass(frozen=True)
class Workload:
    """A workload, the collection of its kind, and its pods.

    ``gang`` and ``pod``: CPU of a gang and of its largest pod, in thousandths of a core. ``more``,
    ``none`` and ``again`` are JSON patches: with the first it has ``with_more`` pods, with the
    second none, with the last ``in_the_end``. ``below``: a controller that makes what this one
    asks for, and ``needs`` the objects that the workload refers to.
    """

    controller: Controller
    document: Callable[[], Document]
    collection: str
    pods: int
    gang: int
    pod: int
    more: Document
    with_more: int
    none: Document
    again: Document
    in_the_end: int
    below: Controller | None = None
    needs: Callable[[], list[Document]] = list
    is_protected: bool = False
    """Whether its controller ends it once it loses a pod, so that none is evicted."""
    pods_named: str = ""
    """How the names of its pods begin, if not with its own."""

    def path(self, name: str) -> str:
        """The path of the object."""
        api, _, plural = self.collection.rpartition("/")
        return f"{api}/namespaces/default/{plural}/{name}"


def sample(which: Controller, path: str) -> Document:
    """The only document of a sample, unchanged but for its queue and scheduler."""
    (found,) = documents(which.module, path)
    return in_queue(found)


def replaced(path: str, value: Any) -> Document:
    return {"op": "replace", "path": path, "value": value}


def added(path: str, value: Any) -> Document:
    return {"op": "add", "path": path, "value": value}


LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "requests", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]},
}
"""What containers of samples request that do not say it."""


def job_set() -> Document:
    """Two Jobs of two pods; the module's own sample has an empty spec."""
    requests = {"requests": {"cpu": "100m"}}
    pods = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": requests}],
    }
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 20, "template": {"spec": pods}}
    return in_queue(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train"},
            "spec": {
                "suspend": False,
                "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}],
            },
        }
    )


def train_job(runtime: str, nodes: int) -> Document:
    """A TrainJob; the module has runtimes, but no manifest of a job."""
    return in_queue(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "train"},
            "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes}},
        }
    )


def runtimes(path: str) -> list[Document]:
    """The runtimes in a file of Trainer, with this scheduler in their pod templates."""
    found = [in_queue(each) for each in documents(TRAINER.module, path)]
    for each in found:
        del each["metadata"]["namespace"], each["metadata"]["annotations"]
    return found


def kubeflow(
    path: str,
    plural: str,
    specs: str,
    pods: int,
    *,
    gang: int = 0,
    pod: int = 100,
    workers: int,
    is_protected: bool = False,
) -> Workload:
    """A sample of the training operator; ``specs`` is the field of its replicas."""
    return Workload(
        TRAINING_OPERATOR,
        lambda: sample(TRAINING_OPERATOR, f"examples/{path}"),
        f"/apis/kubeflow.org/v1/{plural}",
        pods=pods,
        gang=gang or pods * pod,
        pod=pod,
        more=replaced(f"/spec/{specs}/Worker/replicas", workers + 1),
        with_more=pods + 1,
        none=added("/spec/runPolicy", {"suspend": True}),
        again=added("/spec/runPolicy", {"suspend": False}),
        in_the_end=pods + 1,
        is_protected=is_protected,
    )


WORKLOADS = (
    Workload(
        LEADER_WORKER_SET,
        lambda: sample(LEADER_WORKER_SET, "config/samples/leaderworkerset_v1_leaderworkerset.yaml"),
        "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
        pods=12,
        gang=200,
        pod=50,
        more=replaced("/spec/replicas", 4),
        with_more=16,
        none=replaced("/spec/replicas", 0),
        again=replaced("/spec/replicas", 3),
        in_the_end=12,
    ),
    Workload(
        JOB_SET,
        job_set,
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        pods=4,
        gang=400,
        pod=100,
        more=replaced("/spec/suspend", False),
        with_more=4,
        none=replaced("/spec/suspend", True),
        again=replaced("/spec/suspend", False),
        in_the_end=4,
    ),
    Workload(
        KUBERAY,
        lambda: sample(KUBERAY, "config/samples/ray-cluster.sample.yaml"),
        "/apis/ray.io/v1/rayclusters",
        pods=2,
        gang=2000,
        pod=1000,
        more=replaced("/spec/workerGroupSpecs/0/replicas", 2),
        with_more=3,
        none={"op": "add", "path": "/spec/suspend", "value": True},
        again={"op": "add", "path": "/spec/suspend", "value": False},
        in_the_end=3,
    ),
    Workload(
        TRAINER,
        lambda: train_job("torch-distributed", 2),
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
        pods=2,
        gang=200,
        pod=100,
        more=added("/spec/suspend", False),
        with_more=2,
        none=added("/spec/suspend", True),
        again=added("/spec/suspend", False),
        in_the_end=2,
        below=JOB_SET,
        needs=lambda: runtimes("manifests/base/runtimes/torch_distributed.yaml"),
    ),
    kubeflow("pytorch/simple.yaml", "pytorchjobs", "pytorchReplicaSpecs", 2, workers=1),
)
LLM = "docs/samples/llmisvc/dp-ep/*/llm-inference-service-dp-ep-deepseek-r1-gpu-naive.yaml"


def kserve_configuration() -> list[Document]:
    """KServe's configuration, without which its controllers do not start."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kserve"}},
        *documents(KSERVE.module, "config/configmap/inferenceservice.yaml"),
    ]


def inference_service(replicas: int) -> Document:
    """A sample in Deployments, with replicas that nothing scales."""
    (_, found, *_) = documents(KSERVE.module, "docs/samples/rollout-strategy/*example.yaml")
    changed = in_queue(found)
    changed["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] = "none"
    changed["spec"]["predictor"] |= {"schedulerName": SCHEDULER, "minReplicas": replicas}
    return changed


def kserve_settings() -> list[Document]:
    """KServe's configuration and presets, and the account that the sample names."""
    presets = [in_queue(each) for each in documents(KSERVE.module, "config/llmisvcconfig/config*")]
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    return [
        *kserve_configuration(),
        account | {"metadata": {"name": "hfsa", "namespace": "default"}},
        *presets,
    ]


NIGHTLY = (
    Workload(
        KSERVE,
        lambda: sample(KSERVE, LLM),
        "/apis/serving.kserve.io/v1alpha1/llminferenceservices",
        pods=2,
        gang=128000,
        pod=64000,
        more=replaced("/spec/replicas", 2),
        with_more=4,
        none=replaced("/spec/replicas", 0),
        again=replaced("/spec/replicas", 1),
        in_the_end=2,
        below=LEADER_WORKER_SET,
        needs=kserve_settings,
        pods_named="deepseek-coder-v2-kserve-mn",
    ),
    Workload(
        MPI_OPERATOR,
        lambda: sample(MPI_OPERATOR, "examples/v2beta1/pi/pi.yaml"),
        "/apis/kubeflow.org/v2beta1/mpijobs",
        pods=3,
        gang=3000,
        pod=1000,
        more=replaced("/spec/mpiReplicaSpecs/Worker/replicas", 3),
        with_more=4,
        none=added("/spec/runPolicy/suspend", True),
        again=added("/spec/runPolicy/suspend", False),
        in_the_end=4,
    ),
    kubeflow(
        "tensorflow/simple.yaml",
        "tfjobs",
        "tfReplicaSpecs",
        2,
        workers=2,
        is_protected=True,
    ),
    kubeflow(
        "xgboost/xgboostjob.yaml",
        "xgboostjobs",
        "xgbReplicaSpecs",
        3,
        workers=2,
        is_protected=True,
    ),
    kubeflow("paddlepaddle/simple-cpu.yaml", "paddlejobs", "paddleReplicaSpecs", 2, workers=2),
    kubeflow("jax/cpu-demo/demo.yaml", "jaxjobs", "jaxReplicaSpecs", 2, workers=2),
    kubeflow(
        "mpi/tensorflow-mnist.yaml",
        "mpijobs",
        "mpiReplicaSpecs",
        3,
        gang=5000,
        pod=2000,
        workers=2,
        is_protected=True,
    ),
)
"""KServe, the MPI operator, and further kinds of the training operator. It ends some of these if a
pod fails or is deleted."""
