"""KAI's own settings as a configuration of ours: SchedulingShards and defaults by kind.

One configuration per shard, as one process schedules a node pool. What has no counterpart is left
out; ``migration_notes`` names it. Values are copied as they are written: reading the configuration
checks them.

Source: KAI-Scheduler, SchedulingShard kai.scheduler/v1; the ConfigMap that
``defaultConfigPerTypeConfigMapName`` names, key ``types``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

RawObject = Mapping[str, Any]
TYPES_KEY = "types"
DEFAULT_SHARD = "default"
PATHS: Mapping[str, str] = {
    "partitionLabelValue": "nodePool.name",
    "placementStrategy.gpu": "placement.gpu",
    "placementStrategy.cpu": "placement.cpu",
    "minRuntime.preemptMinRuntime": "eviction.preemptMinRuntime",
    "minRuntime.reclaimMinRuntime": "eviction.reclaimMinRuntime",
    "kValue": "fairShare.usageWeight",
    "usageDBConfig.connectionString": "fairShare.prometheus.url",
    "usageDBConfig.usageParams.halfLifePeriod": "fairShare.halfLife",
    "usageDBConfig.usageParams.windowSize": "fairShare.prometheus.window.size",
    "usageDBConfig.usageParams.windowType": "fairShare.prometheus.window.type",
    "usageDBConfig.usageParams.tumblingWindowStartTime": "fairShare.prometheus.window.start",
    "usageDBConfig.usageParams.cronString": "fairShare.prometheus.window.cron",
    "usageDBConfig.usageParams.fetchInterval": "fairShare.prometheus.interval",
    "args.schedule-period": "cyclePeriod",
    "args.default-staleness-grace-period": "eviction.stalenessGrace",
    "args.max-consolidation-preemptees": "eviction.consolidateAtMost",
    "args.scheduler-name": "schedulerName",
    "actions.preempt.enabled": "eviction.preempt",
    "actions.reclaim.enabled": "eviction.reclaim",
    "actions.consolidation.enabled": "eviction.consolidate",
}
"""Fields of a shard's spec, and where their values belong in a configuration."""
NUMBERS = frozenset({"eviction.consolidateAtMost", "fairShare.usageWeight"})
"""Numbers that KAI writes as text."""
USAGE_FIELDS = "fairShare.prometheus."


def configurations_of(documents: Iterable[RawObject]) -> dict[str, dict[str, Any]]:
    """A configuration for each shard, by the shard's name; one called ``default`` without any."""
    known = list(documents)
    shards = {
        str(_value(each, "metadata.name") or ""): _mapping(each.get("spec"))
        for each in known
        if each.get("kind") == "SchedulingShard"
    }
    defaults = [entry for each in known for entry in kind_defaults(each)]
    return {
        name: _configuration(spec, defaults)
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


def _configuration(spec: RawObject, defaults: list[dict[str, str]]) -> dict[str, Any]:
    kai: dict[str, Any] = {"queueMetrics": True}
    if defaults:
        kai["kindDefaults"] = defaults
    configuration: dict[str, Any] = {"rules": "kai", "kai": kai}
    has_usage = bool(_value(spec, "usageDBConfig.connectionString"))
    for field, path in PATHS.items():
        value = _value(spec, field)
        if value is None or value == "" or (path.startswith(USAGE_FIELDS) and not has_usage):
            continue
        _put(configuration, path, _number(value) if path in NUMBERS else value)
    return configuration


def _value(spec: RawObject, field: str) -> Any:
    value: Any = spec
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _mapping(value: Any) -> RawObject:
    return value if isinstance(value, Mapping) else {}


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
