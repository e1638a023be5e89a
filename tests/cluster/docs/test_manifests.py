"""What the API server says to our CRD and to what lint makes of articles.

Only on the real API server: it alone has the rules of every built-in kind and of CRDs.
"""

import pytest

from kai_py.api.crd import queue_crd
from kai_py.api.queue import InvalidQueueError, read_queue
from tests.support import yaml_text
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.linting import lint
from tests.support.repository import ARTICLES, needs

WRITTEN = sorted(ARTICLES.glob("0[1-6]*.yaml"))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "/apis/scheduling.kai.io/v1alpha1/queues"
STRICT = {"fieldValidation": "Strict"}


async def serve_queues(api: Api) -> None:
    try:
        await api.post(DEFINITIONS, queue_crd())
    except ApiError as error:
        if error.code != 409:
            raise

    async def served() -> bool:
        definition = await api.get(f"{DEFINITIONS}/{queue_crd()['metadata']['name']}")
        found = {it["type"]: it["status"] for it in definition["status"].get("conditions") or ()}
        return found.get("Established") == "True" and await _answers(api)

    await eventually(served, what="queues")


async def _answers(api: Api) -> bool:
    try:
        await api.get(QUEUES)
    except ApiError as error:
        if error.code in (404, 429, 503):
            return False
        raise
    return True


async def create(api: Api, document: Document) -> None:
    """Create a document as kubectl does: a field the API does not have is an error."""
    kinds = await api.types(document["apiVersion"])
    namespace = document["metadata"].get("namespace", "default")
    path = kinds[document["kind"]].path(namespace=namespace)
    await api.request("POST", path, document, parameters=STRICT)


def share(**fields: object) -> dict[str, object]:
    return {"resources": {"cpu": fields}}


def device(**fields: object) -> dict[str, object]:
    return {"devices": [{"name": "d", **fields}]}


SPECS = [
    {},
    {"deservedGPUs": 8, "maxGPUs": 16, "priority": 100},
    {"deservedGPUs": 0.5, "maxGPUs": 0.5},
    {"deservedGPUs": 8, "maxGPUs": 6},
    {"deservedGPUs": -1},
    {"deservedGPUs": "8"},
    {"maxGPU": 8},
    {"deserved_gpus": 8},
    {"priority": 1.5},
    {"weight": -1},
    {"parent": "q"},
    {"parent": "other"},
    {"parent": "Not A Name"},
    share(deserved=64, max="65"),
    share(deserved="64", max="500m"),
    share(deserved="1Gi", max="1024Mi"),
    share(deserved="1e3", max=999),
    share(max="2GB"),
    share(deserved="-1"),
    share(deserved=-1),
    share(limit=1),
    device(deviceClassName="c", deserved=1, max="2"),
    device(deviceClassName="c", deserved=3, max="2"),
    device(deviceClassName="c", attribute="d/a", values=["x"]),
    device(attribute="d/a"),
    device(attribute="d/a", values=["x"]),
    device(),
    {"devices": [{"name": "d", "deviceClassName": "c"}] * 2},
    {"namespaces": {}},
    {"namespaces": {"names": ["a"]}},
    {"namespaces": {"selector": {"matchLabels": {"a": "b"}}}},
    {"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}},
    {"preemptMinRuntime": "1h30m", "reclaimMinRuntime": "0", "reserveAfter": "500ms"},
    {"reserveAfter": "5 minutes"},
    {"ageing": "10m", "ageingLimit": 0},
    {"ageing": "10", "ageingLimit": -1},
    {"reserveAfter": ""},
]


async def test_the_server_and_the_model_accept_the_same_queues(real: Cluster) -> None:
    await serve_queues(real.api)
    for spec in SPECS:
        document = {
            "apiVersion": "scheduling.kai.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": spec,
        }
        assert await _server_accepts(real.api, document) == _model_accepts(document), spec


async def test_a_refusal_is_in_our_words(real: Cluster) -> None:
    await serve_queues(real.api)
    document = {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"deservedGPUs": 8, "maxGPUs": 6, "parent": "q", "resources": {"gpus": {"max": 1}}},
    }
    with pytest.raises(ApiError) as refused:
        await create(real.api, document)
    with pytest.raises(InvalidQueueError, match="maxGPUs must be at least deservedGPUs"):
        read_queue(document)
    assert "maxGPUs must be at least deservedGPUs" in str(refused.value)
    assert "a queue cannot be its own parent" in str(refused.value)
    assert "GPUs of every kind together are deservedGPUs and maxGPUs" in str(refused.value)


async def test_a_queue_gets_its_defaults(real: Cluster) -> None:
    await serve_queues(real.api)
    document = {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {},
    }
    stored = await real.api.post(QUEUES, document)
    assert stored["spec"] == {
        "admissionGate": False,
        "deservedGPUs": 0,
        "priority": 100,
        "weight": 1,
    }
    assert read_queue(stored).spec == read_queue(document).spec


async def apply(real: Cluster, text: str, *, prefix: str) -> None:
    """Create the documents of a text in namespaces of this test's own."""
    for document in yaml_text.read_all(text):
        metadata = document["metadata"]
        if document["kind"] == "Namespace":
            await real.create_namespace(prefix + metadata["name"])
            continue
        if "namespace" in metadata:
            metadata["namespace"] = prefix + metadata["namespace"]
        await create(real.api, document)


@needs(ARTICLES)
async def test_corrected_articles_are_accepted(real: Cluster) -> None:
    await serve_queues(real.api)
    for name in ("team-a", "team-research", "ml-workloads"):
        await real.create_namespace(f"articles-{name}")
    for path in WRITTEN:
        await apply(real, lint(path.read_text(encoding="utf-8")).corrected, prefix="articles-")


async def _server_accepts(api: Api, document: Document) -> bool:
    try:
        await api.request("POST", QUEUES, document, parameters={**STRICT, "dryRun": "All"})
    except ApiError as error:
        if error.code not in (400, 422):
            raise
        return False
    return True


def _model_accepts(document: Document) -> bool:
    try:
        read_queue(document, unknown="forbid")
    except InvalidQueueError:
        return False
    return True
