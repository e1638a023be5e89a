"""Which change of a queue or a budget would let a gang start?"""

import math
from collections.abc import Callable, Iterator

from kai_py.api.queue import API_VERSION
from kai_py.observe.suggestion import Step, Suggestion, Verb
from kai_py.plan.decisions import QueueShare
from kai_py.simulate.question import Question, first, patch
from kai_py.simulate.what_if import least
from kai_py.snapshot.accounting import GPU

MOST_EVICTIONS = 1024


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
    """Raise ``maxGPUs`` of the queue and of those above it that are in the way."""
    return _larger(question, "maxGPUs", lambda share: share.maximum.get(GPU, math.inf))


def larger_guarantee(question: Question) -> Iterator[Suggestion]:
    """Raise ``deservedGPUs`` likewise."""
    return _larger(question, "deservedGPUs", lambda share: share.deserved.get(GPU, 0.0))


def _larger(
    question: Question, field: str, bound: Callable[[QueueShare], float]
) -> Iterator[Suggestion]:
    """Room for the gang alone; where others of the queue would take it, room for all of them."""
    path = tuple(question.path())
    alone = [share.allocated[GPU] + question.asked for share in path]
    wanted = (alone, [share.requested[GPU] for share in path])
    return first(_raised(question, field, bound, path, amounts) for amounts in wanted)


def _raised(
    question: Question,
    field: str,
    bound: Callable[[QueueShare], float],
    path: tuple[QueueShare, ...],
    amounts: list[float],
) -> Iterator[Suggestion]:
    raised = [
        (share.queue, math.ceil(amount))
        for share, amount in zip(path, amounts, strict=True)
        if bound(share) < amount
    ]
    text = " and ".join(f"{field} of Queue {queue} {amount}" for queue, amount in raised)
    steps = (set_field(queue, field, amount) for queue, amount in raised)
    return question.proven(f"make {text}", *steps)


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
    def step(count: int) -> Step:
        return set_field(queue, "maxEvictionsPerHour", count)

    enough = least(lambda count: question.starts(step(count)) is not None, most=MOST_EVICTIONS)
    if enough is not None:
        text = f"let Queue {queue} lose {enough} pods an hour (maxEvictionsPerHour)"
        yield from question.proven(text, step(enough))


def more_disruptions(question: Question) -> Iterator[Suggestion]:
    """The least number of pods that a PodDisruptionBudget lets go, with which the gang starts."""
    return first(_disrupting(question, each) for each in question.of_kind("PodDisruptionBudget"))


def _disrupting(question: Question, budget: dict[str, object]) -> Iterator[Suggestion]:
    def step(count: int) -> Step:
        return patch(budget, {"spec": {"minAvailable": None, "maxUnavailable": count}})

    enough = least(
        lambda count: count > 0 and question.starts(step(count)) is not None, most=MOST_EVICTIONS
    )
    if enough:
        named = f"{step(enough).namespace}/{step(enough).name}"
        text = f"let PodDisruptionBudget {named} lose {enough} pods at a time (maxUnavailable)"
        yield from question.proven(text, step(enough))


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
