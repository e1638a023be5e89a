"""Frameworks whose controllers do not run: the test creates the pods that these would create."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import IN_TEAM_A, pod
from tests.support.cluster.scheduling import DEFINITIONS, define


@dataclass(frozen=True)
class Framework:
    """A kind, what its spec says, and the labels of the three pods of one gang."""

    group: str
    version: str
    kind: str
    spec: Document
    pods: tuple[dict[str, str], ...]
    metadata: Document = field(default_factory=dict)

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"


LWS = "leaderworkerset.sigs.k8s.io"
JOBSET = "jobset.sigs.k8s.io"
KUBEFLOW = "training.kubeflow.org"
FRAMEWORKS = (
    Framework(
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": 3}},
        tuple({f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(i)} for i in range(3)),
    ),
    Framework(
        "jobset.x-k8s.io",
        "v1alpha2",
        "JobSet",
        {
            "replicatedJobs": [
                {"name": "leader", "template": {"spec": {"parallelism": 1}}},
                {"name": "worker", "template": {"spec": {"parallelism": 4, "completions": 2}}},
            ]
        },
        tuple(
            {f"{JOBSET}/replicatedjob-name": name, f"{JOBSET}/job-index": "0"}
            for name in ("leader", "worker", "worker")
        ),
    ),
    Framework(
        "ray.io",
        "v1",
        "RayCluster",
        {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "minReplicas": 2}]},
        ({"ray.io/group": "headgroup"}, {"ray.io/group": "gpu"}, {"ray.io/group": "gpu"}),
    ),
    Framework(
        "kubeflow.org",
        "v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 2}}},
        tuple({f"{KUBEFLOW}/replica-type": role} for role in ("master", "worker", "worker")),
    ),
)


def owner(framework: Framework, name: str) -> Document:
    return {
        "apiVersion": f"{framework.group}/{framework.version}",
        "kind": framework.kind,
        "metadata": {"name": name, "namespace": "default", "annotations": dict(IN_TEAM_A)},
        "spec": framework.spec,
    }


def owned(framework: Framework, of: Document) -> list[Document]:
    name = of["metadata"]["name"]
    made = []
    for number, labels in enumerate(framework.pods):
        each = pod(f"{name}-{number}", annotations={}, labels=labels)
        each["metadata"]["ownerReferences"] = [
            {
                "apiVersion": of["apiVersion"],
                "kind": of["kind"],
                "name": name,
                "uid": of["metadata"]["uid"],
                "controller": True,
            }
        ]
        made.append(each)
    return made


@asynccontextmanager
async def served(cluster: Cluster, framework: Framework) -> AsyncIterator[None]:
    """The framework's kind, any content, for the duration of the block."""
    name = f"{framework.plural}.{framework.group}"
    defined = definition(framework, name)
    await define(cluster.api, defined)
    try:
        yield
    finally:
        await cluster.api.delete(f"{DEFINITIONS}/{name}")


def definition(framework: Framework, name: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": framework.group,
            "scope": "Namespaced",
            "names": {
                "kind": framework.kind,
                "plural": framework.plural,
                "singular": framework.kind.lower(),
            },
            "versions": [
                {
                    "name": framework.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
