"""Grove's example, with the test in the place of Grove's operator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kai_py.lint.check import lint_together
from tests.cluster.api import Document
from tests.cluster.clusters import Cluster
from tests.cluster.eventually import eventually
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.manifests import IN_TEAM_A, queue
from tests.cluster.scheduling import EAGER, scheduling
from tests.cluster.test_frameworks import Framework, served
from tests.cluster.view import View, condition

EXAMPLE = Path(__file__).parents[2] / "examples" / "grove" / "07-podcliqueset.yaml"
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
    template, clique_set = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    template["metadata"]["namespace"] = "default"
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
        for pod in pods:
            path = f"{view.path('pods')}/{pod['metadata']['name']}"
            await cluster.api.patch(path, {"spec": {"schedulingGates": None}})
        await view.wait_bound(name, len(pods))

        async def said() -> str:
            found = await cluster.api.get(GANGS + name)
            return str(condition(found, "Scheduled").get("reason", ""))

        assert await eventually(said) == "PodGangScheduled"


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
