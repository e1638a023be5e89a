"""Rules on the structure and the values of device requests, as in ``resource.k8s.io/v1``.

    requests:
    - name: gpu
      exactly: {deviceClassName, selectors, allocationMode, count, adminAccess, capacity, ...}
    - name: any
      firstAvailable: [{name, deviceClassName, selectors, ...}]

In v1beta1 the fields were on the request itself, and articles still write them there; today's API
drops them. Where both places have a field, the one under ``exactly`` is what the API keeps; lists
(selectors, tolerations) are joined, since all of them were meant.
"""

import re
from collections.abc import Iterator
from typing import Any

from kai_py.api.manifests import LineMapping
from kai_py.api.name_patterns import DNS_LABEL
from kai_py.api.numbers import parse_int64
from kai_py.api.problems import FieldPath
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.lint.cel.published import published
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    mapping_at,
    mapping_at_line,
    mappings_at,
    move,
    rename,
    set_key,
    unknown_fields,
)
from kai_py.lint.rewrite import same_value
from kai_py.lint.rules.claims import driver_of_class, spec_path

SUBREQUEST_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
EXACT_FIELDS = (*SUBREQUEST_FIELDS, "adminAccess")


def requests(manifest: Manifest) -> Iterator[Finding]:
    """Convert every request of a claim or template to today's form."""
    path = spec_path(manifest)
    if path is None:
        return
    path = (*path, "devices", "requests")
    for index, request in mappings_at(manifest.value, *path):
        yield from _request(manifest, request, (*path, index))


def _request(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    known = ("name", "exactly", "firstAvailable", *EXACT_FIELDS)
    yield from unknown_fields(manifest, request, path, known)
    if not request.get("name"):
        name = f"request-{path[-1]}"
        yield manifest.error(path, f"a request needs a name: write name: {name}", fixed=True)
        set_key(request, "name", name)
    yield from _label(manifest, request, path)
    if "firstAvailable" in request:
        yield from _alternatives(manifest, request, path)
    else:
        yield from _exactly(manifest, request, path)


def _label(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    name = request["name"]
    if not (isinstance(name, str) and re.fullmatch(DNS_LABEL, name)):
        message = f"{name!r} is not a valid request name: lower-case letters, digits and '-' only"
        yield manifest.error((*path, "name"), message)


def _exactly(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    flat = [key for key in request if key in EXACT_FIELDS]
    nested = isinstance(request.get("exactly"), LineMapping)
    old = manifest.api_version.endswith(("/v1beta1", "/v1alpha3"))
    if not flat and not nested:
        message = "requests nothing: it needs exactly (or firstAvailable) with a deviceClassName"
        yield manifest.error(path, message)
        return
    if nested and old:
        message = "v1beta1 has no exactly and drops it; v1 has"
        yield manifest.error((*path, "exactly"), message, fixed=True)
    if flat and not old:
        message = (
            f"a request itself has no {', '.join(flat)}, the API drops it: write it under exactly"
        )
        yield manifest.error((*path, flat[0]), message, fixed=True)
    exact = request["exactly"] if nested else mapping_at_line(request.line)
    for key in flat:
        yield from _move_field(manifest, request, exact, key, path)
    _class_first(exact)
    set_key(request, "exactly", exact)
    yield from unknown_fields(manifest, exact, (*path, "exactly"), EXACT_FIELDS)
    yield from correct_values(manifest, exact, (*path, "exactly"))


def _move_field(
    manifest: Manifest, source: LineMapping, target: LineMapping, key: str, path: FieldPath
) -> Iterator[Finding]:
    """Move a field into a mapping that may have it already."""
    if key not in target:
        move(source, target, key)
        return
    if isinstance(source[key], list) and isinstance(target[key], list):
        target[key].extend(item for item in source[key] if item not in target[key])
    elif not same_value(source[key], target[key]):
        message = f"is {source[key]!r} here and {target[key]!r} under exactly; the API keeps that"
        yield manifest.error((*path, key), message, fixed=True)
    del source[key]


def _alternatives(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    if "exactly" in request:
        yield manifest.error(path, "has both exactly and firstAvailable: keep one")
        return
    common = [key for key in request if key in EXACT_FIELDS]
    if common:
        message = f"{', '.join(common)} next to firstAvailable is dropped: each entry has its own"
        yield manifest.error((*path, common[0]), message, fixed=True)
    for index, entry in mappings_at(request, "firstAvailable"):
        if entry.get("name"):
            yield from _label(manifest, entry, (*path, "firstAvailable", index))
        entry_path = (*path, "firstAvailable", index)
        if isinstance(entry.get("exactly"), LineMapping):
            message = (
                "an entry of firstAvailable has no exactly: its fields belong to the entry itself"
            )
            yield manifest.error((*entry_path, "exactly"), message, fixed=True)
            inner = entry.pop("exactly")
            for key in list(inner):
                move(inner, entry, key)
        for key in common:
            _default(entry, key, request[key])
        if "adminAccess" in entry:
            message = "adminAccess cannot be requested in firstAvailable: use exactly"
            yield manifest.error((*entry_path, "adminAccess"), message)
        known = ("name", *EXACT_FIELDS)
        yield from unknown_fields(manifest, entry, entry_path, known)
        yield from correct_values(manifest, entry, entry_path)
    for key in common:
        del request[key]


def _default(entry: LineMapping, key: str, value: object) -> None:
    if isinstance(value, list) and isinstance(entry.get(key), list):
        entry[key].extend(item for item in value if item not in entry[key])
    elif key not in entry:
        set_key(entry, key, value)


def _class_first(exact: LineMapping) -> None:
    """Put the class first, as is customary."""
    if "deviceClassName" in exact:
        rest = {key: value for key, value in exact.items() if key != "deviceClassName"}
        name = exact["deviceClassName"]
        exact.clear()
        exact.update({"deviceClassName": name}, **rest)


def request_at(manifest: Manifest, path: FieldPath) -> tuple[LineMapping, ...]:
    """The mappings that may hold a selector's class: its alternative, exactly, the request."""
    if "requests" not in path:
        return ()
    start = path.index("requests") + 2
    request = mapping_at(manifest.value, *path[:start])
    exact = mapping_at(request, "exactly")
    if "firstAvailable" in path:
        alternative = mapping_at(manifest.value, *path[: start + 2])
        return (alternative, mapping_at(alternative, "exactly"), request)
    return (exact, request)


_MODES = {"exactcount": "ExactCount", "exact": "ExactCount", "count": "ExactCount", "all": "All"}
_MAX_DEVICES = 32


def correct_values(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    """Check and correct the fields of one ``exactly`` or one alternative."""
    if not request.get("deviceClassName"):
        message = "names no deviceClassName, which the API requires"
        yield manifest.error(path, message)
    yield from _types(manifest, request, path)
    yield from _mode_and_count(manifest, request, path)
    if "capacity" in request:
        yield from _capacity(manifest, request, path)


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
    elif count == 0 and not isinstance(count, bool):
        yield manifest.hint((*path, "count"), "0 is read as 1: write how many devices you need")
    elif count is not None and not (_is_whole(count) and 0 < count <= _MAX_DEVICES):
        message = f"{count!r} devices are not possible: 1 to {_MAX_DEVICES} in one claim"
        yield manifest.error((*path, "count"), message)


def _is_whole(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool)


def _capacity(manifest: Manifest, request: LineMapping, path: FieldPath) -> Iterator[Finding]:
    capacity, path = mapping_at(request, "capacity"), (*path, "capacity")
    if capacity and "requests" not in capacity:
        message = f"{', '.join(capacity)} must be under capacity.requests"
        yield manifest.error((*path, next(iter(capacity))), message, fixed=True)
        requests = mapping_at_line(capacity.line)
        for key in list(capacity):
            move(capacity, requests, key)
        set_key(capacity, "requests", requests)
    requests, path = mapping_at(capacity, "requests"), (*path, "requests")
    driver = driver_of_class(manifest, str(request.get("deviceClassName", "")))
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
    return parse_int64(text.strip()) if text.strip()[:1].isdigit() else None


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())
