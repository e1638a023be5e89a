"""Pods on nodes with a device that the kubelet reports as unhealthy (KEP-4680).

A device plugin or DRA driver reports the health to the kubelet, which writes it into the status of
the containers that have the device. ``Unknown`` has no meaning: a restarting driver reports it.
"""

from collections.abc import Iterator, Mapping

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids

UNHEALTHY = "Unhealthy"
CLAIM_PREFIX = "claim:"
MAX_SHOWN = 256
"""Characters of a device's name in messages."""

DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""


class UnhealthyPods(PodTable):
    """By the key of their gang, the pods, each with the device that it lost."""

    def __init__(self) -> None:
        """Start empty."""
        self._gang_of: dict[str, str] = {}
        self._by_gang: dict[str, dict[str, str]] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Note what a pod of ours reports of its devices."""
        self.release(pod.uid)
        spec = pod.parsed.gang_spec
        device = next(unhealthy_devices(pod.parsed.pod), None)
        if spec is not None and device is not None and pod.placement.node:
            self._gang_of[pod.uid] = spec.key
            self._by_gang.setdefault(spec.key, {})[pod.uid] = device[1][:MAX_SHOWN]
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is on no node any more."""
        key = self._gang_of.pop(uid, "")
        pods = self._by_gang.get(key)
        if pods is not None:
            pods.pop(uid, None)
            if not pods:
                del self._by_gang[key]
        return ()

    def snapshot(self) -> Mapping[str, Mapping[str, str]]:
        """Gang to pod uid to device, in order."""
        return {key: dict(sorted(self._by_gang[key].items())) for key in sorted(self._by_gang)}


def unhealthy_devices(pod: Pod) -> Iterator[tuple[str, str]]:
    """Resource and device id of each device that a pod reports as unhealthy."""
    for container in pod.status.container_statuses:
        for resource in container.allocated_resources_status:
            for device in resource.resources:
                if device.health == UNHEALTHY:
                    yield resource.name, device.resource_id


def claim_entries(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """Of each unhealthy device of a claim: the claim's name, the request or "", the device id."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    named = {
        each.name: each.resource_claim_name or made.get(each.name)
        for each in pod.spec.resource_claims
    }
    for resource, device in unhealthy_devices(pod):
        if resource.startswith(CLAIM_PREFIX):
            entry, _, request = resource.removeprefix(CLAIM_PREFIX).partition("/")
            if claim := named.get(entry):
                yield claim, request, device


def allocated_device(claim: ResourceClaim, request: str, device_id: str) -> DeviceKey | None:
    """The device of the claim that is meant; None if that is unknown.

    ``device_id``: driver, pool and device, or a name by CDI, which drivers choose. A claim with one
    device leaves no choice.
    """
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    asked = [each for each in results if request in ("", each.request.partition("/")[0])]
    keys = {(each.driver, each.pool, each.device): None for each in asked}
    exact = [key for key in keys if "/".join(key) == device_id]
    found = exact or [key for key in keys if device_id.endswith((f"={key[2]}", f"/{key[2]}"))]
    candidates = found or list(keys)
    return candidates[0] if len(candidates) == 1 else None
