"""Which change of a queue or a budget would let a gang start?"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from kai_py.api.queue import API_VERSION
from kai_py.observe.suggestion import Step, Suggestion, Verb
from kai_py.plan.plan import QueueShare, Stage
from kai_py.simulate.objects import Document
from kai_py.simulate.queue_bounds import Bound, Raise, written_together
from kai_py.simulate.remedy_search import Question, first, patch
from kai_py.snapshot.queue_specs import QueueSpec

MOST_EVICTIONS = 1024
MIN_RUNTIMES: Mapping[str, Callable[[QueueSpec], float | None]] = {
    "reclaimMinRuntime": lambda spec: spec.reclaim_min_runtime,
    "preemptMinRuntime": lambda spec: spec.preempt_min_runtime,
}


def missing_queue(question: Question) -> Iterator[Suggestion]:
    """Create the queue that the gang names."""
    name = question.gang.queue
    if not name:
        return
    document = {
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 0},
    }
    step = Step(
        verb=Verb.CREATE, api_version=API_VERSION, kind="Queue", name=name, document=document
    )
    yield from question.proven(f"create the Queue {name}", step)


def larger_maximum(question: Question) -> Iterator[Suggestion]:
    """Raise the max of the queue, and of those above it, in every resource that is in the way."""
    return first(
        _raised(question, Bound.MAX, list(_short(question, needed, _maximum)))
        for needed in _needs(question, _allocated)
    )


def larger_guarantee(question: Question) -> Iterator[Suggestion]:
    """Let the queue, and those above it, deserve what the gang would have them hold.

    For pods that nobody can take back only such pods count. For a fair share, the resources in
    which it would be exceeded are tried first, and the gang's own queue before those above it.
    """
    if question.stage is Stage.NON_PREEMPTIBLE:
        return first(
            _raised(question, Bound.DESERVED, list(_short(question, needed, _deserved)))
            for needed in _needs(question, _fixed)
        )
    return first(
        _raised(question, Bound.DESERVED, missing[:count])
        for needed in _needs(question, _allocated)
        for bounds in ((_fair_share, _deserved), (_deserved,))
        for missing in [list(_short(question, needed, *bounds))]
        for count in range(1, len(missing) + 1)
    )


Amounts = Callable[[QueueShare], Mapping[str, float]]
Missing = tuple[QueueShare, Mapping[str, float]]
"""A queue, and what it would have to be entitled to, in row units."""


def _allocated(share: QueueShare) -> Mapping[str, float]:
    return share.allocated


def _fixed(share: QueueShare) -> Mapping[str, float]:
    return share.non_preemptible


def _maximum(share: QueueShare) -> Mapping[str, float]:
    return share.maximum


def _deserved(share: QueueShare) -> Mapping[str, float]:
    return share.deserved


def _fair_share(share: QueueShare) -> Mapping[str, float]:
    return share.fair_share


def _needs(question: Question, held: Amounts) -> Iterator[Amounts]:
    """What a queue would hold, the least first.

    With the pods that the gang lacks to start; with all its pods; where others of the queue would
    take the room, with all of those too.
    """
    for asked in question.asks():
        yield partial(_with, held, asked)
    yield lambda share: {name: share.requested.get(name, 0.0) for name in question.charge}


def _with(held: Amounts, asked: Mapping[str, float], share: QueueShare) -> Mapping[str, float]:
    return {name: held(share).get(name, 0.0) + amount for name, amount in asked.items()}


def _short(question: Question, needed: Amounts, *bounds: Amounts) -> Iterator[Missing]:
    """From the gang's own queue to the root: those that need more than each of ``bounds``."""
    for share in question.path():
        amounts = {
            resource: amount
            for resource, amount in needed(share).items()
            if all(amount > bound(share).get(resource, math.inf) for bound in bounds)
        }
        if amounts:
            yield share, amounts


def _raised(question: Question, bound: Bound, missing: Sequence[Missing]) -> Iterator[Suggestion]:
    told: list[str] = []
    steps: list[Step] = []
    for share, amounts in missing:
        queue = question.queue_object(share.queue)
        found = queue and written_together(queue, _raises(share, bound, amounts))
        if not queue or not found:
            return iter(())
        fields, change = found
        told += (f"{each.field} of Queue {share.queue} {each.value}" for each in fields)
        steps.append(patch(queue, change))
    return question.proven(f"make {' and '.join(told)}", *steps)


def _raises(share: QueueShare, bound: Bound, amounts: Mapping[str, float]) -> Iterator[Raise]:
    """The bounds of one queue; what it deserves may not be above its max."""
    for resource, amount in amounts.items():
        yield Raise(bound, resource, amount)
        if bound is Bound.DESERVED and share.maximum.get(resource, math.inf) < amount:
            yield Raise(Bound.MAX, resource, amount)


def set_field(queue: str, field: str, value: object) -> Step:
    """Set a field of a Queue's spec; None takes it away."""
    document = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": queue}}
    return patch(document, {"spec": {field: value}})


def more_evictions(question: Question) -> Iterator[Suggestion]:
    """The least ``maxEvictionsPerHour`` of a queue that has one, with which the gang starts."""
    limited = [
        spec.name for spec in question.snapshot.queues if spec.max_evictions_per_hour is not None
    ]
    return first(_evicting(question, name) for name in sorted(limited))


def _evicting(question: Question, queue: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[Step]:
        return (set_field(queue, "maxEvictionsPerHour", count),)

    enough = question.least(steps, most=MOST_EVICTIONS)
    if enough:
        text = f"let Queue {queue} lose {enough} pods an hour (maxEvictionsPerHour)"
        yield from question.proven(text, *steps(enough))


def more_disruptions(question: Question) -> Iterator[Suggestion]:
    """The least number of pods that a PodDisruptionBudget lets go, with which the gang starts."""
    return first(_disrupting(question, each) for each in question.of_kind("PodDisruptionBudget"))


def _disrupting(question: Question, budget: Document) -> Iterator[Suggestion]:
    """By the field that it has: ``maxUnavailable`` counts only pods of controllers with a scale."""
    keeps = "minAvailable" in (budget.get("spec") or {})
    field = "minAvailable" if keeps else "maxUnavailable"
    healthy = (budget.get("status") or {}).get("currentHealthy", 0)

    def steps(count: int) -> tuple[Step]:
        return (patch(budget, {"spec": {field: max(healthy - count, 0) if keeps else count}}),)

    enough = question.least(steps, most=MOST_EVICTIONS)
    if enough:
        [step] = steps(enough)
        named = f"{step.namespace}/{step.name}"
        text = f"let PodDisruptionBudget {named} lose {enough} pods at a time ({field})"
        yield from question.proven(text, step)


def nothing_kept(question: Question) -> Iterator[Suggestion]:
    """Let no nodes be kept for gangs of a queue that have waited longer."""
    keeping = sorted(s.name for s in question.snapshot.queues if s.reserve_after is not None)
    return first(
        question.proven(
            f"keep no nodes for gangs of Queue {name} (reserveAfter)",
            set_field(name, "reserveAfter", None),
        )
        for name in keeping
    )


def no_least_runtime(question: Question) -> Iterator[Suggestion]:
    """Let gangs of a queue that says for how long they are safe be safe no longer."""
    return first(
        question.proven(
            f"let gangs of Queue {name} be safe for no time ({field})",
            patch(queue, {"spec": {field: "0s"}}),
        )
        for field, said in MIN_RUNTIMES.items()
        for name in sorted(spec.name for spec in question.snapshot.queues if said(spec))
        for queue in [question.queue_object(name)]
        if queue is not None
    )
