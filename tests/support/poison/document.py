"""An object as the API server returns it, with what every one has."""

from tests.support.cluster.api import Document

QUEUE = "scheduling.kai.io/queue-name"
TEAM = {QUEUE: "tenant"}
GPU = "gpu.example.com"


def document(
    api_version: str, kind: str, name: str, namespace: str = "", **fields: object
) -> Document:
    meta = {"name": name, "uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
    if namespace:
        meta["namespace"] = namespace
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    meta |= fields.pop("meta", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": meta} | fields
