"""What of a pod is aligned to NUMA zones, and the zones of a running pod.

The kubelet's resource managers align of a Guaranteed pod whole CPUs, memory and huge pages, and of
every pod what device plugins hand out. Everything else may come from any zone. Amounts of pod-level
``resources`` are not aligned.

The zones of a running pod are in the annotation that KAI's exporter writes:

    kai.scheduler/numa-placement-observed: '[{"zone": "node-0", "amount": {"cpu": "3"}}]'
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Container, Pod
from kai_py.api.records.record import QuantityText
from kai_py.snapshot.accounting import total
from kai_py.snapshot.requests import Amounts, effective_requests, elementwise_max, is_sidecar
from kai_py.snapshot.resources import amounts

OBSERVED_ZONES_KEY = "kai.scheduler/numa-placement-observed"
MILLICORES = 1000.0
GUARANTEED_RESOURCES = ("cpu", "memory")

ZoneAmounts = tuple[tuple[str, Mapping[str, float]], ...]
"""Zones by name, and what a pod has of each."""


class Alignment(Struct, frozen=True):
    """What is aligned, in row units: of the pod as a whole, and container by container.

    ``starting``: init containers, each alone. ``running``: those that run together, in order.
    """

    pod: Mapping[str, float]
    starting: tuple[Mapping[str, float], ...] = ()
    running: tuple[Mapping[str, float], ...] = ()


def alignment(pod: Pod) -> Alignment | None:
    """The requests of ``pod`` that are aligned; None if none is. Raises QuantityError."""
    spec = pod.spec
    guaranteed = is_guaranteed(pod)
    sidecars = [_aligned(c, guaranteed=guaranteed) for c in spec.init_containers if is_sidecar(c)]
    starting = [
        _aligned(c, guaranteed=guaranteed) for c in spec.init_containers if not is_sidecar(c)
    ]
    running = [*sidecars, *(_aligned(c, guaranteed=guaranteed) for c in spec.containers)]
    whole = total(running)
    for each in starting:
        whole = elementwise_max(whole, each)
    if not whole:
        return None
    return Alignment(whole, tuple(filter(None, starting)), tuple(filter(None, running)))


def is_guaranteed(pod: Pod) -> bool:
    """Whether the pod's QoS class is Guaranteed, by the resources of its containers."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return pod.spec.resources is None and all(map(_is_guaranteed, containers))


def observed_zones(pod: Pod) -> ZoneAmounts:
    """The amounts that the pod got of each zone; () if nothing readable is reported."""
    text = pod.metadata.annotations.get(OBSERVED_ZONES_KEY)
    if not text:
        return ()
    try:
        listed = msgspec.json.decode(text.encode(), type=list[_ObservedZone])
        return tuple((each.zone, amounts(each.amount)) for each in listed)
    except (msgspec.MsgspecError, QuantityError):
        return ()


class _ObservedZone(msgspec.Struct, frozen=True):
    zone: str
    amount: dict[str, QuantityText] = {}


def _is_guaranteed(container: Container) -> bool:
    limits = amounts(container.resources.limits)
    requests = effective_requests(container.resources)
    return all(
        limits.get(name, 0.0) > 0 and requests[name] == limits[name]
        for name in GUARANTEED_RESOURCES
    )


def _aligned(container: Container, *, guaranteed: bool) -> Amounts:
    requests = effective_requests(container.resources)
    return {n: a for n, a in requests.items() if a and _is_aligned(n, a, guaranteed=guaranteed)}


def _is_aligned(name: str, requested: float, *, guaranteed: bool) -> bool:
    if name == "cpu":
        return guaranteed and requested % MILLICORES == 0
    if name == "memory" or name.startswith("hugepages-"):
        return guaranteed
    return "/" in name
