"""Rules on the values of a request: class, mode, count, capacity."""

from collections.abc import Iterator
from typing import Any

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.lint.cel.published import published
from kai_py.lint.finding import Finding
from kai_py.lint.manifest import (
    Manifest,
    ManifestSet,
    mapping_at,
    mapping_at_line,
    move,
    rename,
    set_key,
)
from kai_py.lint.rules.drivers import driver_of_class

_MODES = {"exactcount": "ExactCount", "exact": "ExactCount", "count": "ExactCount", "all": "All"}
_MAX_DEVICES = 32


def correct_values(
    manifest: Manifest, manifests: ManifestSet, request: LineMapping, path: FieldPath
) -> Iterator[Finding]:
    """Check and correct the fields of one ``exactly`` or one alternative."""
    if not request.get("deviceClassName"):
        message = "names no deviceClassName, which the API requires"
        yield manifest.error(path, message)
    yield from _types(manifest, request, path)
    yield from _mode_and_count(manifest, request, path)
    if "capacity" in request:
        yield from _capacity(manifest, manifests, request, path)


def _types(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    for key, read in (("count", _integer), ("adminAccess", _truth)):
        if key in request and isinstance(request[key], str):
            value = read(request[key])
            if value is not None:
                message = f"is a string: write {str(value).lower()} without quotes"
                yield manifest.error((*path, key), message, fixed=True)
                set_key(request, key, value)


def _mode_and_count(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    mode, count = request.get("allocationMode", "ExactCount"), request.get("count")
    if mode not in ("ExactCount", "All"):
        suggestion = _MODES.get(str(mode).replace("-", "").replace("_", "").lower())
        message = f"{mode!r} is not an allocation mode: write {suggestion or 'ExactCount or All'}"
        yield manifest.error((*path, "allocationMode"), message, fixed=suggestion is not None)
        if suggestion is None:
            return
        set_key(request, "allocationMode", suggestion)
        mode = suggestion
    if mode == "All" and count is not None:
        message = "count is not allowed with allocationMode: All"
        yield manifest.error((*path, "count"), message, fixed=True)
        del request["count"]
    elif count is not None and (not isinstance(count, int) or not 0 < count <= _MAX_DEVICES):
        message = f"{count!r} devices are not possible: 1 to {_MAX_DEVICES} in one claim"
        yield manifest.error((*path, "count"), message)


def _capacity(
    manifest: Manifest, manifests: ManifestSet, request: LineMapping, path: FieldPath
) -> Iterator[Finding]:
    capacity, path = mapping_at(request, "capacity"), (*path, "capacity")
    if capacity and "requests" not in capacity:
        message = f"{', '.join(capacity)} must be under capacity.requests"
        yield manifest.error((*path, next(iter(capacity))), message, fixed=True)
        requests = mapping_at_line(capacity.line)
        for key in list(capacity):
            move(capacity, requests, key)
        set_key(capacity, "requests", requests)
    requests, path = mapping_at(capacity, "requests"), (*path, "requests")
    driver = driver_of_class(manifests, str(request.get("deviceClassName", "")))
    for key in list(requests):
        yield from _amount(manifest, requests[key], (*path, key))
        domain, _, name = key.rpartition("/")
        if driver and domain == driver and name in published(driver).capacities:
            message = (
                f"{driver} publishes {name} without a domain, and keys are compared as written"
            )
            yield manifest.error((*path, key), f"{message}: write {name}", fixed=True)
            rename(requests, key, name)


def _amount(manifest: Manifest, value: Any, path: FieldPath) -> Iterator[Finding]:
    try:
        amount = parse_quantity(value)
    except (QuantityError, TypeError, AttributeError):
        yield manifest.error(path, f"{value!r} is not a quantity: write it like 10Gi")
        return
    if amount.nano < 0:
        yield manifest.error(path, f"{value!r} is negative")


def _integer(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())
