"""Queue objects as users write them: their fields and amounts in either API, and QueueInfo of them.

KAI counts cpu in millicores and memory in megabytes of 10**6, and writes -1 for unlimited.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

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
from kai_py.api.records.kai import QUEUE_API_VERSION
from kai_py.api.texts import count_of
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queues import (
    DeviceLimit,
    EvictionRecord,
    NamespaceRule,
    QueueInfo,
    UsageRecord,
)

KAI_UNITS: Mapping[str, float] = {GPU: 1.0, "cpu": 1.0, "memory": 1e6}
"""Row amount of one of KAI's units, by resource; of others its Queues have no fields."""
KAI_BOUNDS: Mapping[str, str] = {"deserved": "quota", "max": "limit", "weight": "overQuotaWeight"}
"""KAI's names of the fields of a resource, by ours."""
_KAI_UNIT_NAMES = {"cpu": "millicores", "memory": "MB"}


class QueueFields(Struct, frozen=True):
    """The fields of Queues of one API."""

    api_version: str

    @property
    def is_kai(self) -> bool:
        """Whether they are those of KAI's Queues."""
        return self.api_version == QUEUE_API_VERSION

    @property
    def parent(self) -> str:
        """The field that names the parent."""
        return "spec.parentQueue" if self.is_kai else "spec.parent"

    def path(self, resource: str, bound: str) -> str:
        """The field for ``deserved``, ``max`` or ``weight`` (``bound``) of a resource."""
        if self.is_kai:
            return f"spec.resources.{resource}.{KAI_BOUNDS[bound]}"
        return f"spec.{bound}GPUs" if resource == GPU else f"spec.resources[{resource}].{bound}"

    def has(self, resource: str) -> bool:
        """Whether there are fields for a resource."""
        return not self.is_kai or resource in KAI_UNITS

    def unit(self, resource: str) -> float:
        """Row amount of the unit in which the fields have a resource."""
        return KAI_UNITS[resource] if self.is_kai else native_unit(resource)

    def text(self, amount: float, resource: str) -> str:
        """An amount in row units as people read it."""
        if self.is_kai and math.isinf(amount):
            return "-1 (unlimited)"
        shown = amount / self.unit(resource)
        if resource == GPU:
            return count_of(shown, "GPU")
        return f"{shown:.10g} {_KAI_UNIT_NAMES[resource] if self.is_kai else resource}"


def native_unit(resource: str) -> float:
    """Row amount of one unit of our own API, which has cores."""
    return 1000.0 if resource == "cpu" else 1.0


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
        if share.deserved is not None:
            deserved[name] = share.deserved.as_float() * unit
        elif share.weight is not None:
            deserved[name] = 0.0  # a weight divides what is not deserved
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
