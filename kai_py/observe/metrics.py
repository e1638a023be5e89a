"""Prometheus metrics of the scheduler; names, labels and meanings are a public interface.

Children of bounded label sets are created in advance, so that a rate exists from the first scrape
on. Labels are bounded by queues, kinds and stages, never by pods or gangs. A single cycle or gang
is an exemplar of a histogram's bucket, which only the OpenMetrics format shows; its names and
values have at most 128 characters together (OpenMetrics 1.0, "Exemplars").
"""

import asyncio
import math
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai_py.plan.extensions import queue_key
from kai_py.plan.plan import Action, Plan
from kai_py.watch.freshness import Freshness
from kai_py.watch.mirror import Mirror

MAX_EXEMPLAR_CHARACTERS = 128


def exemplar(name: str, value: str) -> dict[str, str]:
    """The exemplar; a value too long loses its beginning, since names differ at their ends."""
    return {name: value[len(name) - MAX_EXEMPLAR_CHARACTERS :]}


CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
GANG_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
CYCLE_STAGES = ("snapshot", "plan", "commit", "total")
EVICTION_OUTCOMES = ("evicted", "blocked", "deleted", "unbound", "failed")
BINDING_OUTCOMES = ("bound", "deleted", "bound_elsewhere", "failed")
REPAIR_OUTCOMES = ("reserved", "restored", "evicted", "failed")
GANG_OUTCOMES = ("bound", "partial", "rolled_back")
SET_ASIDE_CAUSES = ("error", "time")
CORES = 1e-3
QUEUE_VIEWS = ("deserved", "maximum", "fair_share", "allocated", "requested")


class Metrics:
    """All metrics of one process, to be registered on ``registry`` once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._counter = partial(Counter, registry=registry)
        self._gauge = partial(Gauge, registry=registry)
        self._histogram = partial(Histogram, registry=registry)
        self._cycle()
        self._work()
        self._api()

    def _cycle(self) -> None:
        self.cycle_seconds = self._histogram(
            "kai_py_cycle_seconds",
            "Time of the stages of a scheduling cycle.",
            ("stage",),
            buckets=CYCLE_BUCKETS,
        )
        self.cycle_failures = self._counter(
            "kai_py_cycle_failures_total",
            "Cycles that ended in an unexpected error.",
        )
        self.gangs_set_aside = self._counter(
            "kai_py_gangs_set_aside_total",
            "Gangs that were set aside: planning them failed (error), or took too long (time).",
            ("cause",),
        )
        self.extensions_set_aside = self._counter(
            "kai_py_extensions_set_aside_total",
            "Failures of a score or action of an installed package, a step of a cycle, or a queue.",
            ("extension",),
        )
        self.contained_failures = self._counter(
            "kai_py_contained_failures_total",
            "Unexpected errors that affected a single object, by part of the scheduler.",
            ("part",),
        )
        invalid_objects = self._gauge(
            "kai_py_invalid_objects",
            "Objects that are ignored, or used differently than written, by kind.",
            ("kind",),
        )
        pending_gangs = self._gauge(
            "kai_py_pending_gangs",
            "Gangs that stay pending, by queue and by the stage that stops them.",
            ("queue", "stage"),
        )
        queue_amounts = self._gauge(
            "kai_py_queue_resources",
            "Resources of a queue: deserved, maximum, fair_share, allocated, requested; in cores, "
            "bytes and devices. What is unlimited has no series.",
            ("queue", "resource", "view"),
        )
        self._invalid_objects = GaugeValues(invalid_objects)
        self._pending_gangs = GaugeValues(pending_gangs)
        self._queue_amounts = GaugeValues(queue_amounts)
        self.leader = self._gauge("kai_py_leader", "1 while this process leads, else 0.")
        for stage in CYCLE_STAGES:
            self.cycle_seconds.labels(stage)
        for cause in SET_ASIDE_CAUSES:
            self.gangs_set_aside.labels(cause)

    def _work(self) -> None:
        self.bindings = self._counter(
            "kai_py_pod_bindings_total",
            "Bindings of pods by outcome; the rate of `bound` is pods bound per second.",
            ("outcome",),
        )
        self.gangs = self._counter(
            "kai_py_gang_transactions_total",
            "Gang transactions by action and outcome: bound, partial, rolled back.",
            ("action", "outcome"),
        )
        self.gang_bind_seconds = self._histogram(
            "kai_py_gang_bind_seconds",
            "Time from the plan that places a gang to its last binding.",
            buckets=GANG_BUCKETS,
        )
        self.evictions = self._counter(
            "kai_py_evictions_total",
            "Evictions requested, by action and outcome.",
            ("action", "outcome"),
        )
        self.claims_recovered = self._counter(
            "kai_py_claims_recovered_total",
            "Orphaned claims whose devices were released.",
        )
        self.repairs = self._counter(
            "kai_py_pod_repairs_total",
            "Bound pods whose claims had lost their devices, by what was done: reserved, restored, "
            "evicted, failed.",
            ("outcome",),
        )
        self.double_allocations = self._counter(
            "kai_py_device_double_allocations_total",
            "Devices of kai-py's claims that another claim has allocated too.",
        )
        for outcome in REPAIR_OUTCOMES:
            self.repairs.labels(outcome)
        for outcome in BINDING_OUTCOMES:
            self.bindings.labels(outcome)
        for action in Action:
            for outcome in GANG_OUTCOMES:
                self.gangs.labels(action.value, outcome)
            for outcome in EVICTION_OUTCOMES:
                self.evictions.labels(action.value, outcome)

    def _api(self) -> None:
        self.api_calls = self._counter(
            "kai_py_api_calls_total",
            "Calls to the API server by verb, kind and HTTP code; code 0 means no response.",
            ("verb", "kind", "code"),
        )
        self.api_seconds = self._histogram(
            "kai_py_api_call_seconds",
            "Time of calls to the API server.",
            ("verb", "kind"),
            buckets=CALL_BUCKETS,
        )
        watch_lag = self._gauge(
            "kai_py_watch_lag_seconds",
            "Time since the last event or bookmark of a kind's watch.",
            ("kind",),
        )
        watch_silent = self._gauge(
            "kai_py_watch_silent_seconds",
            "Time since a kind that decisions depend on was last read: by event, bookmark or list.",
            ("kind",),
        )
        watch_behind = self._gauge(
            "kai_py_watch_behind_seconds",
            "Time for which a kind's watch has not shown a write of this process; 0 while it does.",
            ("kind",),
        )
        self.watch_lag = GaugeValues(watch_lag)
        self.watch_silent = GaugeValues(watch_silent)
        self.watch_behind = GaugeValues(watch_behind)
        self.kind_refused = self._gauge(
            "kai_py_kind_refused",
            "1 for a kind that could not be read because the permission is missing, else 0.",
            ("kind",),
        )
        self.loop_lag = self._gauge(
            "kai_py_event_loop_lag_seconds",
            "Delay of the event loop at its last wake-up.",
        )
        self.events_dropped = self._counter(
            "kai_py_events_dropped_total",
            "Events that were not written: too many at once, or rejected, as in a namespace that "
            "is being deleted.",
        )

    @contextmanager
    def timed(self, stage: str, cycle: int) -> Iterator[None]:
        """Observe the time of the block as a stage; the cycle's number is the exemplar."""
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self.cycle_seconds.labels(stage).observe(seconds, exemplar("cycle", str(cycle)))

    def count_call(
        self, verb: str, kind: str, code: int, seconds: float, _failure: str = ""
    ) -> None:
        """Count an API call; code 0 means that there was no answer."""
        self.api_calls.labels(verb, kind, str(code)).inc()
        self.api_seconds.labels(verb, kind).observe(seconds)

    def show_invalid(self, kinds: Iterable[str]) -> None:
        """Set the gauge of objects that are not used as written, given the kind of each."""
        self._invalid_objects.show(Tally((kind,) for kind in kinds))

    def show_plan(self, plan: Plan) -> None:
        """Set the gauges from a plan; deleted queues disappear."""
        # Tenants may name queues without end that do not exist: these gangs count together.
        queues = {share.queue for share in plan.queues}
        self._pending_gangs.show(
            Tally(
                (each.queue if each.queue in queues else "", each.stage.value)
                for each in plan.unplaced
            )
        )
        for each in plan.set_aside:
            self.gangs_set_aside.labels("error" if each.error else "time").inc()
        for each in plan.failed_extensions:
            # Of queues together: the series of one that is deleted would remain.
            is_queue = each.gang.startswith(queue_key(""))
            self.extensions_set_aside.labels("queue" if is_queue else each.gang).inc()
        self._queue_amounts.show(
            {
                (share.queue, resource, view): amount * (CORES if resource == "cpu" else 1.0)
                for share, view in product(plan.queues, QUEUE_VIEWS)
                for resource, amount in getattr(share, view).items()
                if math.isfinite(amount)
            }
        )


MONITOR_SECONDS = 5.0


async def measure_process(metrics: Metrics, mirror: Mirror, freshness: Freshness) -> None:
    """Set the gauges of the event loop and of the watches, until cancelled."""
    loop, forbidden = asyncio.get_running_loop(), set[str]()
    while True:
        due = loop.time() + MONITOR_SECONDS
        await asyncio.sleep(MONITOR_SECONDS)
        metrics.loop_lag.set(max(0.0, loop.time() - due))
        kinds = mirror.status()
        # By resource and group: several groups have a kind Queue or PodGroup.
        read = (kind for kind in kinds if kind.api_version and not kind.missing_permission)
        metrics.watch_lag.show({(kind.permission,): kind.age for kind in read})
        now_forbidden = {kind.missing_permission for kind in kinds if kind.missing_permission}
        forbidden |= now_forbidden
        for each in forbidden:
            metrics.kind_refused.labels(each).set(each in now_forbidden)
        views = {(view.kind.permission,): view for view in freshness.measure()}
        metrics.watch_silent.show({kind: view.silent_for for kind, view in views.items()})
        metrics.watch_behind.show({kind: view.behind_for for kind, view in views.items()})


Labels = tuple[str, ...]


class GaugeValues:
    """The values of a gauge by its labels, replaced as a whole; nothing else may set it.

    Most are as they were before. Only the others are set: a gauge that is cleared creates all its
    children again.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: dict[Labels, float] = {}

    def show(self, values: Mapping[Labels, float]) -> None:
        """Show ``values`` and nothing else."""
        for labels in [each for each in self._shown if each not in values]:
            self._gauge.remove(*labels)
            del self._shown[labels]
        for labels, value in values.items():
            if self._shown.get(labels) != value:
                self._gauge.labels(*labels).set(value)
                self._shown[labels] = value
