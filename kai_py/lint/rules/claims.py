"""Rules on the structure of claims, templates and classes, above the requests.

Some depend on the driver whose devices a class selects: it is read from the class's selectors in
the file, else from its name.
"""

import re
from collections.abc import Iterator

from kai_py.api.manifests import LineMapping, LineSequence
from kai_py.api.problems import FieldPath
from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM
from kai_py.lint.cel.correct import domains, guarded_driver
from kai_py.lint.cel.published import DRIVER_OF_CLASS, MISTAKEN_DOMAINS, published
from kai_py.lint.manifest import (
    RESOURCE_GROUP,
    Finding,
    Manifest,
    at,
    mapping_at,
    mapping_at_line,
    mappings_at,
    move,
    set_key,
    text_at,
    unknown_fields,
)

_DRIVER_LIKE = re.compile(r"gpu\.[a-z0-9-]+(\.[a-z]+)+")


def driver_of_class(manifest: Manifest, name: str) -> str | None:
    """The driver of a DeviceClass, None if it is unknown."""
    for each in manifest.all_of(RESOURCE_GROUP, "DeviceClass"):
        if each.name == name:
            return driver_of_selectors(class_selectors(each)) or DRIVER_OF_CLASS.get(name)
    if name in DRIVER_OF_CLASS:
        return DRIVER_OF_CLASS[name]
    return name if _DRIVER_LIKE.fullmatch(name) else None


def driver_of_selectors(sources: list[str]) -> str | None:
    """The driver that selectors require, or whose names they use; None if neither."""
    guards = [driver for source in sources if (driver := guarded_driver(source))]
    used = [domain for source in sources for domain in domains(source) if "." in domain]
    drivers = [MISTAKEN_DOMAINS.get(name, name) for name in (*guards, *used)]
    return next((name for name in drivers if not name.endswith("kubernetes.io")), None)


def class_selectors(manifest: Manifest) -> list[str]:
    """The selectors of a DeviceClass."""
    found = mappings_at(manifest.value, "spec", "selectors")
    return [text_at(selector, "cel", "expression") for _, selector in found]


_DEVICES = ("requests", "constraints", "config")
_CONSTRAINT = ("requests", "matchAttribute", "distinctAttribute")
_CONFIG = ("requests", "opaque")
_CLASS = ("selectors", "config", "extendedResourceName")


def spec_path(manifest: Manifest) -> FieldPath | None:
    """Path of the claim's spec in a ResourceClaim or ResourceClaimTemplate, else None."""
    if manifest.is_a(RESOURCE_GROUP, "ResourceClaim"):
        return ("spec",)
    if manifest.is_a(RESOURCE_GROUP, "ResourceClaimTemplate"):
        return ("spec", "spec")
    return None


def levels(manifest: Manifest) -> Iterator[Finding]:
    """A claim has spec.devices, a template spec.spec.devices, a class no requests at all."""
    spec = mapping_at(manifest.value, "spec")
    inner = mapping_at(spec, "spec")
    if manifest.is_a(RESOURCE_GROUP, "ResourceClaimTemplate") and "spec" not in spec:
        if moved := [
            key for key in spec if key in ("devices", "requests", "constraints", "config")
        ]:
            message = "a template holds a claim's spec: devices belongs under spec.spec"
            yield manifest.error(("spec", moved[0]), message, fixed=True)
            set_key(spec, "spec", mapping_at_line(spec.line))
            for key in moved:
                move(spec, spec["spec"], key)
    elif manifest.is_a(RESOURCE_GROUP, "ResourceClaim") and "devices" in inner:
        message = "a claim has spec.devices; spec.spec is for templates"
        yield manifest.error(("spec", "spec"), message, fixed=True)
        del spec["spec"]
        for key in list(inner):
            move(inner, spec, key)
    yield from _devices_level(manifest)


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Constraints, configuration and classes have known fields only."""
    path = spec_path(manifest)
    if manifest.is_a(RESOURCE_GROUP, "DeviceClass"):
        yield from unknown_fields(manifest, mapping_at(manifest.value, "spec"), ("spec",), _CLASS)
    if path is None:
        return
    spec = mapping_at(manifest.value, *path)
    if "resourceClassName" in spec:
        message = "claims by resourceClassName were removed: request devices under devices.requests"
        yield manifest.error((*path, "resourceClassName"), message)
    elif not mappings_at(spec, "devices", "requests"):
        yield manifest.error(path, "requests no device: devices.requests is empty")
    yield from _plain_fields(manifest, (*path, "devices"))


def _devices_level(manifest: Manifest) -> Iterator[Finding]:
    path = spec_path(manifest)
    if path is None:
        return
    spec = mapping_at(manifest.value, *path)
    if loose := [key for key in _DEVICES if key in spec]:
        message = f"{', '.join(loose)} belong under devices"
        yield manifest.error((*path, loose[0]), message, fixed=True)
        set_key(spec, "devices", spec.get("devices") or mapping_at_line(spec.line))
        for key in loose:
            move(spec, spec["devices"], key)
    devices = mapping_at(spec, "devices")
    for key in _DEVICES:
        if isinstance(devices.get(key), LineMapping):
            message = f"{key} is a list: write '- ' before its first field"
            yield manifest.error((*path, "devices", key), message, fixed=True)
            single = LineSequence(devices[key].line)
            single.append(devices[key])
            single.lines.append(devices[key].line)
            devices[key] = single


def _plain_fields(manifest: Manifest, path: FieldPath) -> Iterator[Finding]:
    devices = mapping_at(manifest.value, *path)
    drivers = _drivers(manifest, devices)
    yield from unknown_fields(manifest, devices, path, _DEVICES)
    for key, known in (("constraints", _CONSTRAINT), ("config", _CONFIG)):
        for index, entry in mappings_at(devices, key):
            yield from unknown_fields(manifest, entry, (*path, key, index), known)
    least = sum(_least_count(request) for _, request in mappings_at(devices, "requests"))
    if least > MAX_RESULTS_PER_CLAIM:
        message = (
            f"request at least {least} devices, a claim gets {MAX_RESULTS_PER_CLAIM} at most: "
            "divide them among several claims"
        )
        yield manifest.error((*path, "requests"), message)
    names = {at(request, "name") for _, request in mappings_at(devices, "requests")}
    for key in ("constraints", "config"):
        for index, entry in mappings_at(devices, key):
            for name in entry.get("requests") or ():
                if isinstance(name, str) and name.partition("/")[0] not in names:
                    message = f"names the request {name!r}, which this claim does not have"
                    yield manifest.error((*path, key, index, "requests"), message)
    for index, entry in mappings_at(devices, "constraints"):
        yield from _qualified(manifest, entry, (*path, "constraints", index), drivers)


def _least_count(request: LineMapping) -> int:
    """The devices that a request gets at least; 0 if that depends on the node or is no number."""
    alternatives = [each for _, each in mappings_at(request, "firstAvailable")]
    options = alternatives or [mapping_at(request, "exactly") or request]
    return min(_count(option) for option in options)


def _count(option: LineMapping) -> int:
    if option.get("allocationMode") == "All":
        return 0
    count = option.get("count", 1)
    return count if isinstance(count, int) else 0


def _drivers(manifest: Manifest, devices: LineMapping) -> list[str]:
    """The drivers of the devices that a claim requests, as far as its classes are known."""
    classes = [
        text_at(request, *request_path, "deviceClassName")
        for _, request in mappings_at(devices, "requests")
        for request_path in ((), ("exactly",), ("firstAvailable", 0))
    ]
    found = [driver_of_class(manifest, name) for name in classes if name]
    return [driver for driver in found if driver is not None]


def _qualified(
    manifest: Manifest, constraint: LineMapping, path: FieldPath, drivers: list[str]
) -> Iterator[Finding]:
    """An attribute in a constraint has the domain of its driver."""
    for key in ("matchAttribute", "distinctAttribute"):
        name = constraint.get(key)
        if not isinstance(name, str) or "/" in name:
            continue
        owners = [driver for driver in drivers if name in published(driver).attributes]
        domain = owners[0] if len(set(owners)) == 1 else None
        advice = f"write {domain}/{name}" if domain else "write DRIVER/" + name
        message = f"has no domain, the API rejects it: {advice}"
        yield manifest.error((*path, key), message, fixed=domain is not None)
        if domain:
            set_key(constraint, key, f"{domain}/{name}")
