"""Manifests of the documentation, sent to the real API server, which drops and changes nothing.

Objects of frameworks that are not installed are not sent; the pods in them are.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import PAGES, label, manifests
from tests.support import yaml_text
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.scheduling import install_definitions

DRY_RUN = {"fieldValidation": "Strict", "dryRun": "All"}
WITH_MANIFESTS = [page for page in PAGES if any("apiVersion:" in text for text in manifests(page))]


def pod_specs(value: Any) -> Iterator[Document]:
    """Every part of a document that has containers."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for each in value.values():
            yield from pod_specs(each)
    if isinstance(value, list):
        for each in value:
            yield from pod_specs(each)


def pod(spec: Document) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "from-the-docs", "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.parametrize("page", WITH_MANIFESTS, ids=label)
async def test_the_server_takes_them(real: Cluster, page) -> None:
    await install_definitions(real.api)
    texts = [text for text in manifests(page) if "apiVersion:" in text]
    sent = 0
    for document in (each for text in texts for each in yaml_text.read_all(text)):
        for taken in (document, *map(pod, pod_specs(document.get("spec")))):
            sent += await _taken(real, taken)
    assert sent


async def _taken(real: Cluster, document: Document) -> bool:
    """Whether the server knows the kind; raises ApiError if it has something against it."""
    kinds = await real.api.types(document["apiVersion"])
    kind = kinds.get(document["kind"])
    if kind is None:
        return False
    path = kind.path(namespace=document["metadata"].get("namespace", "default"))
    await real.api.request("POST", path, document, parameters=DRY_RUN)
    return True
