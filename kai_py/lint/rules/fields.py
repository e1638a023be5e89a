"""Fields and names of pods and workloads that mean nothing, most of them misspelt.

What the API has is read from the models of the Kubernetes client, imported when there is a workload
to check: the import takes a second.
"""

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from kai_py.api.gpu_reservation import GPU_CONTAINER
from kai_py.api.manifests import LineMapping
from kai_py.api.numbers import parse_int64, quoted
from kai_py.api.problems import FieldPath, is_misspelling
from kai_py.api.queue import GROUP, QUEUE_NAME_KEY
from kai_py.dialects.kai.keys import PREEMPTIBILITY, TASK_PRIORITY
from kai_py.dialects.kai.pod_features import FEATURES, Compatibility, feature_of
from kai_py.grouping.annotations import ANNOTATION_KEYS, GROUP_KEYS
from kai_py.grouping.gang_settings import Preemptibility, parse_preemptibility
from kai_py.grouping.topology_annotations import LEVEL_KEYS, SEGMENT_SIZE_KEYS
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    mapping_at,
    mappings_at,
    rename,
    text_at,
    unknown_fields,
)
from kai_py.lint.rules.pods import GPU
from kai_py.lint.rules.workloads import DEFAULT_SCHEDULER, is_grouped, pod_specs, template_path

FORMER_FIELDS = {
    "workloadRef": "only Kubernetes 1.35 has it: later, schedulingGroup names a PodGroup",
}
ITEM_OF_LIST = re.compile(r"[Ll]ist\[(\w+)\]")
"""The type of a list, as the models name it."""


def known_fields(manifest: Manifest) -> Iterator[Finding]:
    """A pod or workload has only fields that the API has."""
    if template_path(manifest) is not None:
        yield from _check(manifest, manifest.value, f"V1{manifest.kind}", ())


def _check(manifest: Manifest, value: Any, model: str, path: FieldPath) -> Iterator[Finding]:
    if isinstance(value, list) and (item := ITEM_OF_LIST.fullmatch(model)):
        for index, each in enumerate(value):
            yield from _check(manifest, each, item[1], (*path, index))
        return
    types = types_of(model)
    if not types or not isinstance(value, LineMapping):
        return
    former = [key for key in FORMER_FIELDS if key in value and key not in types]
    for key in former:
        yield manifest.hint((*path, key), FORMER_FIELDS[key])
    yield from unknown_fields(manifest, value, path, (*types, *former))
    for key in [key for key in value if key in types]:
        yield from _check(manifest, value[key], types[key], (*path, key))


@functools.cache
def types_of(model: str) -> Mapping[str, str]:
    """The type of each field of a model by its name in the API; none for other types."""
    found = getattr(_models(), model, None)
    if found is None or not hasattr(found, "attribute_map"):
        return {}
    return {found.attribute_map[name]: kind for name, kind in found.openapi_types.items()}


def _models() -> ModuleType:
    return importlib.import_module("kubernetes.client.models")


KEYS = sorted(
    {QUEUE_NAME_KEY, GPU_CONTAINER, *GROUP_KEYS, *ANNOTATION_KEYS}
    | {key for key in (*LEVEL_KEYS, *SEGMENT_SIZE_KEYS) if key.startswith(f"{GROUP}/")}
)
"""Annotations and labels that users write."""


def misspelt_names(manifest: Manifest) -> Iterator[Finding]:
    """Names that the API takes whatever they are, and that are almost those that mean something."""
    specs = pod_specs(manifest)
    if template_path(manifest) is None and not specs and not is_grouped(manifest):
        return
    templates = [(*path[:-1], "metadata") for path, _ in specs if path[-1:] == ("spec",)]
    for path in dict.fromkeys((("metadata",), *templates)):
        for field in ("annotations", "labels"):
            yield from _misspelt_keys(manifest, (*path, field))
    for path, spec in specs:
        named = text_at(spec, "schedulerName")
        if is_misspelling(named, DEFAULT_SCHEDULER):
            message = f"no other scheduler is likely to have this name: {DEFAULT_SCHEDULER}?"
            yield manifest.hint((*path, "schedulerName"), message)
        for index, container in mappings_at(spec, "containers"):
            for kind in ("limits", "requests"):
                for name in mapping_at(container, "resources", kind):
                    if is_misspelling(str(name), GPU):
                        at = (*path, "containers", index, "resources", kind, name)
                        message = f"no device plugin is likely to have this name: {GPU}?"
                        yield manifest.hint(at, message)


def _misspelt_keys(manifest: Manifest, path: FieldPath) -> Iterator[Finding]:
    values = mapping_at(manifest.value, *path)
    for key in [key for key in values if str(key).startswith(f"{GROUP}/") and key not in KEYS]:
        meant = next((each for each in KEYS if is_misspelling(str(key), each)), None)
        if meant is not None and meant not in values:
            yield manifest.error((*path, key), f"is ignored: write {meant}", fixed=True)
            rename(values, key, meant)
    for key, value in list(values.items()):
        yield from _ignored_by_kai(manifest, (*path, key), str(key), value)


def _ignored_by_kai(
    manifest: Manifest, path: FieldPath, key: str, value: object
) -> Iterator[Finding]:
    """A label or annotation of KAI that has no effect, or whose value has none."""
    verdict = feature_of(key)
    meant = next((each for each in FEATURES if is_misspelling(key, each)), None)
    if verdict is not None and verdict[0] is Compatibility.MISSING:
        advice = f"is ignored: {meant}?" if meant else verdict[1]
        yield manifest.hint(path, advice)
    elif key == PREEMPTIBILITY and parse_preemptibility(str(value)) is None:
        values = ", ".join(Preemptibility)
        yield manifest.hint(path, f"{quoted(str(value))} is ignored: it may be {values}")
    elif key == TASK_PRIORITY and parse_int64(str(value)) is None:
        yield manifest.hint(path, f"{quoted(str(value))} is ignored: it must be a whole number")
