"""The types of the fields of pods and built-in workloads: an API server converts none.

``value: 1`` of an environment variable is no text, and ``command: sleep 9`` is no list. What is
meant is clear for texts, numbers and booleans: these are corrected, as they are written.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from kai_py.api.manifests import LineMapping, LineSequence
from kai_py.api.numbers import parse_int64
from kai_py.api.problems import FieldPath
from kai_py.lint.manifest import Finding, Manifest
from kai_py.lint.rules.fields import ITEM_OF_LIST, types_of
from kai_py.lint.rules.objects import BUILT_IN, SHAPES, described
from kai_py.lint.rules.workloads import pod_specs, template_path

_CLAIMS = "claims"
"""Claims of containers: ``pods.container_claims`` says what its items must be."""
_QUANTITIES = ("limits", "requests", "overhead", "sizeLimit", "divisor")
"""Amounts may be numbers or texts; ``pods.amounts`` checks them."""
_NAMED_ELSEWHERE = (("apiVersion",), ("kind",), ("status",))
"""``objects.identity`` checks the first two, and users write no status."""
_MAPPING_OF_TEXTS = re.compile(r"[Dd]ict[\[(]str, str[\])]")
_ANY_TYPE = ("object", "datetime")
"""Ports by number or name, and times, which are texts whatever they are."""
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_BOOLEANS = {"true": True, "false": False}


def field_types(manifest: Manifest) -> Iterator[Finding]:
    """Each field of a pod, or of a workload of a built-in kind, has the type of the API."""
    if template_path(manifest) is not None:
        yield from _fields(manifest, manifest.value, f"V1{manifest.kind}", ())
        return
    for path, spec in pod_specs(manifest):
        yield from _fields(manifest, spec, "V1PodSpec", path)


def _fields(
    manifest: Manifest, mapping: LineMapping, model: str, path: FieldPath
) -> Iterator[Finding]:
    for key, kind in types_of(model).items():
        if key in mapping and key not in _QUANTITIES and (*path, key) not in _NAMED_ELSEWHERE:
            yield from _value(manifest, mapping, key, kind, path)


def _value(
    manifest: Manifest,
    within: LineMapping | LineSequence,
    key: Any,
    kind: str,
    above: FieldPath,
) -> Iterator[Finding]:
    """``within[key]`` is of a type of the API, such as ``str``, ``list[str]`` or ``V1Probe``."""
    value, path = within[key], (*above, key)
    item = ITEM_OF_LIST.fullmatch(kind)
    if value is None:
        return
    if item and isinstance(value, LineSequence):
        for index in range(len(value) if key != _CLAIMS else 0):
            yield from _value(manifest, value, index, item[1], path)
    elif types_of(kind) and isinstance(value, LineMapping):
        yield from _fields(manifest, value, kind, path)
    elif _MAPPING_OF_TEXTS.fullmatch(kind) and isinstance(value, LineMapping):
        for name in list(value):
            yield from _value(manifest, value, name, "str", path)
    elif kind in _SCALARS:
        yield from _scalar(manifest, within, key, kind, path)
    elif kind not in _ANY_TYPE and (manifest.group not in BUILT_IN or key not in SHAPES):
        # ``objects.shapes`` names the others.
        form = "a list" if item else "a mapping of fields"
        yield manifest.error(path, f"must be {form}, is {described(value)}")


def _scalar(
    manifest: Manifest, within: LineMapping | LineSequence, key: Any, kind: str, path: FieldPath
) -> Iterator[Finding]:
    read, form = _SCALARS[kind]
    meant = read(within, key)
    if meant is None:
        yield manifest.error(path, f"must be {form}, is {described(within[key])}")
    elif type(meant) is not type(within[key]):
        text = f'"{meant}"' if isinstance(meant, str) else str(meant).lower()
        yield manifest.error(path, f"must be {form}: write {text}", fixed=True)
        within[key] = meant


def _text(within: LineMapping | LineSequence, key: Any) -> str | None:
    value = within[key]
    if isinstance(value, bool | int | float):
        return within.text_of(key)
    return value if isinstance(value, str) else None


def _number(within: LineMapping | LineSequence, key: Any) -> int | float | None:
    value = within[key]
    if isinstance(value, str):
        return parse_int64(value) if _INTEGER.fullmatch(value) else None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    return value if is_whole else None


def _boolean(within: LineMapping | LineSequence, key: Any) -> bool | None:
    value = within[key]
    if isinstance(value, str):
        return _BOOLEANS.get(value.lower())
    return value if isinstance(value, bool) else None


_Reading = Callable[[LineMapping | LineSequence, Any], Any]
_SCALARS: dict[str, tuple[_Reading, str]] = {
    "str": (_text, "a string"),
    "int": (_number, "a whole number"),
    "bool": (_boolean, "true or false"),
}
"""What a value of a type is meant to be, None if that is not known, and the type's name."""
