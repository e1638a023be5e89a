"""Pods that are resized in place: what they take of their nodes, whatever their spec asks for.

Requests of a running pod may be edited. Until the kubelet has done what the spec asks for, the pod
has what its status shows. So it counts with the larger of the two, as in kube-scheduler: what it
gives up is not free before the kubelet says so. What the kubelet calls infeasible never comes, and
does not count: otherwise a pod could close its node to all others by asking for all of it.

Source: KEP-1287, KEP-5419 (resources of the pod as a whole); ``PodRequests`` with
``UseStatusResources`` of k8s.io/component-helpers.
"""

from collections.abc import Iterable, Mapping

from msgspec import structs

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Container, ContainerStatus, Pod, PodStatus, ResourceRequirements
from kai_py.api.records.record import QuantityText
from kai_py.grouping.admitted import RESIZABLE
from kai_py.snapshot.requests import is_sidecar
from kai_py.snapshot.resources import amount

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
