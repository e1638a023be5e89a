"""Pods on nodes that are not ready, or whose device is unhealthy, as the kubelet reports it.

A pod that was ready for ``SETTLED_SECONDS`` has started up: what happens to it later does not
concern its start. Shorter times do not count, because a container that crashes again and again is
ready in between. A pod that is first seen when it is not ready any more has started up if none of
its containers has restarted.

A device plugin or DRA driver reports the health of devices to the kubelet, which writes it into the
status of the containers that have the device (KEP-4680). ``Unknown`` has no meaning: a restarting
driver reports it.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from kai_py.api.records.core import Condition, ContainerStatus, ContainerWaiting, Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.pod_claims import created_claims
from kai_py.snapshot.tables.pod_table import PodTable, Uids

SETTLED_SECONDS = 60.0
MAX_SHOWN = 256
"""Characters of a message of the kubelet."""
IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
    }
)
PROGRESS_REASONS = frozenset({"ContainerCreating", "PodInitializing", ""})
UNHEALTHY = "Unhealthy"
CLAIM_PREFIX = "claim:"

DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""


class _PodsByGang(PodTable):
    """Some pods by the key of their gang, each with a text."""

    def __init__(self) -> None:
        self._gang_of: dict[str, str] = {}
        self._by_gang: dict[str, dict[str, str]] = {}

    def _note(self, uid: str, gang: str, text: str) -> None:
        self._gang_of[uid] = gang
        self._by_gang.setdefault(gang, {})[uid] = text

    def _forget(self, uid: str) -> str:
        """Returns the gang of the pod, "" if it was not noted."""
        gang = self._gang_of.pop(uid, "")
        if gang:
            del self._by_gang[gang][uid]
            if not self._by_gang[gang]:
                del self._by_gang[gang]
        return gang


class StartingPods(_PodsByGang):
    """By the key of their gang, the pods that are not ready yet, each with the reason."""

    def __init__(self, is_ours: Callable[[Pod], bool]) -> None:
        """Start empty; ``is_ours``: whether this scheduler places a pod."""
        super().__init__()
        self._is_ours = is_ours
        self._frozen: dict[str, Mapping[str, str]] = {}
        self._changed: dict[str, None] = {}
        self._snapshot: Mapping[str, Mapping[str, str]] = {}
        self._ready_since: dict[str, float] = {}
        self._settled: dict[str, None] = {}

    def observe(self, pod: Pod) -> Uids:
        """Note since when a pod has been ready, and whether it was so for long enough."""
        uid = pod.metadata.uid
        ready = ready_condition(pod) if self._is_ours(pod) else None
        if ready is None or uid in self._settled:
            return ()
        changed = _seconds(ready.last_transition_time)
        if ready.status == "True":
            self._ready_since.setdefault(uid, changed)
            return ()
        since = self._ready_since.pop(uid, None)
        if since is None:
            since = _start_of_unbroken_run(pod)
        if since is not None and changed - since >= SETTLED_SECONDS:
            self._settled[uid] = None
        return ()

    def place(self, pod: DerivedPod) -> Uids:
        """Note whether a pod of ours has become ready."""
        self.release(pod.uid)
        spec, found = pod.parsed.gang_spec, pod.parsed.pod
        if spec is not None and pod.placement.node and not self._has_started(pod.uid, found):
            self._note(pod.uid, spec.key, startup_problem(found))
            self._changed[spec.key] = None
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is on no node any more."""
        if gang := self._forget(uid):
            self._changed[gang] = None
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod was deleted."""
        uid = pod.metadata.uid
        self.release(uid)
        self._ready_since.pop(uid, None)
        self._settled.pop(uid, None)
        return ()

    def snapshot(self) -> Mapping[str, Mapping[str, str]]:
        """Gang to pod uid to the reason, empty for one that is only being started."""
        if not self._changed:
            return self._snapshot
        for key in self._changed:
            if key in self._by_gang:
                self._frozen[key] = dict(self._by_gang[key])
            else:
                self._frozen.pop(key, None)
        self._changed = {}
        self._snapshot = self._frozen.copy()
        return self._snapshot

    def _has_started(self, uid: str, pod: Pod) -> bool:
        ready = ready_condition(pod)
        if ready is None:
            return pod.status.phase == "Running"  # No kubelet leaves the condition out.
        return uid in self._settled or ready.status == "True"


def startup_problem(pod: Pod) -> str:
    """Why a pod is not ready, as a clause; empty where it is only being started."""
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if problem := _container_problem(container):
            return problem
    running = [each for each in status.container_statuses if each.started and not each.ready]
    if running:
        return f"the readiness probe of container {running[0].name} has not succeeded"
    return ""


def _container_problem(container: ContainerStatus) -> str:
    waiting, last = container.state.waiting, container.last_state.terminated
    name = f"container {container.name}"
    if waiting is not None and waiting.reason in IMAGE_REASONS:
        return _with_message(f"the image of {name} cannot be pulled ({waiting.reason}", waiting)
    if container.restart_count and not container.ready and last is not None:
        why = last.reason if last.reason not in ("", "Error") else f"exit code {last.exit_code}"
        how = "has crashed" if container.restart_count == 1 else "crashes again and again"
        return f"{name} {how} ({why[:MAX_SHOWN]})"
    if waiting is not None and waiting.reason not in PROGRESS_REASONS:
        return _with_message(f"{name} does not start ({waiting.reason[:MAX_SHOWN]}", waiting)
    return ""


def _with_message(text: str, waiting: ContainerWaiting) -> str:
    return f"{text}: {waiting.message[:MAX_SHOWN]})" if waiting.message else f"{text})"


def ready_condition(pod: Pod) -> Condition | None:
    """The condition Ready of a pod; None before a kubelet has reported it."""
    return next((each for each in pod.status.conditions if each.type == "Ready"), None)


def _start_of_unbroken_run(pod: Pod) -> float | None:
    """When a pod started of which no container has restarted; None for any other."""
    containers = pod.status.container_statuses
    if pod.status.start_time is None or any(each.restart_count for each in containers):
        return None
    return pod.status.start_time.timestamp() if any(map(_runs, containers)) else None


def _runs(container: ContainerStatus) -> bool:
    return container.started and container.state.waiting is None


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0


class UnhealthyPods(_PodsByGang):
    """By the key of their gang, the pods, each with the device that it lost."""

    def place(self, pod: DerivedPod) -> Uids:
        """Note whether a pod of ours reports an unhealthy device."""
        self.release(pod.uid)
        spec = pod.parsed.gang_spec
        device = next(unhealthy_devices(pod.parsed.pod), None)
        if spec is not None and device is not None and pod.placement.node:
            self._note(pod.uid, spec.key, device[1][:MAX_SHOWN])
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is on no node any more."""
        self._forget(uid)
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
    created = created_claims(pod)
    named = {
        each.name: each.resource_claim_name or created.get(each.name)
        for each in pod.spec.resource_claims
    }
    for resource, device in unhealthy_devices(pod):
        if resource.startswith(CLAIM_PREFIX):
            entry, _, request = resource.removeprefix(CLAIM_PREFIX).partition("/")
            if claim := named.get(entry):
                yield claim, request, device


def newly_unhealthy(
    old: object | None, pod: Pod, find_claim: Callable[[str, str], ResourceClaim | None]
) -> Iterator[DeviceKey]:
    """The devices of claims that a pod reports as unhealthy, if its report has changed."""
    if isinstance(old, Pod) and old.status.container_statuses == pod.status.container_statuses:
        return
    for name, request, device_id in claim_entries(pod):
        claim = find_claim(pod.metadata.namespace, name)
        device = claim and allocated_device(claim, request, device_id)
        if device:
            yield device


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
