"""Conversion between Queue objects as users write them and QueueInfo in row units."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kai_py.api.queue import (
    API_VERSION,
    DeviceShare,
    NamespaceFilter,
    NamespaceSelector,
    Queue,
    SpareNodes,
)
from kai_py.api.queue_status import PastEviction, RecordedUsage
from kai_py.api.records.core import LabelSelector, SelectorRequirement
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queue_fields import native_unit
from kai_py.snapshot.tables.queues import (
    DeviceLimit,
    EvictionRecord,
    NamespaceRule,
    QueueInfo,
    UsageRecord,
)

GPUS = "gpus"
"""GPUs of every kind together, as users see them."""


def queue_info(queue: Queue, created: float = 0.0) -> QueueInfo:
    """``queue`` in row units; ``created`` in seconds since the epoch."""
    spec = queue.spec
    deserved: dict[str, float] = {GPU: spec.deserved_gpus}
    ceiling: dict[str, float] = {} if spec.max_gpus is None else {GPU: spec.max_gpus}
    weights: dict[str, float] = {}
    for name, share in spec.resources.items():
        unit = native_unit(name)
        deserved[name] = share.deserved.as_float() * unit
        if share.max is not None:
            ceiling[name] = share.max.as_float() * unit
        if share.weight is not None:
            weights[name] = share.weight
    for entry in spec.devices:
        devices = _device_resource(entry)
        deserved[devices] = entry.deserved.as_float()
        if entry.max is not None:
            ceiling[devices] = entry.max.as_float()
    selectors = tuple(DeviceLimit(selector=limit.selector) for limit in spec.limits)
    for selector, limit in zip(selectors, spec.limits, strict=True):
        most = limit.max.as_float()
        ceiling[selector.resource] = min(ceiling.get(selector.resource, most), most)
    by_attribute = (_device_limit(entry) for entry in spec.devices)
    return QueueInfo(
        name=queue.metadata.name,
        parent=spec.parent or "",
        deserved=deserved,
        max=ceiling,
        weight=spec.weight,
        weights=weights,
        priority=spec.priority,
        created=created,
        preempt_min_runtime=spec.preempt_min_runtime,
        reclaim_min_runtime=spec.reclaim_min_runtime,
        reserve_after=spec.reserve_after,
        ageing=spec.ageing,
        ageing_limit=spec.ageing_limit,
        max_evictions_per_hour=spec.max_evictions_per_hour,
        spot=spec.spot,
        spot_fallback=spec.spot_fallback,
        ready_timeout=spec.ready_timeout,
        ready_attempts=spec.ready_attempts,
        api_version=API_VERSION,
        usage=_usage(queue.status.usage),
        evictions=tuple(
            EvictionRecord(each.workload, each.at.timestamp(), each.pods, each.within_queue)
            for each in queue.status.evictions
        ),
        namespaces=None if spec.namespaces is None else _namespace_rule(spec.namespaces),
        device_limits=(*(limit for limit in by_attribute if limit is not None), *selectors),
        spares=None if spec.spares is None else _label_selector(spec.spares),
    )


def _namespace_rule(namespaces: NamespaceFilter) -> NamespaceRule:
    if namespaces.selector is None:
        return NamespaceRule(namespaces.names)
    return NamespaceRule(namespaces.names, _label_selector(namespaces.selector))


def _label_selector(selector: NamespaceSelector | SpareNodes) -> LabelSelector:
    expressions = tuple(
        SelectorRequirement(key=each.key, operator=each.operator, values=each.values)
        for each in selector.match_expressions
    )
    return LabelSelector(match_labels=dict(selector.match_labels), match_expressions=expressions)


def usage_status(record: UsageRecord) -> RecordedUsage:
    """Past use as the status of a queue holds it."""
    return RecordedUsage(
        observed_at=datetime.fromtimestamp(record.at, UTC),
        half_life=record.half_life,
        used=_to_api(record.used),
        capacity=_to_api(record.capacity),
    )


def eviction_status(record: EvictionRecord) -> PastEviction:
    """A past eviction as the status of a queue holds it."""
    at = datetime.fromtimestamp(record.at, UTC)
    return PastEviction(
        workload=record.gang[:512], at=at, pods=record.pods, within_queue=record.within_queue
    )


def _usage(usage: RecordedUsage | None) -> UsageRecord | None:
    if usage is None:
        return None
    at = usage.observed_at.timestamp()
    return UsageRecord(at, _from_api(usage.used), _from_api(usage.capacity), usage.half_life)


def _to_api(amounts: Mapping[str, float]) -> dict[str, float]:
    return {GPUS if name == GPU else name: amount for name, amount in in_api_units(amounts).items()}


def _from_api(amounts: Mapping[str, float]) -> dict[str, float]:
    units = {name: amount * native_unit(name) for name, amount in amounts.items()}
    return {GPU if name == GPUS else name: amount for name, amount in units.items()}


def _device_resource(entry: DeviceShare) -> str:
    limit = _device_limit(entry)
    return DEVICE_CLASS + (entry.device_class_name or "") if limit is None else limit.resource


def _device_limit(entry: DeviceShare) -> DeviceLimit | None:
    if entry.attribute is None:
        return None
    return DeviceLimit(entry.attribute, tuple(sorted(set(entry.values or ()))))


def in_api_units(amounts: Mapping[str, float]) -> dict[str, float]:
    """Row units back to what the API shows: cpu in cores."""
    return {name: amount / native_unit(name) for name, amount in amounts.items()}
