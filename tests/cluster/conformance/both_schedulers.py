"""The same objects through kai-py and kube-scheduler, and what became of them.

Both schedulers run all the time. Devices are those of slices that a case publishes for two nodes of
its own, so nothing that one case leaves behind matters to another.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.conformance.place import Json
from tests.support.cluster.api import Api
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import View, scheduled_condition

OURS, THEIRS = "kai-scheduler", "default-scheduler"
RESOURCE = "/apis/resource.k8s.io/v1"
NODES = ("a", "b")
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Case:
    """Objects of one namespace, in which CASE stands for its name.

    ``devices``: by node; the other fields are of the same kinds as in a manifest. ``pods``: name to
    the claims or, after "=", the claim templates that it names. ``waits``: pods that do not start.
    ``schedulers``: of pods that have another one than the rest.
    """

    name: str
    devices: Mapping[str, Sequence[Json]] = field(
        default_factory=lambda: {node: [{"name": "d0"}, {"name": "d1"}] for node in NODES}
    )
    requests: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    constraints: Sequence[Json] = ()
    config: Sequence[Json] = ()
    class_config: Sequence[Json] = ()
    counters: Sequence[Json] = ()
    pods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    schedulers: Mapping[str, str] = field(default_factory=dict)
    waits: frozenset[str] = frozenset()
    admin: bool = False
    resources: Mapping[str, str] = field(default_factory=dict)
    extended_resource: str = ""


@dataclass(frozen=True)
class Outcome:
    """Pods that started, and by claim its allocation without what may differ."""

    started: frozenset[str]
    allocations: Mapping[str, Json]


async def play(api: Api, case: Case, scheduler: str, namespace: str) -> Outcome:
    """Submit the case, pods one by one, and read what became of it."""
    labels = {"resource.kubernetes.io/admin-access": "true"} if case.admin else {}
    await api.post("/api/v1/namespaces", _object("Namespace", "v1", namespace, labels=labels))
    await api.post(f"{RESOURCE}/deviceclasses", device_class(case, namespace))
    for body in slices(case, namespace):
        await api.post(f"{RESOURCE}/resourceslices", body)
    for name, requests in case.requests.items():
        kind = "resourceclaimtemplates" if name.startswith("=") else "resourceclaims"
        body = claim(case, namespace, name, requests)
        await api.post(f"{RESOURCE}/namespaces/{namespace}/{kind}", body)
    view = View(api, namespace)
    for name, claims in case.pods.items():
        chosen = case.schedulers.get(name, scheduler)
        body = pod(case, namespace, name, claims, chosen)
        await api.post(f"/api/v1/namespaces/{namespace}/pods", body)
        await _settled(view, name, starts=name not in case.waits)
    return await _outcome(view, namespace, alike=_are_alike(case))


def _are_alike(case: Case) -> bool:
    """Whether it does not matter which device is taken: nodes of equal score are drawn by lot."""
    return all(each.keys() == {"name"} for devices in case.devices.values() for each in devices)


def device_class(case: Case, namespace: str) -> Json:
    selector = {"cel": {"expression": f"device.driver == '{namespace}.example.com'"}}
    body = _object("DeviceClass", "resource.k8s.io/v1", namespace)
    body["spec"] = {"selectors": [selector], "config": _named(case.class_config, namespace)}
    if case.extended_resource:
        body["spec"]["extendedResourceName"] = f"{namespace}.example.com/device"
    return body


def slices(case: Case, namespace: str) -> list[Json]:
    bodies = []
    for node, devices in case.devices.items():
        parts: list[Json] = [{"devices": list(devices)}]
        if case.counters:
            parts.append({"sharedCounters": list(case.counters)})
        for number, part in enumerate(parts):
            name = f"{namespace}-{node}-{number}"
            body = _object("ResourceSlice", "resource.k8s.io/v1", name)
            body["spec"] = {
                "driver": f"{namespace}.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(parts)},
                **part,
            }
            bodies.append(body)
    return bodies


def claim(case: Case, namespace: str, name: str, requests: Sequence[Json]) -> Json:
    devices: Json = {"requests": _named(requests, namespace)}
    if case.constraints:
        devices["constraints"] = _named(case.constraints, namespace)
    if case.config:
        devices["config"] = _named(case.config, namespace)
    if not name.startswith("="):
        body = _object("ResourceClaim", "resource.k8s.io/v1", name, namespace=namespace)
        return {**body, "spec": {"devices": devices}}
    body = _object("ResourceClaimTemplate", "resource.k8s.io/v1", name[1:], namespace=namespace)
    return {**body, "spec": {"spec": {"devices": devices}}}


def pod(case: Case, namespace: str, name: str, claims: Sequence[str], scheduler: str) -> Json:
    entries = [
        {"name": each.strip("="), "resourceClaimTemplateName": each[1:]}
        if each.startswith("=")
        else {"name": each, "resourceClaimName": each}
        for each in claims
    ]
    resources: Json = {"claims": [{"name": each["name"]} for each in entries]}
    if case.extended_resource:
        resources["limits"] = {f"{namespace}.example.com/device": case.extended_resource}
    body = _object("Pod", "v1", name, namespace=namespace)
    body["metadata"]["annotations"] = {"scheduling.kai.io/queue-name": "team-a"}
    return {
        **body,
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            "resourceClaims": entries,
        },
    }


def _named(value: Any, namespace: str) -> Any:
    return json.loads(json.dumps(value).replace("CASE", namespace))


def _object(
    kind: str, api_version: str, name: str, *, namespace: str = "", labels: Any = None
) -> Json:
    metadata = {"name": name, "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


async def _settled(view: View, name: str, *, starts: bool) -> None:
    """Wait until the pod is on a node, or, if it should not be, its scheduler says why."""

    async def settled() -> bool:
        (found,) = [each for each in await view.pods() if each["metadata"]["name"] == name]
        said = scheduled_condition(found)
        if starts:
            assert found["spec"].get("nodeName"), f"{name} waits: {said.get('message')}"
        return bool(found["spec"].get("nodeName")) or said.get("status") == "False"

    await eventually(settled, what=f"pod {name} on a node or not")


async def _outcome(view: View, namespace: str, *, alike: bool) -> Outcome:
    started = frozenset(await view.bound())
    allocations = {}
    for body in await view.claims():
        meta = body["metadata"]
        entry = (meta.get("annotations") or {}).get("resource.kubernetes.io/pod-claim-name", "")
        extended = "resource.kubernetes.io/extended-resource-claim" in (
            meta.get("annotations") or {}
        )
        owner = next((each["name"] for each in meta.get("ownerReferences") or ()), "")
        name = f"{owner}/extended" if extended else f"{owner}/{entry}" if entry else meta["name"]
        allocations[name] = comparable(body, namespace, alike=alike)
    return Outcome(started, allocations)


def comparable(body: Json, namespace: str, *, alike: bool) -> Json:
    """What must be the same: all but times, uids, the node, and devices that are ``alike``."""
    status, meta = body.get("status") or {}, body["metadata"]
    allocation = status.get("allocation")
    found: Json = {
        "finalizers": meta.get("finalizers") or [],
        "reservedFor": sorted(each["name"] for each in status.get("reservedFor") or ()),
    }
    if allocation is None:
        return found
    text = json.dumps(allocation).replace(namespace, "CASE")
    plain = json.loads(text)
    stamped = plain.pop("allocationTimestamp", "")
    for result in plain["devices"]["results"]:
        result["shareID"] = bool(result.get("shareID"))
        result["pool"] = "node"
        if alike:
            result["device"] = "any"
    asked = {each["name"] for each in body["spec"]["devices"]["requests"]}
    for config in plain["devices"].get("config", ()):
        # Before 1.37, kube-scheduler names all requests where it leaves the list empty since.
        if {name.partition("/")[0] for name in config.get("requests", ())} == asked:
            del config["requests"]
    for term in (plain.get("nodeSelector") or {}).get("nodeSelectorTerms", ()):
        for match in (*term.get("matchFields", ()), *term.get("matchExpressions", ())):
            match["values"] = ["node"]
    return {**found, "time": bool(stamped), "allocation": plain}
