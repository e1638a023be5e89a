"""Extended resources that DeviceClasses serve, and the claim they become (KEP-5004).

A class serves ``spec.extendedResourceName`` and ``deviceclass.resource.kubernetes.io/NAME``; of
several classes for one name the newest counts, then the lowest by name. A node whose device plugin
reports the resource serves it as before; on any other node the pod gets one claim for all resources
that are missing there:

    container-I-request-J    I: index among init containers and containers, J: index of the
                             resource among those the container names, sorted

Containers and sidecars have requests of their own. A plain init container uses those of the
containers that start after it, which do not run yet, and shares with its like one request for the
largest rest.

A part of a GPU (``kai_py.api.gpu_share``) is a part of what the class for ``nvidia.com/gpu``
selects. Its request is ``gpu-share``, and what it says depends on the GPUs of the node
(``kai_py.dra.divisible_gpus``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from kai_py.api.gpu_reservation import gpu_container
from kai_py.api.gpu_share import GPU_RESOURCE, SHARE_RESOURCE, GpuShare
from kai_py.api.records.core import Container, ContainerExtendedResourceRequest, Pod
from kai_py.api.records.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from kai_py.snapshot.resources import amount

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
SHARE_REQUEST = "gpu-share"
"""The request of a claim for parts of GPUs."""

ClassFor = Callable[[str], str]
"""The DeviceClass that serves a resource, or ""."""


class ExtendedRequest(Struct, frozen=True):
    """``count`` devices of a class, in place of as many units of a resource.

    ``part``: of each of them only this; None for whole devices.
    """

    name: str
    resource: str
    device_class: str
    count: int
    part: GpuShare | None = None


class ExtendedResources(Struct, frozen=True):
    """Requests of a pod for resources that a class serves, and the containers that use them."""

    requests: tuple[ExtendedRequest, ...] = ()
    container_uses: tuple[ContainerExtendedResourceRequest, ...] = ()
    resources: tuple[str, ...] = ()
    """Names, sorted."""

    @property
    def share(self) -> ExtendedRequest | None:
        """The request for parts of GPUs, if any."""
        return next((each for each in self.requests if each.part is not None), None)

    def claim_spec(self, missing: Collection[str]) -> ResourceClaimSpec:
        """The claim for a node that reports none of ``missing``, but for the parts of GPUs."""
        requests = tuple(
            DeviceRequest(
                name=each.name,
                exactly=ExactDeviceRequest(device_class_name=each.device_class, count=each.count),
            )
            for each in self.requests
            if each.resource in missing and each.part is None
        )
        return ResourceClaimSpec(devices=DeviceClaim(requests=requests))


NO_EXTENDED_RESOURCES = ExtendedResources()


def resource_names(device_class: DeviceClass) -> tuple[str, ...]:
    """The extended resources that a class serves unless another class does."""
    explicit = device_class.spec.extended_resource_name
    return (*((explicit,) if explicit else ()), IMPLICIT_PREFIX + device_class.metadata.name)


def classes_by_resource(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """Resource to the class that serves it."""
    by_name = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    oldest_first = sorted(by_name, key=_created)
    return {
        resource: device_class.metadata.name
        for device_class in oldest_first
        for resource in resource_names(device_class)
    }


def extended_resources(
    pod: Pod, class_for: ClassFor, share: GpuShare | None = None
) -> ExtendedResources:
    """The requests of ``pod`` for such resources, and for ``share``, its part of GPUs.

    Raises QuantityError for a malformed quantity.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    named = {name for each in containers for name in _resource_amounts(each)}
    if share is not None:
        named.discard(SHARE_RESOURCE)
    classes = {
        resource: device_class
        for resource in sorted(named)
        if "/" in resource and (device_class := class_for(resource))
    }
    requests: list[ExtendedRequest] = []
    uses: list[ContainerExtendedResourceRequest] = []
    for resource, device_class in classes.items():
        new_requests, new_uses = _requests_for(pod, resource, device_class)
        requests += new_requests
        uses += new_uses
    if share is not None and requests_share_by_name(pod) and (gpu_class := class_for(GPU_RESOURCE)):
        requests.append(
            ExtendedRequest(SHARE_REQUEST, GPU_RESOURCE, gpu_class, share.devices, share)
        )
        uses.append(
            ContainerExtendedResourceRequest(gpu_container(pod), SHARE_RESOURCE, SHARE_REQUEST)
        )
    if not requests:
        return NO_EXTENDED_RESOURCES
    return ExtendedResources(
        requests=tuple(sorted(requests, key=lambda each: each.name)),
        container_uses=tuple(uses),
        resources=tuple(sorted({each.resource for each in requests})),
    )


def requests_share_by_name(pod: Pod) -> bool:
    """Whether the container that uses the parts of GPUs requests them by name."""
    name = gpu_container(pod)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(
        int(amount(SHARE_RESOURCE, _resource_amounts(each).get(SHARE_RESOURCE, 0))) > 0
        for each in containers
        if each.name == name
    )


def _requests_for(
    pod: Pod, resource: str, device_class: str
) -> tuple[list[ExtendedRequest], list[ContainerExtendedResourceRequest]]:
    """The requests for one resource, and which container uses which of them."""
    lasting: dict[int, ExtendedRequest] = {}
    passing: list[tuple[int, Container, int]] = []
    uses: list[ContainerExtendedResourceRequest] = []
    for index, container, count in _requesting_containers(pod, resource):
        if _ends_before_others_start(pod, index):
            passing.append((index, container, count))
            continue
        name = _request_name(index, container, resource)
        lasting[index] = ExtendedRequest(name, resource, device_class, count)
        uses.append(ContainerExtendedResourceRequest(container.name, resource, name))
    rest, rest_name = 0, ""
    sharing: list[Container] = []
    for index, container, count in passing:
        left = count
        for later in (each for at, each in lasting.items() if at > index):
            if left > 0:
                uses.append(ContainerExtendedResourceRequest(container.name, resource, later.name))
                left -= later.count
        if left > 0:
            sharing.append(container)
        if left > rest:
            rest, rest_name = left, _request_name(index, container, resource)
    uses += [ContainerExtendedResourceRequest(each.name, resource, rest_name) for each in sharing]
    own = [ExtendedRequest(rest_name, resource, device_class, rest)] if rest else []
    return [*own, *lasting.values()], uses


def _requesting_containers(pod: Pod, resource: str) -> Iterator[tuple[int, Container, int]]:
    """Index, container and amount of the containers that request a resource."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for index, container in enumerate(containers):
        count = int(amount(resource, _resource_amounts(container).get(resource, 0)))
        if count > 0:
            yield index, container, count


def _ends_before_others_start(pod: Pod, index: int) -> bool:
    starting = pod.spec.init_containers
    return index < len(starting) and starting[index].restart_policy != "Always"


def _request_name(index: int, container: Container, resource: str) -> str:
    return f"container-{index}-request-{sorted(_resource_amounts(container)).index(resource)}"


def _resource_amounts(container: Container) -> Mapping[str, str | int | float]:
    return {**container.resources.limits, **container.resources.requests}


def _created(device_class: DeviceClass) -> float:
    created = device_class.metadata.creation_timestamp
    return created.timestamp() if created else 0.0
