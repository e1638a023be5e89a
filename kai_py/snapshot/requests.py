"""What a pod asks of a node, in row units (cpu in millicores, everything else in base units).

The rule is Kubernetes' own (resource helpers, KEP-753 sidecars, KEP-2837 pod-level resources):
containers and sidecars run together; a plain init container runs beside the sidecars started
before it; the pod asks for the larger of both, per resource. Pod-level requests replace the sum
where they are set. Overhead comes on top, and every pod takes one of the node's pod slots.
"""

from collections.abc import Iterable, Mapping

from kai_py.api.records.core import Container, Pod, QuantityText, Resources
from kai_py.snapshot.resources import amounts

Amounts = dict[str, float]


def pod_requests(pod: Pod) -> Amounts:
    """Requests of ``pod`` by resource name; raises QuantityError for a malformed quantity."""
    spec = pod.spec
    running = _sum(_effective(container.resources) for container in spec.containers)
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers:
        own = _effective(container.resources)
        if _is_sidecar(container):
            sidecars = _sum((sidecars, own))
            starting = _max(starting, sidecars)
        else:
            starting = _max(starting, _sum((sidecars, own)))
    total = _max(_sum((running, sidecars)), starting)
    if spec.resources is not None:
        total |= _effective(spec.resources)
    total = _sum((total, amounts(spec.overhead)))
    total["pods"] = 1.0
    return {name: amount for name, amount in total.items() if amount}


def _effective(resources: Resources) -> Amounts:
    if not resources.requests and not resources.limits:
        return {}
    merged: Mapping[str, QuantityText] = {**resources.limits, **resources.requests}
    return amounts(merged)


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _max(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, 0.0), right.get(name, 0.0)) for name in left | right}
