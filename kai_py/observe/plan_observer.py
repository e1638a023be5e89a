"""What is shown of every plan: decisions, shares, metrics, the set-aside log.

None of it may keep the plan from being executed: what fails is counted, and the rest is shown.
"""

import asyncio
import logging
from collections.abc import Callable

from kai_py.observe.activity_log import SetAsideLog
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import MAX_DECISIONS, Decision, DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.event_history import decisions_of_events, read_scheduler_events
from kai_py.observe.failures import Failures
from kai_py.observe.kai_metrics import KaiQueueMetrics
from kai_py.observe.metrics import Metrics
from kai_py.observe.share_history import ShareHistory
from kai_py.plan.plan import Plan
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
        self._set_aside_log.tell(plan)
        with contained("metrics"):
            self._metrics.show_plan(plan)
            unreadable = [each.kind for kind in self._mirror.status() for each in kind.rejected]
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
