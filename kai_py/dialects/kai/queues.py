"""KAI Queues (``scheduling.run.ai/v2``) in our terms and units.

    quota             deserved: -1 is unlimited, 0 or unset is none
    limit             max: -1 is unlimited, **0 or unset is zero**, for cpu and memory too
    overQuotaWeight   weight per resource: 0 or unset gets nothing of the surplus
    cpu, memory       millicores and megabytes of 10**6; gpu in devices
    priority          100 where unset
    min runtimes      inherited where unset

Resources that KAI doesn't know are not limited. An invalid amount is reported at the queue and
counts as none; so is an invalid min runtime, which is then inherited.

Source: KAI-Scheduler, docs/queues and the Queue type.
"""

import math

from kai_py.api.records.kai import (
    DEFAULT_PRIORITY,
    QUEUE_API_VERSION,
    UNLIMITED,
    KaiQueue,
    KaiShare,
)
from kai_py.api.times import DurationError, parse_duration
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.tables.queue_objects import KAI_UNITS
from kai_py.snapshot.tables.queues import QueueFault, QueueInfo, QueueProblem


def kai_queue_info(queue: KaiQueue) -> QueueInfo:
    """The spec of ``queue``."""
    spec, created = queue.spec, queue.metadata.creation_timestamp
    shares = {name: _share(queue, name) for name in KAI_UNITS}
    problems: list[QueueProblem] = []
    preempt = _seconds(queue, "preemptMinRuntime", spec.preempt_min_runtime, problems)
    reclaim = _seconds(queue, "reclaimMinRuntime", spec.reclaim_min_runtime, problems)
    return QueueInfo(
        name=queue.metadata.name,
        parent=spec.parent_queue,
        deserved={name: _amount(share.quota, name) for name, share in shares.items()},
        max={name: _amount(share.limit, name) for name, share in shares.items()},
        weights={name: share.over_quota_weight for name, share in shares.items()},
        priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        created=created.timestamp() if created else 0.0,
        preempt_min_runtime=preempt,
        reclaim_min_runtime=reclaim,
        api_version=QUEUE_API_VERSION,
        problems=tuple(problems),
    )


def _share(queue: KaiQueue, resource: str) -> KaiShare:
    resources = queue.spec.resources
    return {GPU: resources.gpu, "cpu": resources.cpu, "memory": resources.memory}[resource]


def _amount(amount: float, resource: str) -> float:
    return math.inf if amount == UNLIMITED else amount * KAI_UNITS[resource]


def _seconds(
    queue: KaiQueue, field: str, text: str | None, problems: list[QueueProblem]
) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except DurationError as error:
        name = queue.metadata.name
        reason = f"queue {name!r}: spec.{field}: {error}; it is inherited until corrected"
        problems.append(QueueProblem(name, QueueFault.INVALID_AMOUNT, reason))
        return None
