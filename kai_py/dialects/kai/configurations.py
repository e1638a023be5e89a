"""KAI's own settings as configurations: those of its Config, of its shards, and defaults by kind.

There is one configuration per SchedulingShard, as one process schedules a node pool. What has no
counterpart is left out; ``migration_notes`` names it. Values are copied as they are written:
reading the configuration checks them.

Source: KAI-Scheduler, Config and SchedulingShard kai.scheduler/v1; the ConfigMap that
``defaultConfigPerTypeConfigMapName`` names, key ``types``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kai_py.api.records.unstructured import mapping_at, value_at

RawObject = Mapping[str, Any]

TYPES_KEY = "types"
DEFAULT_SHARD = "default"
STALENESS_GRACE = "eviction.stalenessGrace"
NEVER = "2562047h"
"""The longest time; a negative one means never in KAI."""
PATHS: Mapping[str, str] = {
    "partitionLabelValue": "nodePool.name",
    "placementStrategy.gpu": "placement.gpu",
    "placementStrategy.cpu": "placement.cpu",
    "minRuntime.preemptMinRuntime": "eviction.preemptMinRuntime",
    "minRuntime.reclaimMinRuntime": "eviction.reclaimMinRuntime",
    "minRuntime.reclaimResolveMethod": "eviction.reclaimResolveMethod",
    "kValue": "fairShare.usageWeight",
    "usageDBConfig.connectionString": "fairShare.prometheus.url",
    "usageDBConfig.usageParams.halfLifePeriod": "fairShare.halfLife",
    "usageDBConfig.usageParams.windowSize": "fairShare.prometheus.window.size",
    "usageDBConfig.usageParams.windowType": "fairShare.prometheus.window.type",
    "usageDBConfig.usageParams.tumblingWindowStartTime": "fairShare.prometheus.window.start",
    "usageDBConfig.usageParams.cronString": "fairShare.prometheus.window.cron",
    "usageDBConfig.usageParams.fetchInterval": "fairShare.prometheus.interval",
    "args.schedule-period": "cyclePeriod",
    "args.default-staleness-grace-period": STALENESS_GRACE,
    "args.max-consolidation-preemptees": "eviction.consolidateAtMost",
    "args.scheduler-name": "schedulerName",
    "actions.preempt.enabled": "eviction.preempt",
    "actions.reclaim.enabled": "eviction.reclaim",
    "actions.consolidation.enabled": "eviction.consolidate",
}
"""Fields of a shard's spec, and where their values belong in a configuration."""
GLOBAL_PATHS: Mapping[str, str] = {
    "global.schedulerName": "schedulerName",
    "global.queueLabelKey": "kai.queueLabel",
    "global.nodePoolLabelKey": "nodePool.label",
}
"""Fields of a Config's spec, and where their values belong in every configuration."""
NUMBERS = frozenset({"eviction.consolidateAtMost", "fairShare.usageWeight"})
"""Numbers that KAI writes as text."""
USAGE_FIELDS = "fairShare.prometheus."


def configurations_of(documents: Iterable[RawObject]) -> dict[str, dict[str, Any]]:
    """A configuration for each shard, by the shard's name; one called ``default`` without any."""
    known = list(documents)
    shards = {
        str(value_at(each, "metadata.name") or ""): mapping_at(each, "spec")
        for each in known
        if each.get("kind") == "SchedulingShard"
    }
    defaults = [entry for each in known for entry in kind_defaults(each)]
    global_spec = next((mapping_at(each, "spec") for each in known if is_config(each)), {})
    return {
        name: _configuration(spec, defaults, global_spec)
        for name, spec in sorted(shards.items() or {DEFAULT_SHARD: {}}.items())
    }


def kind_defaults(document: RawObject) -> Iterator[dict[str, str]]:
    """The entries of ``kai.kindDefaults`` that a ConfigMap of KAI has; none of any other object."""
    data = document.get("data")
    if document.get("kind") != "ConfigMap" or not isinstance(data, Mapping):
        return
    try:
        entries = json.loads(data.get(TYPES_KEY) or "[]")
    except (TypeError, ValueError, RecursionError):
        return
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("typeName"):
            written = {
                "kind": entry["typeName"],
                "group": entry.get("group"),
                "priorityClass": entry.get("priorityName"),
                "preemptibility": str(entry.get("preemptibility") or "").lower(),
            }
            yield {key: str(value) for key, value in written.items() if value}


def _configuration(
    spec: RawObject, defaults: list[dict[str, str]], global_spec: RawObject
) -> dict[str, Any]:
    kai: dict[str, Any] = {"queueMetrics": True}
    if defaults:
        kai["kindDefaults"] = defaults
    configuration: dict[str, Any] = {"rules": "kai", "kai": kai}
    for field, path in GLOBAL_PATHS.items():
        if value := value_at(global_spec, field):
            _put(configuration, path, value)
    has_usage = bool(value_at(spec, "usageDBConfig.connectionString"))
    for field, path in PATHS.items():
        value = value_at(spec, field)
        if value is None or value == "" or (path.startswith(USAGE_FIELDS) and not has_usage):
            continue
        if path == STALENESS_GRACE and str(value).startswith("-"):
            value = NEVER
        _put(configuration, path, _number(value) if path in NUMBERS else value)
    return configuration


def is_config(document: RawObject) -> bool:
    """Whether the object is a Config of KAI; other APIs have objects of this kind, too."""
    return is_kind(document, "kai.scheduler", "Config")


def _number(value: Any) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return int(number) if number.is_integer() else number


def _put(configuration: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for part in above:
        configuration = configuration.setdefault(part, {})
    configuration[last] = value


def is_kind(document: RawObject, group: str, kind: str) -> bool:
    """Whether the object is of this API group and kind, in any version."""
    return group_of(document) == group and document.get("kind") == kind


def group_of(document: RawObject) -> str:
    """The API group of the object."""
    return str(document.get("apiVersion", "")).rpartition("/")[0]
