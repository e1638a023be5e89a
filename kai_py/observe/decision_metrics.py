"""Metrics of decisions: waiting times of gangs, and GPU time lost to evictions.

A gang's waiting time runs from its creation, or from the last eviction of a pod of it, to the
placement of minMember. An evicted pod had run since it was bound; it loses that, or the time since
the last checkpoint that its workload declares. An eviction that is refused and repeated counts
once. Labels: queues, five sizes of gangs, actions, how often a gang was evicted; the gang is an
exemplar of the waiting time, of which each bucket keeps only the last.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from kai_py.api.times import DAY, HOUR, happened_within
from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.observe.metrics import exemplar
from kai_py.plan.plan import Action, Plan
from kai_py.policy.lost_work import EARLY_SECONDS, lost_seconds
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.assumptions import LONGEST_BACKOFF

WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, HOUR, 4 * HOUR, 12 * HOUR, DAY)
SIZES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST_SIZE = "513+"

MOST_TIMES = 4
"""Gangs that were evicted so often within a day count together."""
TIMES = (*map(str, range(1, MOST_TIMES)), f"{MOST_TIMES}+")

MAX_EVICTED_GANGS = 16_384
"""Gangs whose evictions of the last day are remembered."""


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
        self._run_gpu_seconds = Counter(
            "kai_py_evicted_gpu_seconds_total",
            "GPU-seconds that evicted pods had run, by action.",
            ("action",),
            registry=registry,
        )
        self._lost_gpu_seconds = Counter(
            "kai_py_lost_gpu_seconds_total",
            "GPU-seconds of work that evicted pods have to repeat, by queue and action.",
            ("queue", "action"),
            registry=registry,
        )
        self._lost: set[tuple[str, str]] = set()
        self._evicted_gangs = Counter(
            "kai_py_gangs_evicted_total",
            "Evictions of gangs, by queue and how often the gang was evicted within a day.",
            ("queue", "times"),
            registry=registry,
        )
        self._evicted: set[tuple[str, str]] = set()
        self._queues: set[str] = set()
        self._eviction_times: dict[str, list[float]] = {}
        """By gang, those evicted last at the end."""
        self._evicted_pods: dict[str, float] = {}
        """By uid, when the eviction of a pod was last decided; the latest at the end.

        Within ``LONGEST_BACKOFF`` it is repeated only because it was refused.
        """
        self._early_pods = Counter(
            "kai_py_pods_evicted_early_total",
            "Pods evicted within two minutes of their start, by action.",
            ("action",),
            registry=registry,
        )
        for action in Action:
            # Creates the series, so that its rate starts at zero.
            self._run_gpu_seconds.labels(action.value)
            self._early_pods.labels(action.value)

    def count(self, decisions: Iterable[Decision], gangs: Mapping[str, Gang], now: float) -> None:
        """Count the decisions of a cycle; ``gangs`` are those of its snapshot, by key."""
        self._forget_evicted(now)
        for decision in decisions:
            gang = gangs.get(decision.gang)
            if gang is None:
                continue
            if decision.kind is DecisionKind.PLACED and not gang.bound:
                since = max(gang.created, gang.settings.last_evicted or 0.0)
                size = size_label(len(gang.members))
                self._waited.add((gang.queue, size))
                wait = self._wait_seconds.labels(gang.queue, size)
                wait.observe(max(now - since, 0.0), exemplar("gang", decision.gang))
            elif decision.kind is DecisionKind.EVICTED:
                self._count_evicted(decision, gang, now)

    def _count_evicted(self, decision: Decision, gang: Gang, now: float) -> None:
        names, action = set(decision.pods), decision.action
        chosen = [member for member in gang.bound if str(member.pod) in names]
        evicted = [member for member in chosen if member.pod.uid not in self._evicted_pods]
        for member in chosen:
            self._evicted_pods.pop(member.pod.uid, None)
            self._evicted_pods[member.pod.uid] = now
        if not evicted:
            return
        self._count_evicted_gang(decision.gang, gang.queue, now)
        ran = [(m, max(now - m.bound_since, 0.0), m.charged_gpus) for m in evicted]
        self._run_gpu_seconds.labels(action).inc(sum(time * gpus for _, time, gpus in ran))
        self._early_pods.labels(action).inc(sum(time < EARLY_SECONDS for _, time, _ in ran))
        self._lost.add((gang.queue, action))
        self._lost_gpu_seconds.labels(gang.queue, action).inc(
            sum(lost_seconds(gang, member, now, 0.0) * gpus for member, _, gpus in ran)
        )

    def _count_evicted_gang(self, key: str, queue: str, now: float) -> None:
        recent = [at for at in self._eviction_times.pop(key, []) if at > now - DAY]
        if recent and recent[-1] == now:
            # Pods that two rules evict in one cycle are one eviction of their gang.
            self._eviction_times[key] = recent
            return
        self._eviction_times[key] = [*recent[-MOST_TIMES:], now]
        times = TIMES[min(len(recent), MOST_TIMES - 1)]
        self._evicted.add((queue, times))
        self._evicted_gangs.labels(queue, times).inc()

    def _forget_evicted(self, now: float) -> None:
        while self._evicted_pods:
            pod, at = next(iter(self._evicted_pods.items()))
            if happened_within(LONGEST_BACKOFF, at, now):
                break
            del self._evicted_pods[pod]
        while self._eviction_times:
            first = next(iter(self._eviction_times))
            counts = self._eviction_times[first][-1] > now - DAY
            if counts and len(self._eviction_times) <= MAX_EVICTED_GANGS:
                return
            del self._eviction_times[first]

    def keep_queues(self, plan: Plan) -> None:
        """Drop the series of queues that are gone: their names never end.

        The counters of new queues start at zero, or the first eviction would be in no rate.
        """
        present = {share.queue for share in plan.queues}
        for metric, known in (
            (self._wait_seconds, self._waited),
            (self._lost_gpu_seconds, self._lost),
            (self._evicted_gangs, self._evicted),
        ):
            gone = {(queue, label) for queue, label in known if queue not in present}
            for queue, label in gone:
                metric.remove(queue, label)
            known.difference_update(gone)
        for queue in present - self._queues:
            for action in Action:
                self._lost_gpu_seconds.labels(queue, action.value)
                self._lost.add((queue, action.value))
            for times in TIMES:
                self._evicted_gangs.labels(queue, times)
                self._evicted.add((queue, times))
        self._queues = present


def size_label(pods: int) -> str:
    """The size of a gang as a label value of a bounded set."""
    return next((label for limit, label in SIZES if pods <= limit), LARGEST_SIZE)
