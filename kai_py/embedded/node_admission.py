"""Admission of pods by a node: the checks of a kubelet and its DRA drivers.

Amounts: the requests of the pods started on a node never exceed its allocatable; a resource that
the node does not report is not checked (as in the kubelet, since DRA may serve it). A pod with GPUs
of the device plugin gets those with the lowest numbers that no other pod was given. Devices: a
claim must be allocated, reserved for the pod, and have no device of another started claim, so a
double allocation is detected here and not in production.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.unstructured import value_at
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json, name_of, namespace_of, uid_of
from kai_py.embedded.resources import CLAIMS

T = TypeVar("T")

Device = tuple[str, str, str]
"""Driver, pool, device."""


class NodeAdmission:
    """The admitted pods and prepared devices of all nodes."""

    def __init__(self) -> None:
        self._allocated: dict[str, dict[str, Counter[str]]] = {}
        self._gpus: dict[str, dict[str, tuple[int, ...]]] = {}
        self._devices: dict[Device, str] = {}
        self._claims: dict[str, set[str]] = {}

    def admit_resources(self, pod: Json, node: Json) -> str:
        """Admit the pod; return the resource that is short instead, empty if none is."""
        admitted = self._allocated.get(name_of(node), {})
        if uid_of(pod) in admitted:
            return ""
        requests = requests_of(pod)
        used = sum(admitted.values(), Counter[str]())
        allocatable = value_at(node, "status.allocatable") or {}
        for resource, amount in requests.items():
            if resource in allocatable and used[resource] + amount > _nano(allocatable[resource]):
                return resource
        self._allocated.setdefault(name_of(node), {})[uid_of(pod)] = requests
        if count := requests[GPU_RESOURCE] // 10**9:
            given = self._gpus.setdefault(name_of(node), {})
            in_use = {index for indexes in given.values() for index in indexes}
            free = (index for index in itertools.count() if index not in in_use)
            given[uid_of(pod)] = tuple(itertools.islice(free, count))
        return ""

    def plugin_gpus(self, pod_uid: str, node: str) -> tuple[str, ...]:
        """UUIDs of the GPUs that the device plugin of ``node`` gave to a pod."""
        return tuple(f"GPU-{node}-{i}" for i in self._gpus.get(node, {}).get(pod_uid, ()))

    def admit_devices(self, api: ApiServer, pod: Json) -> str:
        """Prepare the pod's claims; return why that is impossible, empty on success."""
        claims = []
        for name in claim_names(pod):
            claim = api.find(CLAIMS, name, namespace_of(pod)) if name else None
            if claim is None or (reason := _unusable_reason(claim, pod)):
                return reason if claim else f"claim of pod {name_of(pod)} is not there"
            claims.append(claim)
        for claim in claims:
            for device in _exclusively_allocated(claim):
                holder = self._devices.get(device, uid_of(claim))
                if holder != uid_of(claim):
                    return f"device {'/'.join(device)} of claim {name_of(claim)} is in use"
        for claim in claims:
            self._devices |= dict.fromkeys(_exclusively_allocated(claim), uid_of(claim))
            self._claims.setdefault(uid_of(claim), set()).add(uid_of(pod))
        return ""

    def release(self, pod_uid: str, node: str) -> None:
        """Remove a stopped pod, and the devices of claims that no started pod uses."""
        _release(self._allocated, node, pod_uid)
        _release(self._gpus, node, pod_uid)
        idle = [claim for claim, pods in self._claims.items() if pods <= {pod_uid}]
        for pods in self._claims.values():
            pods.discard(pod_uid)
        for claim in idle:
            del self._claims[claim]
        if idle:
            device_claim = self._devices.items()
            self._devices = {device: claim for device, claim in device_claim if claim not in idle}


def _release(by_node: dict[str, dict[str, T]], node: str, pod_uid: str) -> None:
    """Remove a pod, and its node after the last one: names of nodes come and go, too."""
    pods = by_node.get(node, {})
    pods.pop(pod_uid, None)
    if not pods:
        by_node.pop(node, None)


def requests_of(pod: Json) -> Counter[str]:
    """A pod's effective requests in nano units, including one of `pods`.

    The larger of all containers with sidecars and the largest init container with the sidecars
    started before it, plus overhead; pod-level requests take precedence.
    """
    spec = pod["spec"]
    running = Counter[str]()
    peak = Counter[str]()
    for container in spec.get("initContainers") or ():
        amounts = _amounts(value_at(container, "resources.requests") or {})
        if container.get("restartPolicy") == "Always":
            running += amounts
            peak |= running
        else:
            peak |= running + amounts
    for container in spec.get("containers") or ():
        running += _amounts(value_at(container, "resources.requests") or {})
    pod_level = _amounts(value_at(spec, "resources.requests") or {})
    total = Counter({**(running | peak), **pod_level})
    total += _amounts(spec.get("overhead") or {})
    total["pods"] = _nano("1")
    return total


def claim_names(pod: Json) -> Iterable[str | None]:
    """The names of the pod's claims; None for one that is not created yet."""
    created = {
        each["name"]: each.get("resourceClaimName")
        for each in pod["status"].get("resourceClaimStatuses") or ()
    }
    for reference in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimName" in reference:
            yield reference["resourceClaimName"]
        elif reference["name"] not in created or created[reference["name"]]:
            yield created.get(reference["name"])
    extended = pod["status"].get("extendedResourceClaimStatus")
    if extended:
        yield extended["resourceClaimName"]


def _amounts(texts: Mapping[str, str]) -> Counter[str]:
    return Counter({name: _nano(text) for name, text in texts.items()})


def _nano(text: str) -> int:
    try:
        return parse_quantity(text).nano
    except QuantityError:
        return 0


def _unusable_reason(claim: Json, pod: Json) -> str:
    status = claim.get("status") or {}
    if not status.get("allocation"):
        return f"claim {name_of(claim)} is not allocated"
    if all(each["uid"] != uid_of(pod) for each in status.get("reservedFor") or ()):
        return f"claim {name_of(claim)} is not reserved for pod {name_of(pod)}"
    return ""


def _exclusively_allocated(claim: Json) -> list[Device]:
    return [
        (result["driver"], result["pool"], result["device"])
        for result in value_at(claim, "status.allocation.devices.results") or ()
        if not result.get("adminAccess") and not result.get("shareID")
    ]
