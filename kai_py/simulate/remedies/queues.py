"""Remedies in queues and budgets: bounds, eviction limits, reservations, minimum runtimes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kai_py.api.queue import API_VERSION
from kai_py.api.texts import count_of
from kai_py.observe.suggestion import Suggestion, SuggestionStep, Verb
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Stage
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.queue_bounds import QueueBound, RaisedBound, bound_patches
from kai_py.simulate.remedies.search import RemedySearch, first_verified, patch
from kai_py.snapshot.accounting import total
from kai_py.snapshot.tables.queues import QueueInfo

MAX_EVICTIONS = 1024
MIN_RUNTIMES: Mapping[str, Callable[[QueueInfo], float | None]] = {
    "reclaimMinRuntime": lambda spec: spec.reclaim_min_runtime,
    "preemptMinRuntime": lambda spec: spec.preempt_min_runtime,
}


def create_queue(search: RemedySearch) -> Iterator[Suggestion]:
    """Create the queue that the gang names."""
    name = search.gang.queue
    if not name:
        return
    document = {
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 0},
    }
    step = SuggestionStep(
        verb=Verb.CREATE, api_version=API_VERSION, kind="Queue", name=name, document=document
    )
    yield from search.verified(f"create the Queue {name}", step)


def open_queue(search: RemedySearch) -> Iterator[Suggestion]:
    """Let the queue, and those above it, take workloads of the gang's namespace."""
    namespace, closed = search.gang.owner.namespace, dict[str, dict[str, Any]]()
    name = search.gang.queue
    while (queue := search.queue_object(name)) is not None and name not in closed:
        rule = queue["spec"].get("namespaces")
        if rule is not None and namespace not in (rule.get("names") or ()):
            closed[name] = {**rule, "names": [*rule.get("names", ()), namespace]}
        name = queue["spec"].get("parent", "")
    steps = [set_field(each, "namespaces", rule) for each, rule in closed.items()]
    if steps:
        text = f"let namespace {namespace} use Queue {' and '.join(closed)} (spec.namespaces)"
        yield from search.verified(text, *steps)


def raise_maximum(search: RemedySearch) -> Iterator[Suggestion]:
    """Raise the exceeded max of the queue, and of its ancestors."""
    return first_verified(
        _raise_bounds(search, QueueBound.MAX, list(_exceeding(search, needed, _maximum)))
        for needed in _required_amounts(search, _counted)
    )


def raise_deserved(search: RemedySearch) -> Iterator[Suggestion]:
    """Raise what the queue and its ancestors deserve to their usage with the gang.

    For non-preemptible pods only the usage of such pods counts. For a fair share, the resources in
    which it would be exceeded are tried first, and the gang's own queue before its ancestors.
    """
    if search.stage is Stage.NON_PREEMPTIBLE:
        return first_verified(
            _raise_bounds(search, QueueBound.DESERVED, list(_exceeding(search, needed, _deserved)))
            for needed in _required_amounts(search, _non_preemptible)
        )
    return first_verified(
        _raise_bounds(search, QueueBound.DESERVED, missing[:count])
        for needed in _required_amounts(search, _allocated)
        for bounds in ((_fair_share, _deserved), (_deserved,))
        for missing in [list(_exceeding(search, needed, *bounds))]
        for count in range(1, len(missing) + 1)
    )


Amounts = Callable[[QueueShare], Mapping[str, float]]
RequiredBound = tuple[QueueShare, Mapping[str, float]]
"""A queue, and the bound it needs by resource, in the snapshot's units."""


def _allocated(share: QueueShare) -> Mapping[str, float]:
    return share.allocated


def _counted(share: QueueShare) -> Mapping[str, float]:
    return total((share.allocated, share.owed))


def _non_preemptible(share: QueueShare) -> Mapping[str, float]:
    return total((share.non_preemptible, share.owed_non_preemptible))


def _maximum(share: QueueShare) -> Mapping[str, float]:
    return share.maximum


def _deserved(share: QueueShare) -> Mapping[str, float]:
    return share.deserved


def _fair_share(share: QueueShare) -> Mapping[str, float]:
    return share.fair_share


def _required_amounts(search: RemedySearch, allocated: Amounts) -> Iterator[Amounts]:
    """Amounts that a queue would be allocated, the least first.

    With the pods that the gang lacks to start; with all its pods; where other gangs of the queue
    would take the capacity, with all of those too.
    """
    for pending in search.pending_amounts():
        yield partial(_with_requested, allocated, pending)
    yield lambda share: {name: share.requested.get(name, 0.0) for name in search.charge}


def _with_requested(
    allocated: Amounts, requested: Mapping[str, float], share: QueueShare
) -> Mapping[str, float]:
    return {name: allocated(share).get(name, 0.0) + amount for name, amount in requested.items()}


def _exceeding(search: RemedySearch, needed: Amounts, *bounds: Amounts) -> Iterator[RequiredBound]:
    """From the gang's own queue to the root: the queues that need more than each of ``bounds``."""
    for share in search.path():
        amounts = {
            resource: amount
            for resource, amount in needed(share).items()
            if all(amount > bound(share).get(resource, math.inf) for bound in bounds)
        }
        if amounts:
            yield share, amounts


def _raise_bounds(
    search: RemedySearch, bound: QueueBound, required: Sequence[RequiredBound]
) -> Iterator[Suggestion]:
    descriptions: list[str] = []
    steps: list[SuggestionStep] = []
    for share, amounts in required:
        queue = search.queue_object(share.queue)
        found = queue and bound_patches(queue, _raised_bounds(share, bound, amounts))
        if not queue or not found:
            return iter(())
        fields, change = found
        descriptions += (f"{each.field} of Queue {share.queue} to {each.value}" for each in fields)
        steps.append(patch(queue, change))
    return search.verified(f"set {' and '.join(descriptions)}", *steps)


def _raised_bounds(
    share: QueueShare, bound: QueueBound, amounts: Mapping[str, float]
) -> Iterator[RaisedBound]:
    """The bounds of one queue to raise; deserved may not exceed max."""
    for resource, amount in amounts.items():
        yield RaisedBound(bound, resource, amount)
        if bound is QueueBound.DESERVED and share.maximum.get(resource, math.inf) < amount:
            yield RaisedBound(QueueBound.MAX, resource, amount)


def set_field(queue: str, field: str, value: object) -> SuggestionStep:
    """Set a field of a Queue's spec; None removes it."""
    document = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": queue}}
    return patch(document, {"spec": {field: value}})


def raise_eviction_limit(search: RemedySearch) -> Iterator[Suggestion]:
    """Raise ``maxEvictionsPerHour`` of a queue to the least value with which the gang starts."""
    limited = [
        spec.name for spec in search.snapshot.queues if spec.max_evictions_per_hour is not None
    ]
    return first_verified(_raise_queue_limit(search, name) for name in sorted(limited))


def _raise_queue_limit(search: RemedySearch, queue: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[SuggestionStep]:
        return (set_field(queue, "maxEvictionsPerHour", count),)

    count_needed = search.smallest_count(steps, limit=MAX_EVICTIONS)
    if count_needed:
        evictions = count_of(count_needed, "eviction")
        text = f"allow {evictions} an hour in Queue {queue} (maxEvictionsPerHour)"
        yield from search.verified(text, *steps(count_needed))


def relax_disruption_budget(search: RemedySearch) -> Iterator[Suggestion]:
    """Let a PodDisruptionBudget allow the least number of disruptions that is enough."""
    return first_verified(
        _relax_budget(search, each) for each in search.of_kind("PodDisruptionBudget")
    )


def _relax_budget(search: RemedySearch, budget: Document) -> Iterator[Suggestion]:
    """By the field that it has: ``maxUnavailable`` counts only pods of controllers with a scale."""
    is_min_available = "minAvailable" in (budget.get("spec") or {})
    field = "minAvailable" if is_min_available else "maxUnavailable"
    healthy = (budget.get("status") or {}).get("currentHealthy", 0)

    def steps(count: int) -> tuple[SuggestionStep]:
        return (
            patch(
                budget, {"spec": {field: max(healthy - count, 0) if is_min_available else count}}
            ),
        )

    count_needed = search.smallest_count(steps, limit=MAX_EVICTIONS)
    if count_needed:
        disruptions = count_of(count_needed, "disruption")
        [step] = steps(count_needed)
        name = f"{step.namespace}/{step.name}"
        text = f"let PodDisruptionBudget {name} allow {disruptions} at a time ({field})"
        yield from search.verified(text, step)


def disable_reservation(search: RemedySearch) -> Iterator[Suggestion]:
    """Stop reserving nodes for gangs of a queue that have waited longer."""
    reserving = sorted(s.name for s in search.snapshot.queues if s.reserve_after is not None)
    return first_verified(
        search.verified(
            f"reserve no nodes for gangs of Queue {name} (reserveAfter)",
            set_field(name, "reserveAfter", None),
        )
        for name in reserving
    )


def disable_min_runtime(search: RemedySearch) -> Iterator[Suggestion]:
    """Remove the minimum runtime that protects gangs of a queue."""
    return first_verified(
        search.verified(
            f"set {field} of Queue {name} to 0s",
            patch(queue, {"spec": {field: "0s"}}),
        )
        for field, min_runtime in MIN_RUNTIMES.items()
        for name in sorted(spec.name for spec in search.snapshot.queues if min_runtime(spec))
        for queue in [search.queue_object(name)]
        if queue is not None
    )
