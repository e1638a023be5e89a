"""ProvisioningRequests: gangs that ask Cluster Autoscaler for all of their capacity at once.

A gang that is short of capacity that more nodes could provide, and has a provisioning class (by its
annotation, or the configuration), gets a ProvisioningRequest with a pod set for each kind of pod
that it needs to start. It exists until the gang has started, is deleted, or waits for something
other than capacity. Meanwhile its pods are not marked ``Unschedulable``, so that no nodes are added
for single pods.

The name of a request is derived from its content; a gang that comes to need other pods gets another
request. Requests that failed, or whose capacity was revoked, are created again after a while.

Source: ProvisioningRequest v1, KEP "Provisioning Request" of Cluster Autoscaler.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from kai_py.api.autoscaling import NO_CLASS, ProvisioningConfig
from kai_py.api.queue import GROUP
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.references import PodRef
from kai_py.api.times import parse_time
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import CAPACITY_MAY_HELP, SHORT_OF_CAPACITY, Plan, Stage, Unplaced
from kai_py.snapshot.gangs import Gang
from kai_py.watch.resource import Key

GANG_KEY = f"{GROUP}/gang"
MANAGED_BY = "app.kubernetes.io/managed-by"
MAX_POD_SETS = 32
# By precedence: the first condition that is True tells the state.
STATES = (
    ("CapacityRevoked", "its capacity was revoked"),
    ("BookingExpired", "its capacity was not used in time"),
    ("Failed", "it failed"),
    ("Provisioned", "its nodes are ready"),
    ("Accepted", "an autoscaler has accepted it"),
)
FAILED_STATES = frozenset({"CapacityRevoked", "BookingExpired", "Failed"})


class PodSet(Struct, frozen=True):
    """Equivalent pods."""

    pods: tuple[PodRef, ...]

    @property
    def pod(self) -> PodRef:
        """The first, as the template of all."""
        return self.pods[0]

    @property
    def count(self) -> int:
        """The number of pods."""
        return len(self.pods)


class DesiredRequest(Struct, frozen=True):
    """A ProvisioningRequest that must exist for a gang."""

    gang: str
    owner: Owner
    name: str
    class_name: str
    pod_sets: tuple[PodSet, ...]

    @property
    def key(self) -> Key:
        """Namespace and name of the request."""
        return self.pod_sets[0].pod.namespace, self.name


def desired_requests(
    plan: Plan, gangs: Mapping[str, Gang], settings: ProvisioningConfig
) -> dict[str, DesiredRequest]:
    """The requests of a plan, by gang."""
    requests: dict[str, DesiredRequest] = {}
    for unplaced in plan.unplaced:
        gang = gangs.get(unplaced.gang)
        if gang is None or gang.is_satisfied or unplaced.stage not in SHORT_OF_CAPACITY:
            continue
        class_name = gang.settings.provisioning_class or settings.class_name or NO_CLASS
        pod_sets = _pod_sets(gang, unplaced)
        if class_name != NO_CLASS and 0 < len(pod_sets) <= MAX_POD_SETS:
            name = _request_name(gang, class_name, pod_sets)
            requests[gang.key] = DesiredRequest(gang.key, gang.owner, name, class_name, pod_sets)
    return requests


def waiting_for_capacity(plan: Plan, gangs: Iterable[Gang]) -> frozenset[str]:
    """Gangs that have not started and may still get capacity: they keep the request they have."""
    blocked = {each.gang for each in plan.unplaced if each.stage not in CAPACITY_MAY_HELP}
    return frozenset(g.key for g in gangs if not g.is_satisfied and g.key not in blocked)


def with_request_states(
    plan: Plan, desired: Mapping[str, DesiredRequest], requests: Mapping[Key, Unstructured]
) -> Plan:
    """``plan``, with the state of its request in the message of every gang that has one."""
    if not desired:
        return plan
    return structs.replace(
        plan,
        unplaced=tuple(
            _provisioned(each, desired[each.gang], requests) if each.gang in desired else each
            for each in plan.unplaced
        ),
    )


def request_state(request: Unstructured) -> tuple[str, str]:
    """The type of the deciding condition, and the state in words; type "" before there is one."""
    conditions = {
        each["type"]: each for each in request.conditions() if each.get("status") == "True"
    }
    for kind, words in STATES:
        if kind in conditions:
            message = str(conditions[kind].get("message", "")).rstrip(".")
            return kind, f"{words} ({message})" if message else words
    return "", "no autoscaler has responded yet"


def failed_at(request: Unstructured) -> float | None:
    """Time at which a request failed (seconds since the epoch), None while it has not."""
    kind, _ = request_state(request)
    if kind not in FAILED_STATES:
        return None
    condition = next(each for each in request.conditions() if each["type"] == kind)
    failed = parse_time(str(condition.get("lastTransitionTime", "")))
    return 0.0 if failed is None else failed.timestamp()


def request_body(
    desired: DesiredRequest, parameters: Mapping[str, str], manager: str
) -> dict[str, Any]:
    """The ProvisioningRequest; it is owned by the owner of its gang."""
    owner = desired.owner
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return {
        "metadata": {
            "name": desired.name,
            "labels": {MANAGED_BY: manager},
            "annotations": {GANG_KEY: desired.gang},
            "ownerReferences": [reference] if owner.uid else [],
        },
        "spec": {
            "provisioningClassName": desired.class_name,
            "parameters": dict(parameters),
            "podSets": [
                {"podTemplateRef": {"name": template_name(desired, index)}, "count": pod_set.count}
                for index, pod_set in enumerate(desired.pod_sets)
            ],
        },
    }


def template_name(desired: DesiredRequest, index: int) -> str:
    """Name of the PodTemplate of a pod set."""
    return f"{desired.name}-{index}"


def template_body(name: str, pod: Unstructured, request: Owner) -> dict[str, Any]:
    """The PodTemplate of pods like ``pod``; it is owned by the request."""
    omitted = ("nodeName", "schedulingGates", "ephemeralContainers", "schedulingGroup")
    spec = {key: each for key, each in pod.content["spec"].items() if key not in omitted}
    reference = {
        "apiVersion": request.api_version,
        "kind": request.kind,
        "name": request.name,
        "uid": request.uid,
        "controller": True,
    }
    return {
        "metadata": {"name": name, "ownerReferences": [reference]},
        "template": {"metadata": {"labels": dict(pod.metadata.labels)}, "spec": spec},
    }


def _pod_sets(gang: Gang, unplaced: Unplaced) -> tuple[PodSet, ...]:
    """Kinds of pods that the gang still needs to start, in placing order."""
    needed = {pod.uid for pod in unplaced.pods} - {pod.uid for pod in unplaced.elastic}
    kinds: dict[tuple[str, int], list[PodRef]] = {}
    for member in gang.pending:
        if member.pod.uid in needed:
            kinds.setdefault((member.subgroup, member.shape.number), []).append(member.pod)
    return tuple(PodSet(tuple(pods)) for pods in kinds.values())


def _request_name(gang: Gang, class_name: str, pod_sets: Iterable[PodSet]) -> str:
    shapes = {member.pod.uid: member.shape for member in gang.pending}
    content = [(each.count, sorted(shapes[each.pod.uid].requests.items())) for each in pod_sets]
    text = repr((gang.key, gang.owner.uid, class_name, content))
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{gang.owner.name[:40].rstrip('.-')}-{digest}"


def _provisioned(
    unplaced: Unplaced, desired: DesiredRequest, requests: Mapping[Key, Unstructured]
) -> Unplaced:
    request = requests.get(desired.key)
    state = request_state(request)[1] if request is not None else "it is being created"
    message = f"{unplaced.message.rstrip('.')}; ProvisioningRequest {desired.name}: {state}."
    return structs.replace(unplaced, stage=Stage.PROVISIONING, message=message)
