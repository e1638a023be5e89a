"""What an API server refuses of an object, as far as no rule has named it.

Rules say what was probably meant, and correct it. The embedded API server knows more that is wrong
with claims, devices, KAI's kinds and the fields that schedulers read of pods; it is asked last,
about the corrected object.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from kai_py.api.problems import FieldPath, field_path
from kai_py.embedded.documents import Json, with_typed_nulls
from kai_py.embedded.errors import FieldError
from kai_py.embedded.kinds.claims import default_claim_spec, validate_claim_spec
from kai_py.embedded.kinds.cluster import BUDGET_RULES, PRIORITY_CLASS_RULES
from kai_py.embedded.kinds.device_taints import validate_taint_rule
from kai_py.embedded.kinds.devices import validate_class, validate_slice
from kai_py.embedded.kinds.pod_scheduling import scheduling_errors
from kai_py.lint.manifest import RESOURCE_GROUP, Finding, Manifest, Severity, mapping_at
from kai_py.lint.rules.kai_api import KAI_GROUPS, schema_errors
from kai_py.lint.rules.workloads import pod_specs, template_path

_GROUPS = ("", "apps", "batch")
"""Groups whose pod specs their API server checks; others have them checked when pods are made."""
_PART = re.compile(r"\[(\d+)\]|\[([^]]+)\]|([^.\[]+)")
_NEXT_PART = (".", "[")
_PARENT = re.compile(r"[.\[]")
"""In the path of a field, not of a whole object or spec, below which there is more to say."""


def refused_fields(manifest: Manifest, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The errors of an API server in fields for which ``findings``, the object's own, have none."""
    named = [
        _compared(each.field)
        for each in findings
        if each.severity is Severity.ERROR and _PARENT.search(each.field)
    ]
    try:
        errors = [*_errors(manifest)]
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # it has fields of other types, which rules name
    for error in errors:
        path = _compared(error.path)
        if not any(_is_below(path, each) or _is_below(each, path) for each in named):
            yield manifest.error(_parts(error.path), f"the API rejects it: {error.message}")


def _errors(manifest: Manifest) -> Iterator[FieldError]:
    if manifest.group in _GROUPS:
        template, specs = template_path(manifest), dict(pod_specs(manifest))
        if template is not None:
            own = (*template, "spec")
            specs.setdefault(own, mapping_at(manifest.value, *own))
        for path, spec in specs.items():
            yield from scheduling_errors(with_typed_nulls(spec), field_path(path))
    if manifest.group in KAI_GROUPS:
        yield from schema_errors(with_typed_nulls(manifest.value))
    validate = _VALIDATE.get((manifest.api_version, manifest.kind))
    if validate:
        yield from validate(with_typed_nulls(manifest.value))


def _claim_errors(document: Json) -> list[FieldError]:
    spec = document.get("spec") or {}
    default_claim_spec(spec)
    return validate_claim_spec(spec, "spec")


def _template_errors(document: Json) -> list[FieldError]:
    spec = (document.get("spec") or {}).get("spec") or {}
    default_claim_spec(spec)
    return validate_claim_spec(spec, "spec.spec")


_VALIDATE: Mapping[tuple[str, str], Callable[[Json], list[FieldError]]] = {
    (f"{RESOURCE_GROUP}/v1", "ResourceClaim"): _claim_errors,
    (f"{RESOURCE_GROUP}/v1", "ResourceClaimTemplate"): _template_errors,
    (f"{RESOURCE_GROUP}/v1", "DeviceClass"): validate_class,
    (f"{RESOURCE_GROUP}/v1", "ResourceSlice"): validate_slice,
    (f"{RESOURCE_GROUP}/v1", "DeviceTaintRule"): validate_taint_rule,
    (f"{RESOURCE_GROUP}/v1beta2", "DeviceTaintRule"): validate_taint_rule,
    (f"{RESOURCE_GROUP}/v1alpha3", "DeviceTaintRule"): validate_taint_rule,
    ("policy/v1", "PodDisruptionBudget"): BUDGET_RULES.validate,
    ("scheduling.k8s.io/v1", "PriorityClass"): PRIORITY_CLASS_RULES.validate,
}


def _compared(path: str) -> str:
    """A path as rules and the server have it in common, whatever version it was written for."""
    return field_path(_parts(path)).replace(".exactly", "")


def _is_below(path: str, above: str) -> bool:
    return path == above or (path.startswith(above) and path[len(above) :].startswith(_NEXT_PART))


def _parts(path: str) -> FieldPath:
    return tuple(int(index) if index else key or name for index, key, name in _PART.findall(path))
