"""Effective requests of a pod, in row units (cpu in millicores, everything else in base units).

The rule is Kubernetes' own (resource helpers, KEP-753 sidecars, KEP-2837 pod-level resources):
containers and sidecars run together; a plain init container runs beside the sidecars started
before it; the pod asks for the larger of both, per resource. Pod-level requests replace the sum
where they are set. Overhead comes on top, and every pod takes one of the node's pod slots. The mark
of a pod that shares GPUs is no amount of anything.
"""

from collections.abc import Mapping

import msgspec

from kai_py.api.gpu_share import SHARE_RESOURCE, requests_gpu_share
from kai_py.api.records.core import Container, Pod, ResourceRequirements
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
    """What is wrong with a pod that requests as much of a resource as is counted at most, or ""."""
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
