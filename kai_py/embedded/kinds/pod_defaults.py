"""Defaults of a pod that follow from its other fields; templates stay as they were written.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (``SetDefaults_Pod``), KEP-2837.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from kai_py.api.quantity import Quantity, QuantityError, parse_quantity
from kai_py.embedded.documents import Json
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS

Amounts = dict[str, Quantity]


def default_from_other_fields(spec: Json) -> None:
    """Set host ports on the host's network, and requests where there are limits."""
    for container in (each for field in CONTAINER_LISTS for each in spec.get(field) or ()):
        for port in container.get("ports") or ():
            if spec.get("hostNetwork") and port.get("containerPort") and not port.get("hostPort"):
                port["hostPort"] = port["containerPort"]
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    _default_pod_level(spec.get("resources") or {}, spec)


def _default_pod_level(whole: Json, spec: Json) -> None:
    """What the containers request, else the limits of the pod as a whole.

    Amounts that cannot be read are left to validation.
    """
    limits = whole.get("limits")
    if not limits:
        return
    requests = {name: each for name, each in limits.items() if name.startswith("hugepages-")}
    requests |= {name: limits[name] for name in ("cpu", "memory") if name in limits}
    with suppress(QuantityError):
        requests |= {name: str(each) for name, each in _of_containers(spec).items()}
    whole["requests"] = requests | (whole.get("requests") or {})


def _of_containers(spec: Json) -> Amounts:
    """What the containers request together, of those that run or start at the same time."""
    running = _sums(map(_requests, spec.get("containers") or ()))
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _sums((sidecars, _requests(container)))
        starting = _larger(starting, own)
        if container.get("restartPolicy") == "Always":
            sidecars = own
    return _larger(_sums((running, sidecars)), starting)


def _requests(container: Json) -> Amounts:
    found = (container.get("resources") or {}).get("requests") or {}
    return {name: parse_quantity(found[name]) for name in ("cpu", "memory") if name in found}


def _sums(amounts: Iterable[Mapping[str, Quantity]]) -> Amounts:
    sums: Amounts = {}
    for each in amounts:
        for name, amount in each.items():
            sums[name] = sums[name] + amount if name in sums else amount
    return sums


def _larger(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Amounts:
    return {**one, **{n: max(each, one[n]) if n in one else each for n, each in other.items()}}
