"""Metrics of decisions: waiting times of gangs, and GPU time lost to evictions.

A gang's waiting time runs from its creation, or from the last eviction of a pod of it, to the
placement of minMember. An eviction loses the time since the pod was bound, times its GPUs, whether
or not the workload can resume from a checkpoint. Labels: queues, five sizes of gangs, actions; the
gang is an exemplar of the waiting time, of which each bucket keeps only the last.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.observe.metrics import exemplar
from kai_py.plan.plan import Action, Plan
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang

WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
SIZES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST_SIZE = "513+"


class DecisionMetrics:
    """Metrics of decisions, to be registered on ``registry`` once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait_seconds = Histogram(
            "kai_py_gang_wait_seconds",
            "Time that gangs were pending until placed, by queue and number of pods.",
            ("queue", "size"),
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._waited: set[tuple[str, str]] = set()
        self._lost_gpu_seconds = Counter(
            "kai_py_evicted_gpu_seconds_total",
            "GPU-seconds that evicted pods had run, by action.",
            ("action",),
            registry=registry,
        )
        for action in Action:
            # Creates the series, so that its rate starts at zero.
            self._lost_gpu_seconds.labels(action.value)

    def count(self, decisions: Iterable[Decision], gangs: Mapping[str, Gang], now: float) -> None:
        """Count the decisions of a cycle; ``gangs`` are those of its snapshot, by key."""
        for decision in decisions:
            gang = gangs.get(decision.gang)
            if gang is None:
                continue
            if decision.kind is DecisionKind.PLACED and not gang.bound:
                since = max(gang.created, gang.last_evicted or 0.0)
                size = size_label(len(gang.members))
                self._waited.add((gang.queue, size))
                wait = self._wait_seconds.labels(gang.queue, size)
                wait.observe(max(now - since, 0.0), exemplar("gang", decision.gang))
            elif decision.kind is DecisionKind.EVICTED:
                self._lost_gpu_seconds.labels(decision.action).inc(
                    lost_gpu_seconds(decision, gang, now)
                )

    def keep_queues(self, plan: Plan) -> None:
        """Drop the series of queues that are gone: their names never end."""
        present = {share.queue for share in plan.queues}
        gone = {(queue, size) for queue, size in self._waited if queue not in present}
        for queue, size in gone:
            self._wait_seconds.remove(queue, size)
        self._waited -= gone


def size_label(pods: int) -> str:
    """The size of a gang as a label value of a bounded set."""
    return next((label for limit, label in SIZES if pods <= limit), LARGEST_SIZE)


def lost_gpu_seconds(decision: Decision, gang: Gang, now: float) -> float:
    """GPU-seconds that the evicted pods had run."""
    evicted = set(decision.pods)
    return sum(
        max(now - member.bound_since, 0.0) * member.charge.get(GPU, 0.0)
        for member in gang.bound
        if str(member.pod) in evicted
    )
