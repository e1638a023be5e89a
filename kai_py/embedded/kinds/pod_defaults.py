"""Fields that an API server sets on a new pod: from its other fields, and from other objects.

Host ports and requests follow from fields of the pod itself; templates stay as they were written.
Priority, overhead, constraints on nodes and amounts that containers leave open follow from its
PriorityClass, its RuntimeClass and the LimitRanges of its namespace.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (``SetDefaults_Pod``), KEP-2837;
plugin/pkg/admission (``priority``, ``runtimeclass``, ``limitranger``).
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from kai_py.api.quantity import Quantity, QuantityError, parse_quantity
from kai_py.embedded.documents import Json, clone, name_of, namespace_of
from kai_py.embedded.errors import RequestError, forbidden
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS
from kai_py.embedded.store import Store

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"
LIMIT_RANGES = "limitranges"

Amounts = dict[str, Quantity]


def default_from_other_fields(spec: Json) -> None:
    """Set host ports on the host's network, and requests where there are limits.

    Fields of ``spec`` are replaced; what they held is not changed.
    """
    for field in CONTAINER_LISTS:
        if containers := spec.get(field):
            on_host = bool(spec.get("hostNetwork"))
            spec[field] = [_with_defaults(each, on_host=on_host) for each in containers]
    if whole := spec.get("resources"):
        spec["resources"] = _with_pod_level_requests(whole, spec)


def _with_defaults(container: Json, *, on_host: bool) -> Json:
    """``on_host``: whether the pod uses the host's network."""
    if on_host and (ports := container.get("ports")):
        container = {**container, "ports": list(map(_with_host_port, ports))}
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = {**limits, **(resources.get("requests") or {})}
        container = {**container, "resources": {**resources, "requests": requests}}
    return container


def _with_host_port(port: Json) -> Json:
    if port.get("containerPort") and not port.get("hostPort"):
        return {**port, "hostPort": port["containerPort"]}
    return port


def _with_pod_level_requests(whole: Json, spec: Json) -> Json:
    """The pod's resources with the requests of its containers, else with its own limits.

    Amounts that cannot be read are left to validation.
    """
    limits = whole.get("limits")
    if not limits:
        return whole
    requests = {name: each for name, each in limits.items() if name.startswith("hugepages-")}
    requests |= {name: limits[name] for name in ("cpu", "memory") if name in limits}
    with suppress(QuantityError):
        requests |= {name: str(each) for name, each in _of_containers(spec).items()}
    return {**whole, "requests": requests | (whole.get("requests") or {})}


def _of_containers(spec: Json) -> Amounts:
    """The requests of all containers that run or start at the same time, together."""
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


def admit_pod(pod: Json, store: Store) -> None:
    """Complete a new pod; raises RequestError where the API server refuses it."""
    set_default_amounts(pod, store)
    set_priority(pod, store)
    follow_runtime_class(pod, store)


def set_priority(pod: Json, store: Store) -> None:
    """Set the priority and whether the pod may preempt, as its PriorityClass says."""
    spec = pod["spec"]
    found = _priority_class(spec, store)
    if found is None and spec.get("priorityClassName"):
        raise _refused(pod, f"no PriorityClass with name {spec['priorityClassName']} was found")
    value = found["value"] if found else 0
    if spec.get("priority", value) != value:
        reason = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise _refused(pod, reason)
    if found:
        spec["priorityClassName"] = name_of(found)
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    spec.setdefault("preemptionPolicy", policy)


def _priority_class(spec: Json, store: Store) -> Json | None:
    if name := spec.get("priorityClassName"):
        return store.get(PRIORITY_CLASSES, "", name)
    classes = [each for each in store.list(PRIORITY_CLASSES) if each.get("globalDefault")]
    return min(classes, key=lambda each: (each["value"], name_of(each)), default=None)


def follow_runtime_class(pod: Json, store: Store) -> None:
    """Set overhead, node selector and tolerations as the pod's RuntimeClass says.

    A class that does not exist changes nothing: schedulers do not read RuntimeClasses, so copies of
    clusters lack them.
    """
    spec = pod["spec"]
    found = store.get(RUNTIME_CLASSES, "", str(spec.get("runtimeClassName") or ""))
    if found is None:
        return
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") and _amounts(spec["overhead"]) != _amounts(overhead):
            raise _refused(
                pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            )
        spec["overhead"] = clone(overhead)
    scheduling = found.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            reason = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise _refused(pod, reason)
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [each for each in scheduling.get("tolerations") or () if each not in tolerations]
    for field, value in (("nodeSelector", selector), ("tolerations", tolerations)):
        if value:
            spec[field] = value


def _amounts(amounts: Mapping[str, str | int | float | None]) -> Mapping[str, object]:
    """Amounts that can be compared; those that can't be read are left to validation."""
    try:
        return {name: parse_quantity(value) for name, value in amounts.items()}
    except QuantityError:
        return amounts


def set_default_amounts(pod: Json, store: Store) -> None:
    """Set amounts that containers leave open to the defaults of the namespace's LimitRanges."""
    for limit_range in store.list(LIMIT_RANGES, namespace_of(pod)):
        for item in limit_range["spec"].get("limits") or ():
            if item.get("type") == "Container":
                _set_amounts(pod["spec"], item)


def _set_amounts(spec: Json, item: Json) -> None:
    for container in (each for field in CONTAINER_LISTS for each in spec.get(field) or ()):
        resources = container.get("resources") or {}
        for side, defaults in (("limits", "default"), ("requests", "defaultRequest")):
            amounts = {**(item.get(defaults) or {}), **(resources.get(side) or {})}
            if amounts:
                container["resources"] = resources = {**resources, side: amounts}


def default_limit_range(limit_range: Json) -> None:
    """Set the defaults for containers that follow from the largest and smallest amounts."""
    for item in limit_range.setdefault("spec", {}).get("limits") or ():
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item.update({"default": limits, "defaultRequest": requests})


def _refused(pod: Json, reason: str) -> RequestError:
    return forbidden("pods", pod["metadata"].get("name", ""), reason)
