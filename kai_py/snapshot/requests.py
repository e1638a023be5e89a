"""Effective requests of a pod, in row units (cpu in millicores, everything else in base units).

The rule is Kubernetes' own (resource helpers, KEP-753 sidecars, KEP-2837 pod-level resources):
containers and sidecars run together; a plain init container runs beside the sidecars started
before it; the pod asks for the larger of both, per resource. Pod-level requests replace the sum
where they are set. Overhead comes on top, and every pod takes one of the node's pod slots. The mark
of a pod that shares GPUs is no amount of anything.
"""

from collections.abc import Mapping

from kai_py.api.gpu_share import SHARE_RESOURCE, requests_gpu_share
from kai_py.api.records.core import Container, Pod, QuantityText, ResourceRequirements
from kai_py.snapshot.accounting import total
from kai_py.snapshot.resources import amounts, largest_amount

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
    return {name: min(amount, largest_amount(name)) for name, amount in requests.items() if amount}


def excessive_request(requests: Mapping[str, float]) -> str:
    """What is wrong with a pod that requests as much of a resource as is counted at most, or ""."""
    for name, amount in requests.items():
        if amount >= largest_amount(name):
            shown = amount / 1000 if name == "cpu" else amount
            return f"it requests {shown:.0f} or more of {name}, which no node can have"
    return ""


def effective_requests(resources: ResourceRequirements) -> Amounts:
    """The requests of a container: a limit without a request is a request. Raises QuantityError."""
    if not resources.requests and not resources.limits:
        return {}
    merged: dict[str, QuantityText] = {**resources.limits, **resources.requests}
    return amounts(merged)


def is_sidecar(container: Container) -> bool:
    """Whether an init container goes on to run beside the others."""
    return container.restart_policy == "Always"


def elementwise_max(left: Amounts, right: Amounts) -> Amounts:
    """The larger of both, per resource."""
    return {name: max(left.get(name, 0.0), right.get(name, 0.0)) for name in left | right}
