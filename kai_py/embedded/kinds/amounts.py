"""Amounts of resources that pods ask for and nodes have.

Source: k8s.io/kubernetes pkg/apis/core/validation (``validateResourceRequirements``,
``validateContainerResourceName``, ``ValidateResourceQuantityValue``) and pkg/apis/core/v1/helper
(``IsOvercommitAllowed``).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, invalid_value, required

CONTAINER_LISTS = ("initContainers", "containers")
_SIDES = ("limits", "requests")
_WHOLE = frozenset({"pods"})
STANDARD = ("cpu", "memory", "ephemeral-storage")
"""Resources without a domain that containers may request, besides huge pages."""
HUGE_PAGES = "hugepages-"


def pod_amount_errors(spec: Json, path: str) -> list[FieldError]:
    """The errors of the amounts in a pod spec at ``path``.

    Missing limits are no error here: ``missing_limits`` reports them.
    """
    errors = requirement_errors(spec.get("resources") or {}, f"{path}.resources")
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            resources = (container or {}).get("resources") or {}
            errors += requirement_errors(resources, f"{path}.{field}[{index}].resources")
    return [*errors, *_value_errors(spec.get("overhead") or {}, path + ".overhead[{}]")]


def node_amount_errors(status: Json) -> list[FieldError]:
    """The amounts of a node that an API server refuses."""
    return [
        error
        for field in ("capacity", "allocatable")
        for error in _value_errors(status.get(field) or {}, "status." + field + ".{}")
    ]


def requirement_errors(resources: Json, path: str) -> list[FieldError]:
    """Amounts of a container that are impossible by themselves, or beside each other."""
    errors: list[FieldError] = []
    for side in _SIDES:
        amounts, item_path = resources.get(side) or {}, f"{path}.{side}" + "[{}]"
        if not all(_is_possible(name, amount) for name, amount in amounts.items()):
            errors += _name_errors(amounts, item_path)
            errors += _value_errors(amounts, item_path)
    limits, requests = (resources.get(side) or {} for side in _SIDES)
    for name, amount in requests.items():
        if name not in limits or limits[name] == amount:
            continue
        try:
            requested, limit = parse_quantity(amount), parse_quantity(limits[name])
        except QuantityError:
            continue
        if requested != limit and not _may_overcommit(name):
            rule = f"must be equal to {name} limit of {limit}"
        elif requested > limit:
            rule = f"must be less than or equal to {name} limit of {limit}"
        else:
            continue
        errors.append(invalid_value(f"{path}.requests", str(requested), rule))
    return errors


def missing_limits(resources: Json, path: str) -> list[FieldError]:
    """Requests that need a limit and have none."""
    limits = resources.get("limits") or {}
    return [
        required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        for name in resources.get("requests") or {}
        if name not in limits and not _may_overcommit(name)
    ]


def with_limits(container: Json) -> Json:
    """The container with a limit for each request that needs one and has none."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    missing = {
        n: each for n, each in requests.items() if n not in limits and not _may_overcommit(n)
    }
    if not missing:
        return container
    return {**container, "resources": {**resources, "limits": {**limits, **missing}}}


def is_of_containers(resource: str) -> bool:
    """Whether an API server accepts requests of a container for the resource."""
    return "/" in resource or resource in STANDARD or resource.startswith(HUGE_PAGES)


@lru_cache(maxsize=4096, typed=True)
def _is_possible(name: str, amount: str | int | float | None) -> bool:
    """Whether a container may have the amount; most pods have amounts of which many have some."""
    return not [*_name_errors([name], ""), *_value_errors({name: amount}, "")]


def _name_errors(names: Iterable[str], path: str) -> Iterator[FieldError]:
    for name in names:
        if not is_of_containers(name):
            rule = "must be a standard resource type or fully qualified"
            yield invalid_value(path.replace("{}", name), name, rule)


def _value_errors(
    amounts: Mapping[str, str | int | float | None], path: str
) -> Iterator[FieldError]:
    """``path``: of an amount, with braces for the name of its resource."""
    for name, value in _set(amounts).items():
        item_path = path.replace("{}", name)
        try:
            quantity = parse_quantity(value)
        except QuantityError as error:
            yield invalid_value(item_path, value, str(error))
            continue
        if quantity.nano < 0:
            yield invalid_value(item_path, str(quantity), "must be greater than or equal to 0")
        elif not quantity.is_integer() and (name in _WHOLE or not _is_native(name)):
            yield invalid_value(item_path, str(quantity), "must be an integer")


def _set(amounts: Mapping[str, str | int | float | None]) -> dict[str, str | int | float]:
    """Null is the empty value of Go, as if it were absent."""
    return {name: value for name, value in amounts.items() if value is not None}


def _is_native(resource: str) -> bool:
    return "/" not in resource or "kubernetes.io/" in resource


def _may_overcommit(resource: str) -> bool:
    return _is_native(resource) and not resource.startswith(HUGE_PAGES)
