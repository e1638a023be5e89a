"""Migration from KAI: which objects and settings work here, differ, or are not supported.

Every note names an object and, where one causes it, a field. ``WORKS`` is reported once per object
of KAI's API and per feature that a workload asks for; the other notes say what to do.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.records.kai import (
    POD_GROUP_API_VERSION,
    QUEUE_API_VERSION,
    KaiPodGroup,
    KaiPodGroupSpec,
    KaiQueue,
    KaiSubGroup,
)
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import mapping_at, value_at
from kai_py.dialects.kai import keys
from kai_py.dialects.kai.configurations import (
    GLOBAL_PATHS,
    PATHS,
    RawObject,
    group_of,
    is_config,
    is_kind,
    kind_defaults,
)
from kai_py.dialects.kai.group_trees import problems_of
from kai_py.dialects.kai.pod_features import Compatibility, annotation_maps, feature_of
from kai_py.dialects.kai.queues import kai_queue_info

GLOBAL_SELECTORS = ("global.namespaceLabelSelector", "global.podLabelSelector")
"""Fields of it that limit which pods KAI schedules."""


RESOURCES = ("gpu", "cpu", "memory")


class MigrationNote(Struct, frozen=True):
    """``subject`` is Kind/namespace/name or Kind/name, ``field`` may be empty."""

    compatibility: Compatibility
    subject: str
    field: str
    text: str


SHARD_SETTINGS: Mapping[str, tuple[Compatibility, str]] = {
    "partitionLabelValue": (Compatibility.DIFFERS, "set nodePool.name in the configuration"),
    "placementStrategy": (Compatibility.DIFFERS, "set placement.gpu and placement.cpu"),
    "minRuntime": (
        Compatibility.DIFFERS,
        "set eviction.preemptMinRuntime, .reclaimMinRuntime and .reclaimResolveMethod",
    ),
    "kValue": (Compatibility.DIFFERS, "past usage is configured in fairShare of the configuration"),
    "usageDBConfig": (
        Compatibility.DIFFERS,
        "past usage is stored in Queue statuses; fairShare.prometheus reads it from Prometheus",
    ),
    "queueDepthPerAction": (
        Compatibility.MISSING,
        "every pending gang is considered in every cycle",
    ),
    "scenarioSearchBudgets": (
        Compatibility.DIFFERS,
        "set budgets.victims and budgets.victimsPerGang",
    ),
    "plugins": (Compatibility.MISSING, "plugins are built in; set placement.* and rules"),
    "actions": (Compatibility.DIFFERS, "set eviction.preempt, .reclaim and .consolidate"),
    "args": (Compatibility.DIFFERS, "see `kai-py run --help` and the configuration"),
}
"""Fields of a SchedulingShard."""
LISTED_SETTINGS = ("minRuntime", "usageDBConfig", "actions", "args")
"""Fields of which some settings have a counterpart: the others are named one by one."""
IMPLIED_SETTINGS = frozenset({"usageDBConfig.clientType"})

_POD_GROUP_FIELDS = {each.encode_name for each in msgspec.structs.fields(KaiPodGroupSpec)}
_SUBGROUP_FIELDS = {each.encode_name for each in msgspec.structs.fields(KaiSubGroup)}

VERSIONS: Mapping[tuple[str, str], str] = {
    ("scheduling.run.ai", "Queue"): QUEUE_API_VERSION,
    ("scheduling.run.ai", "PodGroup"): POD_GROUP_API_VERSION,
    ("kai.scheduler", "Topology"): "kai.scheduler/v1alpha1",
}
"""The version of each kind of KAI that is read."""

UNSUPPORTED_KINDS: Mapping[tuple[str, str], str] = {
    ("scheduling.run.ai", "BindRequest"): "pods are bound directly; these objects are not used",
    ("kai.scheduler", "Karta"): "declare the kind in grouping.rules of the configuration",
}


def migration_notes(documents: Iterable[RawObject]) -> Iterator[MigrationNote]:
    """Notes on ``documents``, in their order."""
    known = list(documents)
    queues = {_name(each) for each in known if is_kind(each, "scheduling.run.ai", "Queue")}
    native = {_name(each) for each in known if is_kind(each, "scheduling.kai.io", "Queue")}
    for document in known:
        try:
            yield from _notes(document, queues | native, native)
        except (TypeError, AttributeError, ValueError, LookupError) as error:
            text = f"cannot be read: a value is of another type than the API's ({error})"
            yield _note(Compatibility.MISSING, document, "", text)


def _notes(document: RawObject, queues: set[str], native: set[str]) -> Iterator[MigrationNote]:
    group, kind = group_of(document), str(document.get("kind", ""))
    served = VERSIONS.get((group, kind), document.get("apiVersion"))
    if document.get("apiVersion") != served:
        text = f"is not read: write {served}"
        yield _note(Compatibility.MISSING, document, "apiVersion", text)
    elif is_kind(document, "scheduling.run.ai", "Queue"):
        yield from _queue(document, queues, native)
    elif is_kind(document, "scheduling.run.ai", "PodGroup"):
        yield from _pod_group(document)
    elif is_kind(document, "kai.scheduler", "Topology"):
        yield _note(Compatibility.WORKS, document, "", "read as it is")
    elif is_kind(document, "kai.scheduler", "SchedulingShard"):
        yield from _shard(document)
    elif is_config(document):
        yield from _config(document)
    elif any(kind_defaults(document)):
        text = "belongs in kai.kindDefaults of the configuration, which --write-config writes"
        yield _note(Compatibility.DIFFERS, document, "data.types", text)
    elif (group, kind) in UNSUPPORTED_KINDS:
        yield _note(Compatibility.MISSING, document, "", UNSUPPORTED_KINDS[group, kind])
    else:
        yield from _workload(document)


def _queue(document: RawObject, queues: set[str], native: set[str]) -> Iterator[MigrationNote]:
    try:
        queue = convert_record(document, KaiQueue, coerce_text=True)
    except ValueError as error:
        yield _note(Compatibility.MISSING, document, "", f"cannot be read: {error}")
        return
    yield _note(
        Compatibility.WORKS,
        document,
        "",
        "read as it is, in addition to queues of scheduling.kai.io",
    )
    written = document.get("spec", {}).get("resources") or {}
    for resource in RESOURCES:
        if "limit" not in (written.get(resource) or {}):
            field = f"spec.resources.{resource}.limit"
            text = "is unset: as in KAI the limit is 0; write -1 for no limit"
            yield _note(Compatibility.WORKS, document, field, text)
    for problem in kai_queue_info(queue).problems:
        yield _note(Compatibility.DIFFERS, document, "spec", problem.reason)
    parent = queue.spec.parent_queue
    if parent and parent not in queues:
        text = f'"{parent}" does not exist: KAI ignores the queue, here it is a root'
        yield _note(Compatibility.DIFFERS, document, "spec.parentQueue", text)
    if queue.metadata.name in native:
        text = (
            "a Queue of scheduling.kai.io has this name too; the older one takes "
            "precedence: delete one"
        )
        yield _note(Compatibility.DIFFERS, document, "metadata.name", text)


def _pod_group(document: RawObject) -> Iterator[MigrationNote]:
    try:
        group = convert_record(document, KaiPodGroup, coerce_text=True)
    except ValueError as error:
        yield _note(Compatibility.MISSING, document, "", f"cannot be read: {error}")
        return
    yield _note(Compatibility.WORKS, document, "", "read as it is")
    for field in _unread_fields(document):
        yield _note(Compatibility.MISSING, document, field, "is not read")
    for problem in problems_of(group.spec):
        text = f"{problem}: the gang stays pending until this is corrected"
        yield _note(Compatibility.DIFFERS, document, "spec.subGroups", text)
    if group.spec.sub_groups and group.spec.min_member is not None:
        text = "is ignored: those of subGroups apply, as in KAI"
        yield _note(Compatibility.WORKS, document, "spec.minMember", text)
    if group.spec.min_sub_group is not None:
        text = (
            "such gangs may also reclaim and preempt, and are not stale while enough subgroups run"
        )
        yield _note(Compatibility.DIFFERS, document, "spec.minSubGroup", text)


def _unread_fields(pod_group: RawObject) -> Iterator[str]:
    """The paths of fields that KAI may read, or read later, and that are not read here."""
    spec = pod_group.get("spec") or {}
    yield from (f"spec.{field}" for field in spec if field not in _POD_GROUP_FIELDS)
    for index, subgroup in enumerate(spec.get("subGroups") or ()):
        unread = (field for field in subgroup if field not in _SUBGROUP_FIELDS)
        yield from (f"spec.subGroups[{index}].{field}" for field in unread)


def _config(document: RawObject) -> Iterator[MigrationNote]:
    text = "there is no operator; one process does everything, see docs/install.md"
    yield _note(Compatibility.MISSING, document, "", text)
    spec = mapping_at(document, "spec")
    for field, path in GLOBAL_PATHS.items():
        if value_at(spec, field):
            text = f"set {path} in the configuration, which --write-config writes"
            yield _note(Compatibility.DIFFERS, document, f"spec.{field}", text)
    for field in GLOBAL_SELECTORS:
        if value_at(spec, field):
            text = "has no counterpart: every pod that names the scheduler is scheduled"
            yield _note(Compatibility.MISSING, document, f"spec.{field}", text)


def _shard(document: RawObject) -> Iterator[MigrationNote]:
    text = (
        "is not read: one process per node pool, each with a configuration file, which "
        "`kai-py migrate --write-config` writes"
    )
    yield _note(Compatibility.MISSING, document, "", text)
    spec = document.get("spec")
    for field, value in spec.items() if isinstance(spec, Mapping) else ():
        if field == "partitionLabelValue" and not value:
            continue  # the nodes without the label, as without a nodePool
        compatibility, advice = SHARD_SETTINGS.get(
            field, (Compatibility.MISSING, "has no counterpart")
        )
        yield _note(compatibility, document, f"spec.{field}", advice)
        if field in LISTED_SETTINGS:
            for path in _settings(value, field):
                yield _note(Compatibility.MISSING, document, f"spec.{path}", "has no counterpart")


def _settings(value: Any, path: str) -> Iterator[str]:
    """The paths of the settings inside a field that have no place in a configuration."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _settings(each, f"{path}.{key}")
    elif value is not None and path not in PATHS and path not in IMPLIED_SETTINGS:
        yield path


def _workload(document: RawObject) -> Iterator[MigrationNote]:
    for path, values in annotation_maps(document):
        for key in values:
            feature = feature_of(str(key))
            if feature is not None:
                compatibility, text = feature
                yield _note(compatibility, document, f"{path}[{key}]", text)
        if keys.QUEUE in values and "scheduling.kai.io/queue-name" in values:
            text = "scheduling.kai.io/queue-name takes precedence"
            yield _note(Compatibility.DIFFERS, document, f"{path}[{keys.QUEUE}]", text)


def _note(
    compatibility: Compatibility, document: RawObject, field: str, text: str
) -> MigrationNote:
    name = _name(document) or _identity(document, "generateName")
    parts = (document.get("kind", ""), _identity(document, "namespace"), name)
    return MigrationNote(compatibility, "/".join(str(part) for part in parts if part), field, text)


def _name(document: RawObject) -> str:
    return _identity(document, "name")


def _identity(document: RawObject, field: str) -> str:
    return str(mapping_at(document, "metadata").get(field, ""))
