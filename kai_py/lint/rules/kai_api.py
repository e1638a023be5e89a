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
from kai_py.api.problems import FieldPath
from kai_py.api.records.kai import KaiPodGroup, KaiQueue
from kai_py.deploy.kai_api import kai_definitions
from kai_py.dialects.kai.group_trees import problems_of
from kai_py.dialects.kai.queues import kai_queue_info
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError
from kai_py.embedded.schema import validate
from kai_py.lint.manifest import Finding, Manifest, at, served_as, unknown_fields

KAI_GROUP = "scheduling.run.ai"
KAI_GROUPS = (KAI_GROUP, "kai.scheduler")


def kai_objects(manifest: Manifest) -> Iterator[Finding]:
    """An object of KAI has only fields of its definition, with values that mean something."""
    if manifest.group not in KAI_GROUPS:
        return  # without reading the definitions
    served = _served_versions().get((manifest.group, manifest.kind))
    if served is None:
        return
    yield from served_as(manifest, served)
    schema = _schemas()[manifest.api_version, manifest.kind]
    yield from _unknown(manifest, manifest.value, schema, ())
    with contextlib.suppress(msgspec.ValidationError):  # of other types, which the schema refuses
        yield from _contradictions(manifest)


def schema_errors(document: Json) -> list[FieldError]:
    """What the definition of KAI refuses of an object of one of its kinds."""
    schema = _schemas().get((document["apiVersion"], document["kind"]), {})
    return validate(document, schema, "")


@functools.cache
def _schemas() -> Mapping[tuple[str, str], Json]:
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


def _unknown(
    manifest: Manifest, value: Any, schema: Mapping[str, Any], path: FieldPath
) -> Iterator[Finding]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unknown(manifest, each, schema.get("items", {}), (*path, index))
    elif isinstance(value, LineMapping) and "properties" in schema:
        fields = schema["properties"]
        yield from unknown_fields(manifest, value, path, fields)
        for key in [key for key in value if key in fields]:
            yield from _unknown(manifest, value[key], fields[key], (*path, key))


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
