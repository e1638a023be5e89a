"""Where a conformance test works, and the small objects it works with."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.patience import patience

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A namespace of one test's own and the paths in it."""

    cluster: Cluster
    namespace: str

    @property
    def api(self) -> Api:
        return self.cluster.api

    def path(self, plural: str, group_version: str = "") -> str:
        root = f"/apis/{group_version}" if group_version else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}"

    @property
    def pods(self) -> str:
        return self.path("pods")

    @property
    def maps(self) -> str:
        return self.path("configmaps")

    @property
    def group(self) -> str:
        return f"{self.namespace}.example.com"

    @property
    def widgets(self) -> str:
        return f"/apis/{self.group}/v1/widgets"

    @property
    def claims(self) -> str:
        return self.path("resourceclaims", "resource.k8s.io/v1")

    @property
    def budgets(self) -> str:
        return self.path("poddisruptionbudgets", "policy/v1")

    @property
    def jobs(self) -> str:
        return self.path("jobs", "batch/v1")


def pod(name: str, **spec: Any) -> Json:
    meta: Json = {"name": name}
    for field in ("labels", "finalizers", "ownerReferences"):
        if field in spec:
            meta[field] = spec.pop(field)
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": containers, **spec},
    }


def config_map(name: str, **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **meta},
        "data": {"k": "v"},
    }


def claim(name: str, **meta: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **meta},
        "spec": {"devices": {"requests": [request]}},
    }


def allocation(device: str) -> Json:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}
    return {"devices": {"results": [result]}}


async def bind(place: Place, name: str, node: str, **meta: Any) -> Json:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **meta},
        "target": {"kind": "Node", "name": node},
    }
    return await place.api.post(f"{place.pods}/{name}/binding", body)


def widget_definition(group: str) -> Json:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.limit) || self.limit >= self.size", "message": "limit below size"}
        ],
    }
    status = {"type": "object", "properties": {"used": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version],
        },
    }


def widget(place: Place, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"{place.group}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


async def serve_widgets(place: Place) -> None:
    await serve(place, widget_definition(place.group))


async def serve(place: Place, definition: Json) -> None:
    """Create a definition of widgets and wait until they can be listed."""
    await place.api.post(DEFINITIONS, definition)

    async def established() -> bool:
        try:
            return bool(await place.api.get(place.widgets))
        except ApiError:
            return False

    await eventually(established, what="widgets")


async def refusal(request: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value


async def events(place: Place, path: str, count: int, **parameters: str) -> list[Json]:
    """Return the first `count` events of a watch."""
    found: list[Json] = []
    async for line in place.api.watch(path, timeoutSeconds=f"{patience(10):.0f}", **parameters):
        found.append(json.loads(line))
        if len(found) == count:
            break
    return found


def told(found: list[Json]) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"]["name"]) for each in found]
