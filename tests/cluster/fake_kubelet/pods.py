"""What does a kubelet read of a pod, and what does it write to its status?

Annotations set what a pod does: `kai-py.test/run-seconds` ends it after that time (it runs until
deleted without), `kai-py.test/exit-code` (0) says how it ends, `kai-py.test/stop-seconds` (0) how
long it takes to leave once it is deleted: with `held`, until a test changes that. With
`kai-py.test/image` set to `absent` it never starts.
"""

from typing import Any

import msgspec

Document = dict[str, Any]

RUN_SECONDS = "kai-py.test/run-seconds"
EXIT_CODE = "kai-py.test/exit-code"
STOP_SECONDS = "kai-py.test/stop-seconds"
HELD = "held"
IMAGE = "kai-py.test/image"
ABSENT = "absent"

STOPPED_BY_SIGNAL = 143
VISIBLE = "kai-py.test/visible"
"""Written by the kubelet: which GPUs each container sees, as `NAME=UUID,UUID;NAME=...`."""


class Metadata(msgspec.Struct, rename="camel"):
    """The parts of ObjectMeta that matter here."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Resources(msgspec.Struct):
    """What is asked for."""

    requests: dict[str, str] = {}


class FieldReference(msgspec.Struct, rename="camel"):
    """`valueFrom.fieldRef` of an environment entry."""

    field_path: str = ""


class ValueSource(msgspec.Struct, rename="camel"):
    """`valueFrom` of an environment entry."""

    field_ref: FieldReference | None = None


class Variable(msgspec.Struct, rename="camel"):
    """An environment entry."""

    name: str
    value: str = ""
    value_from: ValueSource | None = None


class Container(msgspec.Struct, rename="camel"):
    """A container; an init container that is always restarted is a sidecar."""

    name: str
    image: str = ""
    env: list[Variable] = []
    resources: Resources = msgspec.field(default_factory=Resources)
    restart_policy: str = ""


class PodClaim(msgspec.Struct, rename="camel"):
    """One entry of `spec.resourceClaims`, or the claim for extended resources."""

    name: str = ""
    resource_claim_name: str | None = None


class Group(msgspec.Struct, rename="camel"):
    """`spec.schedulingGroup`."""

    pod_group_name: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """The parts of PodSpec that matter here."""

    containers: list[Container]
    init_containers: list[Container] = []
    node_name: str = ""
    overhead: dict[str, str] = {}
    resources: Resources = msgspec.field(default_factory=Resources)
    resource_claims: list[PodClaim] = []
    scheduling_group: Group = msgspec.field(default_factory=Group)


class Status(msgspec.Struct, rename="camel"):
    """The parts of PodStatus that matter here."""

    phase: str = "Pending"
    resource_claim_statuses: list[PodClaim] = []
    extended_resource_claim_status: PodClaim | None = None


class Pod(msgspec.Struct):
    """A pod bound to one of our nodes."""

    metadata: Metadata
    spec: Spec
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> str:
        """Its name for people: namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        """The pod's own path in the API."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """Whether its containers ended for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    def number(self, annotation: str) -> float | None:
        """Return the number in `annotation`, None when it is not there or not a number."""
        try:
            return float(self.metadata.annotations[annotation])
        except (KeyError, ValueError):
            return None

    def claim_names(self) -> list[str | None]:
        """Return the name of each claim, None for one not made from its template yet."""
        made = {c.name: c.resource_claim_name for c in self.status.resource_claim_statuses}
        names = [c.resource_claim_name or made.get(c.name) for c in self.spec.resource_claims]
        extended = self.status.extended_resource_claim_status
        return names if extended is None else [*names, extended.resource_claim_name]


def visible_gpus(pod: Pod, given: tuple[str, ...]) -> dict[str, str]:
    """GPUs by container as NVIDIA's runtime makes them visible; `given` by the device plugin.

    Images are taken to ask for all GPUs, as CUDA's do: without an entry a container sees them all.
    """
    seen = {}
    for container in pod.spec.containers:
        if "nvidia.com/gpu" in container.resources.requests:
            seen[container.name] = ",".join(given)
            continue
        entries = {each.name: each for each in container.env}
        entry = entries.get("NVIDIA_VISIBLE_DEVICES")
        seen[container.name] = "all" if entry is None else _value(pod, entry)
    return seen


def _value(pod: Pod, entry: Variable) -> str:
    if entry.value_from is None or entry.value_from.field_ref is None:
        return entry.value
    path = entry.value_from.field_ref.field_path
    name = path.removeprefix("metadata.annotations['").removesuffix("']")
    return pod.metadata.annotations.get(name, "")


def running(pod: Pod, now: str) -> Document:
    """Return the status patch of a pod whose containers all run."""
    states = [
        _container(c, {"running": {"startedAt": now}}, ready=True) for c in pod.spec.containers
    ]
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    ]
    return _patch(pod, phase="Running", startTime=now, conditions=ready, containerStatuses=states)


def without_image(pod: Pod, now: str) -> Document:
    """Return the status patch of a pod whose image cannot be pulled."""
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    states = [_container(c, {"waiting": waiting}, ready=False) for c in pod.spec.containers]
    unready = [
        {"type": kind, "status": "False", "lastTransitionTime": now}
        for kind in ("ContainersReady", "Ready")
    ]
    return _patch(pod, phase="Pending", startTime=now, conditions=unready, containerStatuses=states)


def finished(pod: Pod, exit_code: int, now: str) -> Document:
    """Return the status patch of a pod whose containers all ended with `exit_code`."""
    ended = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": now,
        "finishedAt": now,
    }
    states = [_container(c, {"terminated": ended}, ready=False) for c in pod.spec.containers]
    reason = "PodCompleted" if exit_code == 0 else "PodFailed"
    unready = [
        {"type": kind, "status": "False", "reason": reason, "lastTransitionTime": now}
        for kind in ("ContainersReady", "Ready")
    ]
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return _patch(pod, phase=phase, conditions=unready, containerStatuses=states)


def rejected(pod: Pod, resource: str) -> Document:
    """Return the status patch of a pod for which the node has too little of `resource`."""
    message = f"Pod was rejected: Node didn't have enough resource: {resource}"
    return _patch(pod, phase="Failed", reason=f"OutOf{resource}", message=message)


def _patch(pod: Pod, **status: Any) -> Document:
    # The uid makes the server refuse the patch when the name is another pod's by now.
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _container(container: Container, state: Document, *, ready: bool) -> Document:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
