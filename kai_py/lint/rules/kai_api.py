"""Rules on KAI-Scheduler's own objects: Queue, PodGroup, Topology, SchedulingShard.

An API server drops fields that their definitions do not have, and a bound of a Queue that is left
out is zero: both are easily overlooked.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kai_py.api.manifests import LineMapping
from kai_py.api.numbers import shortened
from kai_py.api.problems import FieldPath
from kai_py.api.records.kai import KaiPodGroup, KaiQueue
from kai_py.deploy.kai_api import kai_definitions
from kai_py.dialects.kai.pod_groups import problems_of
from kai_py.dialects.kai.queues import kai_queue_info
from kai_py.lint.manifest import Finding, Manifest, at, served_as
from kai_py.lint.rules.fields import unknown_fields

KAI_GROUP = "scheduling.run.ai"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}


def kai_objects(manifest: Manifest) -> Iterator[Finding]:
    """An object of KAI has the fields of its definition, with values that mean something."""
    if manifest.group not in (KAI_GROUP, "kai.scheduler"):
        return  # without reading the definitions
    served = _served_versions().get((manifest.group, manifest.kind))
    if served is None:
        return
    yield from served_as(manifest, served)
    schema = _schemas()[manifest.api_version, manifest.kind]
    yield from _check(manifest, manifest.value, schema, ())
    with contextlib.suppress(msgspec.ValidationError):  # values of other types are reported above
        yield from _contradictions(manifest)


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The schema of each kind, by the API version and the kind."""
    specs = [definition["spec"] for definition in kai_definitions()]
    return {
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"]): version["schema"][
            "openAPIV3Schema"
        ]
        for spec in specs
        for version in spec["versions"]
    }


@functools.cache
def _served_versions() -> Mapping[tuple[str, str], str]:
    """The API version of each kind, by the group and the kind."""
    return {(version.partition("/")[0], kind): version for version, kind in _schemas()}


def _check(
    manifest: Manifest, value: Any, schema: Mapping[str, Any], path: FieldPath
) -> Iterator[Finding]:
    wanted, known = schema.get("type", ""), schema.get("enum")
    if value is None and schema.get("nullable"):
        return
    if not _is_a(value, wanted):
        yield manifest.error(path, f"must be of type {wanted}, is {shortened(repr(value))}")
    elif known is not None and value not in known:
        listed = ", ".join(filter(None, map(str, known)))
        yield manifest.error(path, f"must be one of {listed}, is {shortened(repr(value))}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _check(manifest, each, schema.get("items", {}), (*path, index))
    elif isinstance(value, LineMapping) and "properties" in schema:
        fields = schema["properties"]
        yield from unknown_fields(manifest, value, path, fields)
        for key in [key for key in value if key in fields]:
            yield from _check(manifest, value[key], fields[key], (*path, key))


def _is_a(value: object, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted in ("", "boolean")
    return isinstance(value, _TYPES.get(wanted, object))


def _contradictions(manifest: Manifest) -> Iterator[Finding]:
    """What the definition allows and what has no meaning, or hardly the intended one."""
    if manifest.is_a(KAI_GROUP, "Queue"):
        yield from _queue(manifest, msgspec.convert(manifest.value, KaiQueue))
    elif manifest.is_a(KAI_GROUP, "PodGroup"):
        for text in problems_of(msgspec.convert(manifest.value, KaiPodGroup).spec):
            yield manifest.error(("spec",), f"{text}; its pods stay pending until then")


def _queue(manifest: Manifest, found: KaiQueue) -> Iterator[Finding]:
    for problem in kai_queue_info(found).problems:
        yield manifest.error(("spec",), problem.reason)
    for name in ("gpu", "cpu", "memory"):
        path = "spec", "resources", name, "limit"
        if at(manifest.value, *path) is None:
            text = "is not set, which means 0: pods that request it stay pending; -1 is no limit"
            yield manifest.hint(path, text)
