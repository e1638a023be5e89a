"""resource.k8s.io: defaults and validation of claims, templates, classes, slices.

A claim's spec is immutable; its allocation is set once and can only be cleared; only an allocated
claim can be reserved. Limits and texts: k8s.io/kubernetes pkg/apis/resource/validation.
"""

from collections.abc import Iterable

from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.cost import MAX_COST, max_cost
from kai_py.dra.selectors.selector import compile_selector
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    invalid_value,
    required,
    unsupported,
)
from kai_py.embedded.kinds.rules import KindRules
from kai_py.embedded.store import Store

NAMESPACES = "namespaces"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
MAX_REQUESTS = 32
MAX_SUBREQUESTS = 8
MAX_SELECTORS = 32
MAX_RESERVED_FOR = 256
MAX_RESULTS = 32
MAX_DEVICES_PER_SLICE = 128
MAX_COUNTER_SETS_PER_SLICE = 8


def default_claim_spec(spec: Json) -> None:
    """Set the defaults of allocation modes, counts and toleration operators of all requests."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for device_request in _device_requests(request):
            mode = device_request.setdefault("allocationMode", "ExactCount")
            if mode == "ExactCount":
                device_request.setdefault("count", 1)
            for toleration in device_request.get("tolerations") or ():
                toleration.setdefault("operator", "Equal")


def validate_claim_spec(spec: Json, path: str) -> list[FieldError]:
    """The errors in a ResourceClaimSpec at `path`."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    errors = _too_many(requests, MAX_REQUESTS, f"{path}.devices.requests")
    names: set[str] = set()
    for index, request in enumerate(requests):
        item_path = f"{path}.devices.requests[{index}]"
        errors += _validate_request(request, item_path)
        if request.get("name") in names:
            errors.append(duplicate(f"{item_path}.name", request["name"]))
        names.add(request.get("name", ""))
    known = _request_names(spec)
    for kind in ("constraints", "config"):
        for index, entry in enumerate(devices.get(kind) or ()):
            for position, name in enumerate(entry.get("requests") or ()):
                if name not in known:
                    item_path = f"{path}.devices.{kind}[{index}].requests[{position}]"
                    errors.append(invalid_value(item_path, name, _REQUEST_NAME_RULE))
    return errors


_REQUEST_NAME_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def _device_requests(request: Json) -> Iterable[Json]:
    if "exactly" in request:
        yield request["exactly"]
    yield from request.get("firstAvailable") or ()


def _request_names(spec: Json) -> set[str]:
    names = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        names.add(request.get("name", ""))
        for sub in request.get("firstAvailable") or ():
            names.add(f"{request.get('name', '')}/{sub.get('name', '')}")
    return names


def _validate_request(request: Json, path: str) -> list[FieldError]:
    errors = [] if request.get("name") else [required(f"{path}.name")]
    kinds = [kind for kind in ("exactly", "firstAvailable") if request.get(kind)]
    if not kinds:
        return [*errors, required(path, "exactly one of `exactly` or `firstAvailable` is required")]
    if len(kinds) > 1:
        rule = "exactly one of `exactly` or `firstAvailable` must be specified"
        return [*errors, invalid_value(path, None, rule)]
    if kinds == ["exactly"]:
        return errors + _validate_device_request(request["exactly"], f"{path}.exactly")
    subrequests = request["firstAvailable"]
    errors += _too_many(subrequests, MAX_SUBREQUESTS, f"{path}.firstAvailable")
    for index, sub in enumerate(subrequests):
        subrequest_path = f"{path}.firstAvailable[{index}]"
        if not sub.get("name"):
            errors.append(required(f"{subrequest_path}.name"))
        errors += _validate_device_request(sub, subrequest_path)
    return errors


def _validate_device_request(request: Json, path: str) -> list[FieldError]:
    errors = []
    if not request.get("deviceClassName"):
        errors.append(required(f"{path}.deviceClassName"))
    mode, count = request.get("allocationMode"), request.get("count")
    if mode not in ("ExactCount", "All"):
        errors.append(unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount")))
    if mode == "ExactCount" and (not isinstance(count, int) or count <= 0):
        errors.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    if mode == "All" and count:
        rule = "must not be specified when allocationMode is 'All'"
        errors.append(invalid_value(f"{path}.count", count, rule))
    return errors + _validate_selectors(request.get("selectors") or [], f"{path}.selectors")


def _validate_selectors(selectors: list[Json], path: str) -> list[FieldError]:
    errors = _too_many(selectors, MAX_SELECTORS, path)
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
            rule = "too complex, exceeds cost limit"
            errors.append(FieldError(expression_path, "FieldValueForbidden", f"Forbidden: {rule}"))
    return errors


def _too_many(entries: list[Json], limit: int, path: str) -> list[FieldError]:
    if len(entries) <= limit:
        return []
    text = f"Too many: {len(entries)}: must have at most {limit} items"
    return [FieldError(path, "FieldValueTooMany", text)]


def _immutable_spec(new: Json, old: Json) -> list[FieldError]:
    if new.get("spec") == old.get("spec"):
        return []
    return [invalid_value("spec", new.get("spec"), "field is immutable")]


def _validate_claim_status(new: Json, old: Json) -> list[FieldError]:
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation, allocated = status.get("allocation"), before.get("allocation")
    errors = []
    if allocation and allocated and allocation != allocated:
        errors.append(invalid_value("status.allocation", allocation, "field is immutable"))
    if allocation:
        errors += _validate_results(new["spec"], allocation)
    return errors + _validate_reservations(new, status, before)


def _validate_results(spec: Json, allocation: Json) -> list[FieldError]:
    path = "status.allocation.devices.results"
    results = (allocation.get("devices") or {}).get("results") or []
    errors = _too_many(results, MAX_RESULTS, path)
    known = _request_names(spec)
    for index, result in enumerate(results):
        errors += [
            required(f"{path}[{index}].{field}")
            for field in ("driver", "pool", "device")
            if not result.get(field)
        ]
        if result.get("request") not in known:
            errors.append(
                invalid_value(f"{path}[{index}].request", result.get("request"), _REQUEST_NAME_RULE)
            )
    return errors


def _validate_reservations(claim: Json, status: Json, before: Json) -> list[FieldError]:
    consumers = status.get("reservedFor") or []
    path = "status.reservedFor"
    errors = _too_many(consumers, MAX_RESERVED_FOR, path)
    if consumers and not status.get("allocation"):
        rule = "may not be specified when `allocated` is not set"
        errors.append(forbidden_field(path, rule))
    known = {consumer["uid"] for consumer in before.get("reservedFor") or ()}
    seen: set[str] = set()
    for index, consumer in enumerate(consumers):
        consumer_path = f"{path}[{index}]"
        errors += [
            required(f"{consumer_path}.{field}")
            for field in ("resource", "name", "uid")
            if not consumer.get(field)
        ]
        if consumer.get("uid") in seen:
            errors.append(duplicate(f"{consumer_path}.uid", consumer["uid"]))
        seen.add(consumer.get("uid", ""))
    if "deletionTimestamp" in claim["metadata"] and seen - known:
        rule = "new entries may not be added while `deletionTimestamp` is set"
        errors.append(forbidden_field(path, rule))
    return errors


def _validate_class(device_class: Json) -> list[FieldError]:
    selectors = (device_class.get("spec") or {}).get("selectors") or []
    return _validate_selectors(selectors, "spec.selectors")


def _validate_slice(resource_slice: Json) -> list[FieldError]:
    spec = resource_slice.get("spec") or {}
    errors = [required(f"spec.{field}") for field in ("driver", "pool") if not spec.get(field)]
    pool = spec.get("pool") or {}
    if pool and not pool.get("name"):
        errors.append(required("spec.pool.name"))
    if pool and int(pool.get("resourceSliceCount") or 0) <= 0:
        count = pool.get("resourceSliceCount")
        errors.append(
            invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
        )
    node_fields = [
        field
        for field in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(field)
    ]
    if len(node_fields) != 1:
        rule = (
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` "
            "is required"
        )
        errors.append(invalid_value("spec", node_fields, rule))
    return errors + _validate_slice_devices(spec)


def _validate_slice_devices(spec: Json) -> list[FieldError]:
    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    errors = _too_many(devices, MAX_DEVICES_PER_SLICE, "spec.devices")
    errors += _too_many(counters, MAX_COUNTER_SETS_PER_SLICE, "spec.sharedCounters")
    if devices and counters:
        errors.append(
            invalid_value("spec", None, "only one of `sharedCounters` or `devices` is allowed")
        )
    names: set[str] = set()
    for index, device in enumerate(devices):
        name = device.get("name")
        if not name:
            errors.append(required(f"spec.devices[{index}].name"))
        elif name in names:
            errors.append(duplicate(f"spec.devices[{index}].name", name))
        names.add(name or "")
    return errors


def _validate_slice_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_slice(new)
    for field in ("driver", "nodeName"):
        if new["spec"].get(field) != old["spec"].get(field):
            errors.append(
                invalid_value(f"spec.{field}", new["spec"].get(field), "field is immutable")
            )
    if new["spec"]["pool"]["name"] != old["spec"]["pool"]["name"]:
        errors.append(
            invalid_value("spec.pool.name", new["spec"]["pool"]["name"], "field is immutable")
        )
    return errors


def _admit_claim(claim: Json, store: Store) -> None:
    _admit_access(claim, claim["spec"], "spec", store)


def _admit_template(template: Json, store: Store) -> None:
    _admit_access(template, template["spec"].get("spec") or {}, "spec.spec", store)


def _admit_access(document: Json, spec: Json, path: str, store: Store) -> None:
    """Refuse adminAccess outside namespaces that are labelled for it."""
    meta = document["metadata"]
    namespace = store.get(NAMESPACES, "", meta.get("namespace", "")) or {"metadata": {}}
    if (namespace["metadata"].get("labels") or {}).get(ADMIN_ACCESS_LABEL) == "true":
        return
    detail = (
        f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the "
        "containing namespace"
    )
    errors = [
        forbidden_field(f"{path}.devices.requests[{index}].exactly.adminAccess", detail)
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]
    if errors:
        raise invalid(document["kind"], "resource.k8s.io", meta.get("name", ""), errors)


def _no_status(claim: Json) -> None:
    claim["status"] = {}


CLAIM_RULES = KindRules(
    prepare=_no_status,
    admit=_admit_claim,
    default=lambda claim: default_claim_spec(claim["spec"]),
    validate=lambda claim: validate_claim_spec(claim["spec"], "spec"),
    validate_update=_immutable_spec,
    validate_status=_validate_claim_status,
)
CLAIM_TEMPLATE_RULES = KindRules(
    admit=_admit_template,
    default=lambda template: default_claim_spec(template["spec"].setdefault("spec", {})),
    validate=lambda template: validate_claim_spec(template["spec"]["spec"], "spec.spec"),
    validate_update=_immutable_spec,
)
DEVICE_CLASS_RULES = KindRules(
    validate=_validate_class, validate_update=lambda new, _old: _validate_class(new)
)
SLICE_RULES = KindRules(validate=_validate_slice, validate_update=_validate_slice_update)
