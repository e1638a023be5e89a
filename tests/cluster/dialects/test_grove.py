"""Grove's example, with the test in the place of Grove's operator."""

from collections.abc import Iterator
from typing import Any

from kai_py.lint.check import lint_together
from tests.cluster.dialects.test_kai_dialect import kai_queue
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support import yaml_text
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework, served
from tests.support.cluster.kai_definitions import install_kai_api
from tests.support.cluster.manifests import IN_TEAM_A, queue
from tests.support.cluster.scheduling import EAGER, scheduling
from tests.support.cluster.view import View, condition
from tests.support.repository import EXAMPLES

EXAMPLE = EXAMPLES / "grove" / "07-podcliqueset.yaml"
POD_GANG = Framework("scheduler.grove.io", "v1alpha1", "PodGang", {}, ())
GANGS = "/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs/"
GATE = {"name": "grove.io/podgang-pending-creation"}
SPEAKING = EAGER.model_copy(update={"grove": EAGER.grove.model_copy(update={"write_status": True})})


def test_lint_has_nothing_against_the_example() -> None:
    (report,) = lint_together([EXAMPLE.read_text(encoding="utf-8")])
    assert not report.errors


async def test_prefill_and_decode_start_together_once_their_gates_are_gone(
    cluster: Cluster, definitions: None, view: View
) -> None:
    template, clique_set = example()
    name = clique_set["metadata"]["name"]
    async with (
        served(cluster, POD_GANG),
        scheduling(cluster, SPEAKING),
        cluster.run_nodes(gpu_nodes(1, published_gpus=4)),
    ):
        await cluster.submit(queue(), template, pod_gang(clique_set))
        pods = list(pods_of(clique_set))
        await cluster.submit(*pods)
        assert await view.bound(name) == {}
        await ungate(view, pods)
        await view.wait_bound(name, len(pods))

        async def said() -> str:
            found = await cluster.api.get(GANGS + name)
            return str(condition(found, "Scheduled").get("reason", ""))

        assert await eventually(said) == "PodGangScheduled"


async def test_the_pod_group_that_newer_groves_make_goes_before_the_gang(
    cluster: Cluster, definitions: None, view: View
) -> None:
    template, clique_set = example()
    name = clique_set["metadata"]["name"]
    await install_kai_api(cluster.api)
    async with (
        served(cluster, POD_GANG),
        scheduling(cluster, SPEAKING),
        cluster.run_nodes(gpu_nodes(1, published_gpus=4)),
    ):
        gang = await cluster.api.create(pod_gang(clique_set))
        await cluster.submit(kai_queue("kai-team"), template, pod_group_of(gang))
        pods = [in_pod_group(each) for each in pods_of(clique_set)]
        await cluster.submit(*pods[:-1])
        await ungate(view, pods[:-1])
        last = pods[-1]["metadata"]["labels"]["kai.scheduler/subgroup-name"]
        await view.wait_incomplete(name, len(pods) - 1, note=not_ready(pods, last))
        await cluster.submit(pods[-1] | {"spec": pods[-1]["spec"] | {"schedulingGates": []}})
        await view.wait_bound(name, len(pods))


def example() -> tuple[Document, Document]:
    """Its template of claims, and the set of cliques."""
    template, clique_set = yaml_text.read_all(EXAMPLE.read_text(encoding="utf-8"))
    template["metadata"]["namespace"] = "default"
    return template, clique_set


async def ungate(view: View, pods: list[dict[str, Any]]) -> None:
    """Take Grove's gate off pods, as its operator does."""
    for pod in pods:
        path = f"{view.path('pods')}/{pod['metadata']['name']}"
        await view.api.patch(path, {"spec": {"schedulingGates": None}})


def not_ready(pods: list[dict[str, Any]], leaf: str) -> str:
    """What the subgroup of the pod that comes last waits for, in KAI's words."""
    labels = [each["metadata"]["labels"]["kai.scheduler/subgroup-name"] for each in pods]
    floor = labels.count(leaf)
    return (
        f"Job is not ready for scheduling. Waiting for {floor} pods for SubGroup {leaf}, "
        f"currently {floor - 1} exist, 0 are gated"
    )


def pod_group_of(gang: Document) -> Document:
    """The PodGroup that Grove's backend for KAI makes of a PodGang."""
    meta, leaves = gang["metadata"], gang["spec"]["podgroups"]
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": meta["name"],
            "namespace": "default",
            "ownerReferences": [
                {
                    "apiVersion": gang["apiVersion"],
                    "kind": gang["kind"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queue": "kai-team",
            "minMember": sum(each["minReplicas"] for each in leaves),
            "subGroups": [
                {"name": "model", "minSubGroup": len(leaves)},
                *(
                    {"name": each["name"], "minMember": each["minReplicas"], "parent": "model"}
                    for each in leaves
                ),
            ],
        },
    }


def in_pod_group(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as that backend prepares it."""
    meta = pod["metadata"]
    labels = meta["labels"]
    marks = {"kai.scheduler/skip-podgrouper": "true", "pod-group-name": labels["grove.io/podgang"]}
    subgroup = {"kai.scheduler/subgroup-name": labels["grove.io/podclique"]}
    return pod | {"metadata": meta | {"annotations": marks, "labels": labels | subgroup}}


def pod_gang(clique_set: Document) -> Document:
    """The base PodGang that Grove's operator makes of a set."""
    name = clique_set["metadata"]["name"]
    return {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(IN_TEAM_A)},
        "spec": {
            "podgroups": [
                {"name": f"{name}-{clique['name']}", "minReplicas": clique["spec"]["replicas"]}
                for clique in clique_set["spec"]["template"]["cliques"]
            ]
        },
    }


def pods_of(clique_set: Document) -> Iterator[dict[str, Any]]:
    """Its pods, behind Grove's gate."""
    name = clique_set["metadata"]["name"]
    for clique in clique_set["spec"]["template"]["cliques"]:
        for index in range(clique["spec"]["replicas"]):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{clique['name']}-{index}",
                    "namespace": "default",
                    "labels": {
                        "grove.io/podgang": name,
                        "grove.io/podclique": f"{name}-{clique['name']}",
                        "grove.io/podclique-pod-index": str(index),
                    },
                },
                "spec": {**clique["spec"]["podSpec"], "schedulingGates": [GATE]},
            }
