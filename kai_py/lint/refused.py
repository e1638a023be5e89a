"""What an API server refuses of an object, as far as no rule has named it.

Rules say what was probably meant, and correct it. The embedded API server knows more that is wrong
with claims, devices, KAI's kinds and the fields that schedulers read of pods; it is asked last,
about the corrected object.
"""

import re
from collections.abc import Iterable, Iterator

from kai_py.api.problems import FieldPath, field_path
from kai_py.embedded.documents import with_typed_nulls
from kai_py.embedded.errors import FieldError
from kai_py.embedded.kinds.pod_scheduling import scheduling_errors
from kai_py.embedded.resources import kind_errors
from kai_py.lint.manifest import Finding, Manifest, Severity, mapping_at
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
    if manifest.api_version.endswith("/v1") or manifest.kind == "DeviceTaintRule":
        yield from kind_errors(manifest.group, with_typed_nulls(manifest.value))


def _compared(path: str) -> str:
    """A path as rules and the server have it in common, whatever version it was written for."""
    return field_path(_parts(path)).replace(".exactly", "")


def _is_below(path: str, above: str) -> bool:
    return path == above or (path.startswith(above) and path[len(above) :].startswith(_NEXT_PART))


def _parts(path: str) -> FieldPath:
    return tuple(int(index) if index else key or name for index, key, name in _PART.findall(path))
