"""Metrics ``kai_queue_*`` with KAI's names and units, for dashboards made for KAI.

Unlimited is -1, as in KAI's Queue. Past usage (``kai_queue_gpu_usage`` and the like) is missing.
"""

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import GPU

CORES, GIGABYTES = 1e-3, 1e-9
QUEUE = ("queue_name",)
NAMES = ("queue_name", "queue_metadata_name", "queue_display_name")
CONTROLLER_VIEWS = (
    ("kai_queue_deserved_gpus", "Quota of GPUs.", "deserved", GPU, 1.0),
    ("kai_queue_quota_cpu_cores", "Quota of CPU cores.", "deserved", "cpu", CORES),
    ("kai_queue_quota_memory_bytes", "Quota of memory.", "deserved", "memory", 1.0),
    ("kai_queue_allocated_gpus", "Allocated GPUs.", "allocated", GPU, 1.0),
    ("kai_queue_allocated_cpu_cores", "Allocated CPU cores.", "allocated", "cpu", CORES),
    ("kai_queue_allocated_memory_bytes", "Allocated memory.", "allocated", "memory", 1.0),
)
SCHEDULER_VIEWS = (
    ("kai_queue_fair_share_gpu", "Fair share of GPUs.", "fair_share", GPU, 1.0),
    ("kai_queue_fair_share_cpu_cores", "Fair share of CPU cores.", "fair_share", "cpu", CORES),
    ("kai_queue_fair_share_memory_gb", "Fair share of memory.", "fair_share", "memory", GIGABYTES),
)


class KaiQueueMetrics:
    """The gauges; ``display_name`` returns the display name of a queue."""

    def __init__(self, registry: CollectorRegistry, display_name: Callable[[str], str]) -> None:
        self._display_name = display_name
        self._info = Gauge("kai_queue_info", "1 for every queue.", QUEUE, registry=registry)
        self._gauges = {
            name: Gauge(name, text, labels, registry=registry)
            for views, labels in ((CONTROLLER_VIEWS, QUEUE), (SCHEDULER_VIEWS, NAMES))
            for name, text, *_ in views
        }

    def show_plan(self, plan: Plan) -> None:
        """Set the gauges from a plan; deleted queues disappear."""
        self._info.clear()
        for gauge in self._gauges.values():
            gauge.clear()
        for share in plan.queues:
            self._show(share)

    def _show(self, share: QueueShare) -> None:
        self._info.labels(share.queue).set(1)
        names = (share.queue, share.queue, self._display_name(share.queue))
        for views, labels in ((CONTROLLER_VIEWS, names[:1]), (SCHEDULER_VIEWS, names)):
            for name, _, view, resource, unit in views:
                amount = getattr(share, view).get(resource, 0.0)
                shown = amount * unit if math.isfinite(amount) else -1.0
                self._gauges[name].labels(*labels).set(shown)
