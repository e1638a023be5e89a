"""What README and examples show is valid, is taken by every server, and does what is said of it."""

import re
from collections.abc import Iterator

import pytest

from kai_py.lint.check import lint_together
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support import yaml_text
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.view import View
from tests.support.repository import EXAMPLES, ROOT

FILES = sorted(EXAMPLES.glob("*.yaml"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_BLOCKS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
STRICT = {"fieldValidation": "Strict"}


def example(name: str) -> str:
    (path,) = (path for path in FILES if path.name.startswith(name))
    return path.read_text(encoding="utf-8")


def documents(text: str, prefix: str) -> Iterator[Document]:
    """The documents of a text in namespaces of one test's own."""
    for document in yaml_text.read_all(text):
        metadata = document["metadata"]
        if document["kind"] == "Namespace":
            metadata["name"] = prefix + metadata["name"]
        elif metadata.get("namespace", "default") != "default":
            metadata["namespace"] = prefix + metadata["namespace"]
        yield document


async def apply(cluster: Cluster, text: str, prefix: str = "") -> None:
    """Create what a text holds; a field that the API does not have is an error."""
    for document in documents(text, prefix):
        metadata = document["metadata"]
        if document["kind"] == "Namespace":
            await cluster.create_namespace(metadata["name"])
            await cluster.api.patch(f"/api/v1/namespaces/{metadata['name']}", document)
            continue
        kinds = await cluster.api.types(document["apiVersion"])
        path = kinds[document["kind"]].path(namespace=metadata.get("namespace", "default"))
        try:
            await cluster.api.request("POST", path, document, parameters=STRICT)
        except ApiError as error:  # the nodes' driver brought its DeviceClasses, as on any cluster
            if document["kind"] != "DeviceClass" or error.reason != "AlreadyExists":
                raise


def test_lint_has_nothing_against_them() -> None:
    for texts in ([path.read_text(encoding="utf-8") for path in FILES], README_BLOCKS):
        assert [error for report in lint_together(texts) for error in report.errors] == []


@pytest.mark.usefixtures("definitions")
async def test_every_server_takes_all_examples(cluster: Cluster) -> None:
    for path in FILES:
        await apply(cluster, path.read_text(encoding="utf-8"), "taken-")


@pytest.mark.usefixtures("scheduler")
async def test_the_gang_of_the_examples_starts(cluster: Cluster) -> None:
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=8)):
        await apply(cluster, example("00"), "started-")
        await apply(cluster, example("01"), "started-")
        bound = await View(cluster.api, "started-team-a").wait_bound("llama-training-run", 8)
    assert len(set(bound.values())) == 1, "packed on one node"


@pytest.mark.usefixtures("scheduler")
async def test_the_job_of_the_readme_starts(cluster: Cluster, view: View) -> None:
    assert len(README_BLOCKS) == 1
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await apply(cluster, README_BLOCKS[0])
        await view.wait_bound("train", 8)
    assert len(set(await view.held())) == 8
