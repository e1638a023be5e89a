"""Publishes every plan: decisions, shares, metrics, the set-aside log.

A failure here must not keep the plan from being executed: it is counted, and the rest is published.

The metrics ``kai_queue_*`` have KAI's names and units, for dashboards made for KAI: unlimited is
-1, as in KAI's Queue. Past usage (``kai_queue_gpu_usage`` and the like) is missing.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from kai_py.observe.activity_log import SetAsideLog
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import MAX_DECISIONS, Decision, DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.event_history import decisions_of_events, read_scheduler_events
from kai_py.observe.failures import Failures
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.metrics import CORES, GaugeValues, Labels, Metrics
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import GPU
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError
from kai_py.watch.kinds import KAI_QUEUES
from kai_py.watch.mirror import Mirror

log = logging.getLogger(__name__)

RECALL_SECONDS = 30.0
PlanListener = Callable[[Plan], None]


class PlanObserver:
    """Shows plans; ``view`` is the last one with its snapshot, None before the first.

    ``on_plan`` is called with every plan. ``kai_metrics``: whether KAI's metrics are served, too.
    """

    def __init__(
        self,
        mirror: Mirror,
        metrics: Metrics,
        failures: Failures,
        *,
        kai_metrics: bool,
        on_plan: PlanListener,
    ) -> None:
        self.view: ClusterView | None = None
        self.decisions = DecisionLog(before=MAX_DECISIONS)
        self.shares = ShareHistory()
        self._mirror, self._metrics, self._failures = mirror, metrics, failures
        self._on_plan = on_plan
        self._set_aside_log = SetAsideLog()
        self._decision_metrics = DecisionMetrics(metrics.registry)
        ClusterMetrics(metrics.registry, lambda: self.view)
        self._kai_metrics = (
            KaiQueueMetrics(metrics.registry, self._display_name) if kai_metrics else None
        )

    def show(self, view: ClusterView, now: float) -> tuple[Decision, ...]:
        """Show the plan of ``view``; returns its decisions."""
        self.view = view
        plan, snapshot = view.plan, view.snapshot
        contained, decisions = self._failures.contained, tuple[Decision, ...]()
        with contained("decisions"):
            decisions = self.decisions.record(plan, snapshot.gangs, now)
            self._decision_metrics.count(decisions, snapshot.gangs, now)
            self._decision_metrics.keep_queues(plan)
        with contained("the history of shares"):
            self.shares.record(plan, now)
        self._set_aside_log.record(plan)
        with contained("metrics"):
            self._metrics.show_plan(plan)
            kinds = self._mirror.status_of_unreadable()
            unreadable = [each.kind for kind in kinds for each in kind.rejected]
            self._metrics.show_invalid([*unreadable, *(p.object.kind for p in plan.problems)])
            if self._kai_metrics is not None:
                self._kai_metrics.show_plan(plan)
        with contained("the plan's listener"):
            self._on_plan(plan)
        return decisions

    async def recall_decisions(self, client: Client, scheduler_name: str) -> None:
        """Take over what earlier leaders decided: their events carry it, for as long as they live.

        Events are the only record that every leader writes already and that ends by itself.
        """
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                events = await read_scheduler_events(client, scheduler_name, [""])
        except (ApiError, TimeoutError) as error:
            log.info("decisions of earlier leaders are not known: %s", error or "no answer")
            return
        with self._failures.contained("decisions of earlier leaders"):
            self.decisions.recall(decisions_of_events(events))

    def _display_name(self, queue: str) -> str:
        """The display name of a queue, if it has one in KAI's Queue."""
        found = self._mirror.objects(KAI_QUEUES).get(("", queue))
        return (found.spec.display_name if found is not None else "") or queue


GIGABYTES = 1e-9
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
        info = Gauge("kai_queue_info", "1 for every queue.", QUEUE, registry=registry)
        self._info = GaugeValues(info)
        self._gauges = {
            name: GaugeValues(Gauge(name, text, labels, registry=registry))
            for views, labels in ((CONTROLLER_VIEWS, QUEUE), (SCHEDULER_VIEWS, NAMES))
            for name, text, *_ in views
        }

    def show_plan(self, plan: Plan) -> None:
        """Set the gauges from a plan; deleted queues disappear."""
        self._info.show({(share.queue,): 1 for share in plan.queues})
        names = [(each, self._names(each.queue)) for each in plan.queues]
        for views, labels in ((CONTROLLER_VIEWS, QUEUE), (SCHEDULER_VIEWS, NAMES)):
            for name, _, view, resource, unit in views:
                values = {
                    of_queue[: len(labels)]: _shown(getattr(share, view).get(resource, 0.0), unit)
                    for share, of_queue in names
                }
                self._gauges[name].show(values)

    def _names(self, queue: str) -> Labels:
        return queue, queue, self._display_name(queue)


def _shown(amount: float, unit: float) -> float:
    return amount * unit if math.isfinite(amount) else -1.0
