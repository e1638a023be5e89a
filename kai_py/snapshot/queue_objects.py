"""From a Queue as users write it to the spec in row units: the only place that knows both."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kai_py.api.queue import API_VERSION, DeviceShare, NamespaceFilter, Queue
from kai_py.api.queue_status import PastEviction, Usage
from kai_py.api.records.core import LabelSelector, Requirement
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.queue_specs import (
    DeviceLimit,
    EvictionRecord,
    NamespaceRule,
    QueueSpec,
    UsageRecord,
)

GPUS = "gpus"
"""GPUs of every kind together, as users see them."""


def queue_spec(queue: Queue, created: float = 0.0) -> QueueSpec:
    """The spec of ``queue``; ``created`` in seconds since the epoch."""
    spec = queue.spec
    deserved: dict[str, float] = {GPU: spec.deserved_gpus}
    ceiling: dict[str, float] = {} if spec.max_gpus is None else {GPU: spec.max_gpus}
    weights: dict[str, float] = {}
    for name, share in spec.resources.items():
        unit = _unit(name)
        deserved[name] = share.deserved.number() * unit
        if share.max is not None:
            ceiling[name] = share.max.number() * unit
        if share.weight is not None:
            weights[name] = share.weight
    for entry in spec.devices:
        devices = _devices_row(entry)
        deserved[devices] = entry.deserved.number()
        if entry.max is not None:
            ceiling[devices] = entry.max.number()
    return QueueSpec(
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
        api_version=API_VERSION,
        usage=_usage(queue.status.usage),
        evictions=tuple(
            EvictionRecord(each.workload, each.at.timestamp(), each.pods)
            for each in queue.status.evictions
        ),
        namespaces=None if spec.namespaces is None else _namespace_rule(spec.namespaces),
        device_limits=tuple(
            limit for entry in spec.devices if (limit := _device_limit(entry)) is not None
        ),
    )


def _namespace_rule(wanted: NamespaceFilter) -> NamespaceRule:
    if wanted.selector is None:
        return NamespaceRule(wanted.names)
    expressions = tuple(
        Requirement(key=each.key, operator=each.operator, values=each.values)
        for each in wanted.selector.match_expressions
    )
    labels = dict(wanted.selector.match_labels)
    return NamespaceRule(
        wanted.names, LabelSelector(match_labels=labels, match_expressions=expressions)
    )


def usage_status(record: UsageRecord) -> Usage:
    """Past use as the status of a queue holds it."""
    return Usage(
        observed_at=datetime.fromtimestamp(record.at, UTC),
        half_life=record.half_life,
        used=_shown(record.held),
        capacity=_shown(record.offered),
    )


def eviction_status(record: EvictionRecord) -> PastEviction:
    """A past eviction as the status of a queue holds it."""
    at = datetime.fromtimestamp(record.at, UTC)
    return PastEviction(workload=record.gang[:512], at=at, pods=record.pods)


def _usage(usage: Usage | None) -> UsageRecord | None:
    if usage is None:
        return None
    at = usage.observed_at.timestamp()
    return UsageRecord(at, _kept(usage.used), _kept(usage.capacity), usage.half_life)


def _shown(amounts: Mapping[str, float]) -> dict[str, float]:
    return {GPUS if name == GPU else name: amount for name, amount in in_api_units(amounts).items()}


def _kept(amounts: Mapping[str, float]) -> dict[str, float]:
    return {GPU if name == GPUS else name: amount * _unit(name) for name, amount in amounts.items()}


def _devices_row(entry: DeviceShare) -> str:
    limit = _device_limit(entry)
    return DEVICE_CLASS + (entry.device_class_name or "") if limit is None else limit.row


def _device_limit(entry: DeviceShare) -> DeviceLimit | None:
    if entry.attribute is None:
        return None
    return DeviceLimit(entry.attribute, tuple(sorted(set(entry.values or ()))))


def in_api_units(amounts: Mapping[str, float]) -> dict[str, float]:
    """Row units back to what the API shows: cpu in cores."""
    return {name: amount / _unit(name) for name, amount in amounts.items()}


def field_of(resource: str, bound: str) -> str:
    """Where a Queue says ``deserved`` or ``max`` of a resource."""
    if resource == GPU:
        return f"spec.{bound}GPUs"
    return f"spec.resources[{resource}].{bound}"


def amount_text(amount: float, resource: str) -> str:
    """An amount in row units as people read it."""
    (shown,) = in_api_units({resource: amount}).values()
    return f"{shown:.10g} GPUs" if resource == GPU else f"{shown:.10g} {resource}"


def _unit(resource: str) -> float:
    return 1000.0 if resource == "cpu" else 1.0
