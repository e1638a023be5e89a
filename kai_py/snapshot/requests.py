"""Effective requests of a pod, in row units (cpu in millicores, everything else in base units).

The rule is Kubernetes' own (resource helpers, KEP-753 sidecars, KEP-2837 pod-level resources):
containers and sidecars run together; a plain init container runs beside the sidecars started
before it; the pod asks for the larger of both, per resource. Pod-level requests replace the sum
where they are set. Overhead comes on top, and every pod takes one of the node's pod slots. The mark
of a pod that shares GPUs is no amount of anything.

Requests of a running pod may be edited (resizing in place). Until the kubelet has done what the
spec asks for, the pod has what its status shows. So it counts with the larger of the two, as in
kube-scheduler: what it gives up is not free before the kubelet says so. What the kubelet calls
infeasible never comes, and does not count: otherwise a pod could close its node to all others by
asking for all of it.

Source: KEP-1287, KEP-5419 (resources of the pod as a whole); ``PodRequests`` with
``UseStatusResources`` of k8s.io/component-helpers.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from kai_py.api.gpu_share import SHARE_RESOURCE, requests_gpu_share
from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Container, ContainerStatus, Pod, PodStatus, ResourceRequirements
from kai_py.api.records.record import QuantityText
from kai_py.grouping.admitted import RESIZABLE
from kai_py.snapshot.accounting import total
from kai_py.snapshot.resources import amount, amounts, largest_amount

Amounts = dict[str, float]


def pod_requests(pod: Pod) -> Amounts:
    """Requests of ``pod`` by resource name; raises QuantityError for a malformed quantity."""
    spec = pod.spec
    running = total(effective_requests(container.resources) for container in spec.containers)
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers:
        own = effective_requests(container.resources)
        if is_sidecar(container):
            sidecars = total((sidecars, own))
            starting = elementwise_max(starting, sidecars)
        else:
            starting = elementwise_max(starting, total((sidecars, own)))
    requests = elementwise_max(total((running, sidecars)), starting)
    if spec.resources is not None:
        requests |= effective_requests(spec.resources)
    requests = total((requests, amounts(spec.overhead)))
    requests["pods"] = 1.0
    if requests_gpu_share(pod):
        requests.pop(SHARE_RESOURCE, None)
    return {name: min(each, largest_amount(name)) for name, each in requests.items() if each}


def unused_pod_level(pod: Pod) -> Amounts:
    """What requests of the pod as a whole leave of what its containers request (KEP-2837).

    Claims may take that much of the node for the pod, and no more, of the resources named here.
    """
    stated = pod.spec.resources
    if stated is None:
        return {}
    without = msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, resources=None, overhead={})
    )
    used = pod_requests(without)
    return {name: whole - used.get(name, 0.0) for name, whole in effective_requests(stated).items()}


def claimed_amounts(pod: Pod) -> Amounts:
    """What a pod's claims take of its node beside its requests, by its status.

    Raises QuantityError.
    """
    if not pod.status.node_allocatable_resource_claim_statuses:
        return {}
    found: list[Amounts] = []
    for each in pod.status.node_allocatable_resource_claim_statuses:
        found += [
            amounts(each.resources),
            *({m.name: amount(m.name, m.quantity)} for m in each.mapping),
        ]
        for overhead in each.overhead:
            per_container = amount(overhead.name, overhead.per_container) * len(each.containers)
            found.append({overhead.name: amount(overhead.name, overhead.per_pod) + per_container})
    return beyond_pod_level(total(found), unused_pod_level(pod))


def beyond_pod_level(taken: Mapping[str, float], unused: Mapping[str, float]) -> Amounts:
    """What is added to a pod's requests: nothing of a resource that it requests as a whole."""
    return {name: each for name, each in taken.items() if name not in unused}


def excessive_request(requests: Mapping[str, float]) -> str:
    """The problem of a pod that requests the largest amount that is counted, or ""."""
    for name, requested in requests.items():
        if requested >= largest_amount(name):
            shown = requested / 1000 if name == "cpu" else requested
            return f"it requests {shown:.0f} or more of {name}, which no node can have"
    return ""


def effective_requests(resources: ResourceRequirements) -> Amounts:
    """The requests of a container: a limit without a request is a request. Raises QuantityError."""
    if not resources.requests and not resources.limits:
        return {}
    merged = {**resources.limits, **resources.requests}
    return amounts(merged)


def is_sidecar(container: Container) -> bool:
    """Whether an init container goes on to run beside the others."""
    return container.restart_policy == "Always"


def elementwise_max(left: Amounts, right: Amounts) -> Amounts:
    """The larger of both, per resource."""
    return {name: max(left.get(name, 0.0), right.get(name, 0.0)) for name in left | right}


RESIZE_PENDING = "PodResizePending"
INFEASIBLE = "Infeasible"
WHOLE_POD = ""
"""In place of the name of a container."""

Requests = dict[str, QuantityText]


def as_resized(pod: Pod) -> Pod:
    """``pod`` with the requests that count; the same object unless its spec states others."""
    changed = resized_requests(pod)
    if not changed:
        return pod
    spec = pod.spec
    whole = changed.get(WHOLE_POD)
    return structs.replace(
        pod,
        spec=structs.replace(
            spec,
            containers=tuple(_with_requests(each, changed) for each in spec.containers),
            init_containers=tuple(_with_requests(each, changed) for each in spec.init_containers),
            resources=spec.resources if whole is None else ResourceRequirements(requests=whole),
        ),
    )


def resized_requests(pod: Pod) -> Mapping[str, Requests]:
    """By container, the requests that count where they are not those of the spec."""
    spec, status = pod.spec, pod.status
    if not spec.node_name:
        return {}
    shown: dict[str, ContainerStatus | PodStatus] = {
        each.name: each for each in (*status.container_statuses, *status.init_container_statuses)
    }
    sidecars = (each for each in spec.init_containers if is_sidecar(each))
    stated: dict[str, ResourceRequirements] = {
        each.name: each.resources for each in (*spec.containers, *sidecars) if each.name in shown
    }
    if spec.resources is not None:
        shown[WHOLE_POD], stated[WHOLE_POD] = status, spec.resources
    infeasible = _is_infeasible(status)
    changed = {
        name: _resized(resources, shown[name], infeasible=infeasible)
        for name, resources in stated.items()
        if shown[name].resources is not None
    }
    return {name: requests for name, requests in changed.items() if requests}


def _is_infeasible(status: PodStatus) -> bool:
    pending = (each for each in status.conditions if each.type == RESIZE_PENDING)
    return any(each.reason == INFEASIBLE for each in pending)


def _resized(
    stated: ResourceRequirements, shown: ContainerStatus | PodStatus, *, infeasible: bool
) -> Requests:
    """The requests that count; none where they are those that are stated."""
    wanted = {**stated.limits, **stated.requests}
    given = {} if shown.resources is None else shown.resources.requests
    changed: Requests = {}
    for name in RESIZABLE:
        present = [each[name] for each in (given, shown.allocated_resources) if name in each]
        if present and any(text != wanted.get(name) for text in present):
            own = [] if infeasible or name not in wanted else [wanted[name]]
            changed |= _largest(name, (*own, *present), wanted)
    return {**wanted, **changed} if changed else {}


def _largest(name: str, texts: Iterable[QuantityText], wanted: Requests) -> Requests:
    """The largest of the amounts, unless it is the one that is wanted."""
    try:
        largest = max(texts, key=lambda text: amount(name, text))
        same = name in wanted and amount(name, largest) == amount(name, wanted[name])
    except QuantityError:  # reported where the requests of the spec are read
        return {}
    return {} if same else {name: largest}


def _with_requests(container: Container, changed: Mapping[str, Requests]) -> Container:
    requests = changed.get(container.name)
    if requests is None:
        return container
    resources = structs.replace(container.resources, requests=requests)
    return structs.replace(container, resources=resources)
