"""resource.k8s.io: validation of ResourceSlices, DeviceClasses and device selectors.

Limits and texts: k8s.io/kubernetes pkg/apis/resource/validation.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.cost import MAX_COST, max_cost
from kai_py.dra.selectors.selector import compile_selector
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import (
    FieldError,
    changed,
    forbidden_field,
    invalid_value,
    label_errors,
    repeated,
    required,
)
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.kinds.device_taints import taint_errors

MAX_SELECTORS = 32
MAX_DEVICES_PER_SLICE = 128
MAX_ADVANCED_DEVICES_PER_SLICE = 64
MAX_COUNTER_SETS_PER_SLICE = 8
MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_TEXT = 64

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_QUOTA = "requests."
"""Prefix of the names of extended resources in ResourceQuotas."""
_PLACES = ("nodeName", "nodeSelector", "allNodes")
_PLACE_RULE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)
_VALUES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


def qualified_name_errors(name: str, path: str, *, fully: bool = False) -> list[FieldError]:
    """The errors of an attribute's or capacity's name; ``fully``: it needs a domain."""
    *domain, identifier = name.split("/")
    if fully and not domain:
        rule = "a fully qualified name must be a domain and a name separated by a slash"
        return [invalid_value(path, name, rule)]
    if len(domain) > 1:
        return [invalid_value(path, name, "must not contain more than one slash")]
    if domain == [""]:
        return [invalid_value(path, "", "the domain must not be empty")]
    if not _IDENTIFIER.fullmatch(identifier):
        return [invalid_value(path, identifier, "a valid C identifier is required")]
    return []


def quantity_errors(amounts: Mapping[str, object], path: str) -> Iterator[FieldError]:
    """The amounts that are no quantities."""
    for name, amount in amounts.items():
        try:
            parse_quantity(amount if isinstance(amount, (str, int, float)) else "")
        except QuantityError as error:
            yield invalid_value(f"{path}[{name}]", amount, str(error))


def too_many(entries: Sequence[object], limit: int, path: str) -> list[FieldError]:
    """The error of a list that is longer than its limit, if it is."""
    if len(entries) <= limit:
        return []
    text = f"Too many: {len(entries)}: must have at most {limit} items"
    return [FieldError(path, "FieldValueTooMany", text)]


def validate_selectors(selectors: list[Json], path: str) -> list[FieldError]:
    """The errors in the selectors of a request or DeviceClass."""
    errors = too_many(selectors, MAX_SELECTORS, path)
    for index, selector in enumerate(selectors):
        expression_path = f"{path}[{index}].cel.expression"
        expression = (selector.get("cel") or {}).get("expression")
        if not expression:
            errors.append(required(expression_path))
            continue
        compiled = compile_selector(expression)
        if isinstance(compiled, CompileError):
            errors.append(invalid_value(expression_path, expression, str(compiled)))
        elif max_cost(compiled.expression) > MAX_COST:
            errors.append(forbidden_field(expression_path, "too complex, exceeds cost limit"))
    return errors


def validate_config(entries: list[Json], path: str) -> list[FieldError]:
    """The errors in the configuration that a claim or DeviceClass passes to drivers."""
    errors = []
    for index, entry in enumerate(entries):
        opaque = entry.get("opaque")
        if not opaque:
            errors.append(required(f"{path}[{index}].opaque"))
            continue
        errors += [
            required(f"{path}[{index}].opaque.{field}")
            for field in ("driver", "parameters")
            if not opaque.get(field) and opaque.get(field) != {}
        ]
    return errors


def validate_class(device_class: Json) -> list[FieldError]:
    """The errors in a DeviceClass."""
    spec = device_class.get("spec") or {}
    errors = validate_selectors(spec.get("selectors") or [], "spec.selectors")
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        path = "spec.extendedResourceName"
        errors.append(invalid_value(path, name, "must be a valid extended resource name"))
    return errors + validate_config(spec.get("config") or [], "spec.config")


def _is_extended(resource: str) -> bool:
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith(_QUOTA)


def validate_slice(resource_slice: Json) -> list[FieldError]:
    """The errors in a ResourceSlice, by the rules of every version of Kubernetes."""
    spec = resource_slice.get("spec") or {}
    errors = [required(f"spec.{field}") for field in ("driver", "pool") if not spec.get(field)]
    pool = spec.get("pool") or {}
    if pool and not pool.get("name"):
        errors.append(required("spec.pool.name"))
    count = pool.get("resourceSliceCount") or 0
    if pool and count <= 0:
        path = "spec.pool.resourceSliceCount"
        errors.append(invalid_value(path, count, "must be greater than zero"))
    if (pool.get("generation") or 0) < 0:
        rule = "must be greater than or equal to zero"
        errors.append(invalid_value("spec.pool.generation", pool["generation"], rule))
    errors += _validate_place(spec, "spec", (*_PLACES, "perDeviceNodeSelection"))
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        path, rule = (
            "spec.nodeSelector.nodeSelectorTerms",
            "must have exactly one node selector term",
        )
        errors.append(invalid_value(path, terms, rule))
    return errors + _validate_devices(spec) + _validate_counters(spec)


def _validate_place(spec: Json, path: str, fields: Sequence[str]) -> list[FieldError]:
    """Errors unless exactly one field says where devices are, and is not false."""
    given = [field for field in fields if spec.get(field) is not None]
    errors = []
    for field in given:
        if spec[field] in (False, ""):
            wanted = "true" if spec[field] is False else "a non-empty string"
            rule = f"must be either unset or set to {wanted}"
            errors.append(invalid_value(f"{path}.{field}", spec[field], rule))
    chosen = [field for field in given if spec[field] not in (False, "")]
    rule = f"exactly one of {', '.join(f'`{field}`' for field in fields)} is required"
    if not chosen:
        errors.append(required(path, rule))
    elif len(chosen) > 1:
        errors.append(invalid_value(path, chosen, f"{rule}, but multiple fields are set"))
    return errors


def _validate_devices(spec: Json) -> list[FieldError]:
    devices = spec.get("devices") or []
    is_advanced = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    limit = MAX_ADVANCED_DEVICES_PER_SLICE if is_advanced else MAX_DEVICES_PER_SLICE
    errors = too_many(devices, limit, "spec.devices")
    errors += repeated((each.get("name") for each in devices), "spec.devices[{}].name")
    for index, device in enumerate(devices):
        path = f"spec.devices[{index}]"
        errors += label_errors(device.get("name"), f"{path}.name")
        errors += _validate_values(device, path)
        for position, taint in enumerate(device.get("taints") or ()):
            errors += taint_errors(taint, f"{path}.taints[{position}]")
        if spec.get("perDeviceNodeSelection"):
            errors += _validate_place(device, path, _PLACES)
        elif any(device.get(field) is not None for field in _PLACES):
            errors.append(invalid_value(path, None, _PLACE_RULE))
    return errors


def _validate_values(device: Json, path: str) -> list[FieldError]:
    """The errors in the attributes and capacities of a device."""
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    errors: list[FieldError] = []
    count = len(attributes) + len(capacities)
    if count > MAX_ATTRIBUTES_AND_CAPACITIES:
        limit = f"must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        rule = f"the total number of attributes and capacities {limit}"
        errors.append(invalid_value(path, count, rule))
    for name, value in attributes.items():
        value_path = f"{path}.attributes[{name}]"
        errors += qualified_name_errors(name, value_path)
        if sum(value.get(kind) is not None for kind in _VALUES) != 1:
            errors.append(invalid_value(value_path, value, "exactly one value must be specified"))
        if len(value.get("string") or "") > MAX_TEXT:
            text = f"Too long: may not be more than {MAX_TEXT} bytes"
            errors.append(FieldError(f"{value_path}.string", "FieldValueTooLong", text))
        if value.get("version") is not None and not _VERSION.fullmatch(value["version"]):
            rule = "must be a string compatible with semver.org spec 2.0.0"
            errors.append(invalid_value(f"{value_path}.version", value["version"], rule))
    amounts = {name: value.get("value") for name, value in capacities.items()}
    errors += quantity_errors(amounts, f"{path}.capacity")
    for name, value in capacities.items():
        errors += qualified_name_errors(name, f"{path}.capacity[{name}]")
        if value.get("requestPolicy") and not device.get("allowMultipleAllocations"):
            policy_path = f"{path}.capacity[{name}].requestPolicy"
            errors.append(forbidden_field(policy_path, "allowMultipleAllocations must be true"))
    return errors


def _validate_counters(spec: Json) -> list[FieldError]:
    sets = spec.get("sharedCounters") or []
    errors = too_many(sets, MAX_COUNTER_SETS_PER_SLICE, "spec.sharedCounters")
    errors += repeated((each.get("name") for each in sets), "spec.sharedCounters[{}].name")
    named = [(f"spec.sharedCounters[{i}]", "name", each) for i, each in enumerate(sets)]
    named += [
        (f"spec.devices[{index}].consumesCounters[{position}]", "counterSet", consumed)
        for index, device in enumerate(spec.get("devices") or ())
        for position, consumed in enumerate(device.get("consumesCounters") or ())
    ]
    for path, field, counters in named:
        errors += label_errors(counters.get(field), f"{path}.{field}")
        amounts = {
            name: each.get("value") for name, each in (counters.get("counters") or {}).items()
        }
        errors += quantity_errors(amounts, f"{path}.counters")
        if not amounts:
            errors.append(required(f"{path}.counters"))
    return errors


def _validate_served_slice(resource_slice: Json) -> list[FieldError]:
    """By the rules of the newest version; older ones take counters beside devices."""
    spec, errors = resource_slice.get("spec") or {}, validate_slice(resource_slice)
    if spec.get("devices") and spec.get("sharedCounters"):
        rule = "only one of `sharedCounters` or `devices` is allowed"
        errors.append(invalid_value("spec", "", rule))
    return errors


def _validate_slice_update(new: Json, old: Json) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    return [
        *_validate_served_slice(new),
        *changed(spec, before, ("driver", "nodeName"), "spec."),
        *changed(spec["pool"], before["pool"], ("name",), "spec.pool."),
    ]


DEVICE_CLASS_RULES = KindRules(
    validate=validate_class, validate_update=lambda new, _old: validate_class(new)
)
SLICE_RULES = KindRules(validate=_validate_served_slice, validate_update=_validate_slice_update)
