"""resource.k8s.io: defaults and validation of claims and their templates.

A claim's spec is immutable; its allocation is set once and can only be cleared; only an allocated
claim can be reserved. Limits and texts: k8s.io/kubernetes pkg/apis/resource/validation.
"""

from collections.abc import Iterable

from kai_py.embedded.documents import Json, set_default
from kai_py.embedded.errors import (
    FieldError,
    changed,
    duplicate,
    forbidden_field,
    invalid,
    invalid_value,
    label_errors,
    missing,
    repeated,
    required,
    unsupported,
)
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.kinds.device_taints import toleration_errors
from kai_py.embedded.kinds.devices import (
    qualified_name_errors,
    quantity_errors,
    too_many,
    validate_config,
    validate_selectors,
)
from kai_py.embedded.store import Store

NAMESPACES = "namespaces"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
MAX_REQUESTS = 32
MAX_SUBREQUESTS = 8
MAX_CONSTRAINTS = 32
MAX_RESERVED_FOR = 256
MAX_RESULTS = 32


def default_claim_spec(spec: Json) -> None:
    """Set the defaults of allocation modes, counts and toleration operators of all requests."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for device_request in _device_requests(request):
            default_device_request(device_request)


def default_device_request(request: Json) -> None:
    """Set the defaults of ``exactly``, or of an alternative."""
    set_default(request, "allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount":
        set_default(request, "count", 1)
    for toleration in request.get("tolerations") or ():
        set_default(toleration, "operator", "Equal")


def validate_claim_spec(spec: Json, path: str) -> list[FieldError]:
    """The errors in a ResourceClaimSpec at `path`."""
    devices, path = spec.get("devices") or {}, f"{path}.devices"
    requests, constraints = devices.get("requests") or [], devices.get("constraints") or []
    errors = too_many(requests, MAX_REQUESTS, f"{path}.requests")
    for index, request in enumerate(requests):
        errors += _validate_request(request, f"{path}.requests[{index}]")
    errors += repeated((each.get("name") for each in requests), path + ".requests[{}].name")
    known = _request_names(spec)
    for kind in ("constraints", "config"):
        for index, entry in enumerate(devices.get(kind) or ()):
            names, item_path = entry.get("requests") or (), f"{path}.{kind}[{index}]"
            errors += repeated(names, item_path + ".requests[{}]")
            errors += [
                invalid_value(f"{item_path}.requests[{position}]", name, _REQUEST_NAME_RULE)
                for position, name in enumerate(names)
                if name not in known
            ]
    errors += too_many(constraints, MAX_CONSTRAINTS, f"{path}.constraints")
    for index, constraint in enumerate(constraints):
        errors += _validate_constraint(constraint, f"{path}.constraints[{index}]")
    return errors + validate_config(devices.get("config") or [], f"{path}.config")


_COMPARED = ("matchAttribute", "distinctAttribute")
_REQUEST_NAME_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def _device_requests(request: Json) -> Iterable[Json]:
    if request.get("exactly") is not None:
        yield request["exactly"]
    yield from request.get("firstAvailable") or ()


def _request_names(spec: Json) -> set[str]:
    names = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        names.add(request.get("name", ""))
        for sub in request.get("firstAvailable") or ():
            names.add(f"{request.get('name', '')}/{sub.get('name', '')}")
    return names


def _validate_constraint(constraint: Json, path: str) -> list[FieldError]:
    fields = [each for each in _COMPARED if constraint.get(each) is not None]
    if not fields:
        return [required(path, f'exactly one of "{_COMPARED[0]}" or "{_COMPARED[1]}" is required')]
    return [
        error
        for field in fields
        for error in qualified_name_errors(constraint[field], f"{path}.{field}", fully=True)
    ]


def _validate_request(request: Json, path: str) -> list[FieldError]:
    errors = label_errors(request.get("name"), f"{path}.name")
    subrequests = request.get("firstAvailable") or []
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if request.get("exactly") is None and not subrequests:
        return [*errors, required(path, rule)]
    if request.get("exactly") is not None and subrequests:
        return [*errors, invalid_value(path, None, f"{rule}, but multiple fields are set")]
    if not subrequests:
        return errors + _validate_device_request(request["exactly"], f"{path}.exactly")
    path = f"{path}.firstAvailable"
    errors += too_many(subrequests, MAX_SUBREQUESTS, path)
    errors += repeated((each.get("name") for each in subrequests), path + "[{}].name")
    for index, sub in enumerate(subrequests):
        errors += label_errors(sub.get("name"), f"{path}[{index}].name")
        errors += _validate_device_request(sub, f"{path}[{index}]")
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
    amounts = (request.get("capacity") or {}).get("requests") or {}
    errors += quantity_errors(amounts, f"{path}.capacity.requests")
    for index, toleration in enumerate(request.get("tolerations") or ()):
        errors += toleration_errors(toleration, f"{path}.tolerations[{index}]")
    return errors + validate_selectors(request.get("selectors") or [], f"{path}.selectors")


def _immutable_spec(new: Json, old: Json) -> list[FieldError]:
    return list(changed(new, old, ("spec",)))


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
    errors = too_many(results, MAX_RESULTS, path)
    known = _request_names(spec)
    for index, result in enumerate(results):
        errors += missing(result, ("driver", "pool", "device"), f"{path}[{index}].")
        if result.get("request") not in known:
            errors.append(
                invalid_value(f"{path}[{index}].request", result.get("request"), _REQUEST_NAME_RULE)
            )
    return errors


def _validate_reservations(claim: Json, status: Json, before: Json) -> list[FieldError]:
    consumers = status.get("reservedFor") or []
    path = "status.reservedFor"
    errors = too_many(consumers, MAX_RESERVED_FOR, path)
    if consumers and not status.get("allocation"):
        rule = "may not be specified when `allocated` is not set"
        errors.append(forbidden_field(path, rule))
    known = {consumer["uid"] for consumer in before.get("reservedFor") or ()}
    seen: set[str] = set()
    for index, consumer in enumerate(consumers):
        consumer_path = f"{path}[{index}]"
        errors += missing(consumer, ("resource", "name", "uid"), f"{consumer_path}.")
        if consumer.get("uid") in seen:
            errors.append(duplicate(f"{consumer_path}.uid", consumer["uid"]))
        seen.add(consumer.get("uid", ""))
    if "deletionTimestamp" in claim["metadata"] and seen - known:
        rule = "new entries may not be added while `deletionTimestamp` is set"
        errors.append(forbidden_field(path, rule))
    return errors


def _admit_claim(claim: Json, store: Store) -> None:
    _admit_access(claim, claim["spec"], "spec", store)


def _admit_template(template: Json, store: Store) -> None:
    _admit_access(template, template["spec"].get("spec") or {}, "spec.spec", store)


def _admit_access(document: Json, spec: Json, path: str, store: Store) -> None:
    """Refuse adminAccess outside namespaces that are labelled for it."""
    meta = document["metadata"]
    namespace = store.get(NAMESPACES, "", meta.get("namespace", "")) or {"metadata": {}}
    errors = admin_access_errors(spec, path, namespace)
    if errors:
        raise invalid(document["kind"], "resource.k8s.io", meta.get("name", ""), errors)


def admin_access_errors(spec: Json, path: str, namespace: Json) -> list[FieldError]:
    """The requests for adminAccess in a claim's spec that its namespace does not allow."""
    if (namespace["metadata"].get("labels") or {}).get(ADMIN_ACCESS_LABEL) == "true":
        return []
    detail = (
        f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the "
        "containing namespace"
    )
    return [
        forbidden_field(f"{path}.devices.requests[{index}].exactly.adminAccess", detail)
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]


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
