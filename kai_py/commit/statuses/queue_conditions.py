"""Conditions of a queue; their messages name the field at fault and the remedy.

Ready         False while the queue can't be used as written: MissingParent, Cycle,
              TooDeep, AncestorOrphan, InvalidAmount, InvalidSelector. True with reason
              DeservedScaledDown while the cluster is too small for all that is guaranteed,
              else Accepted; the message then says whether every namespace may use the queue, and
              which DeviceClasses that it names do not exist.
Orphan        True where the queue is treated as a root only because its parent, or that of a
              queue above it, can't be used.
OverDeserved  True while more is allocated than deserved: other queues may reclaim the rest.
OverMax       True while more is allocated than max: max was lowered, and no pod starts.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from kai_py.api.queue_status import ORPHAN, OVER_DESERVED, OVER_MAX, READY
from kai_py.plan.observations import QueueShare
from kai_py.snapshot.tables.queue_objects import QueueFields
from kai_py.snapshot.tables.queues import QueueFault, QueueProblem

BROKEN_PARENT = (QueueFault.MISSING_PARENT, QueueFault.CYCLE, QueueFault.TOO_DEEP)
ACCEPTED = "Accepted"
ANCESTOR_ORPHAN = "AncestorOrphan"
OPEN = "every namespace may use this queue: spec.namespaces is not set"
ABSENT_CLASS = "spec.devices bounds nothing by DeviceClass {}, which does not exist"
TOLERANCE = 1e-6


class QueueCondition(Struct, frozen=True):
    """A condition without its transition time and generation."""

    type: str
    status: Literal["True", "False"]
    reason: str
    message: str = ""


def queue_conditions(
    share: QueueShare, shares: Mapping[str, QueueShare]
) -> tuple[QueueCondition, ...]:
    """The conditions of ``share``; ``shares`` are all queues of the plan by name."""
    return (
        _ready(share, shares, _orphan_ancestor(share, shares)),
        _orphan(share, _orphan_ancestor(share, shares)),
        _over_deserved(share),
        _over_max(share),
    )


def _ready(
    share: QueueShare, shares: Mapping[str, QueueShare], above: QueueShare | None
) -> QueueCondition:
    if share.problems:
        message = "; ".join(_with_field(problem, share) for problem in share.problems)
        return QueueCondition(READY, "False", share.problems[0].fault.value, message)
    if above:
        return QueueCondition(READY, "False", ANCESTOR_ORPHAN, _ancestor_message(above))
    if share.scaled_deserved:
        message = "; ".join(
            _cut_message(share, shares, resource) for resource in sorted(share.scaled_deserved)
        )
        return QueueCondition(READY, "True", "DeservedScaledDown", message)
    is_chosen = not QueueFields(share.api_version).is_kai  # whose Queues cannot name namespaces
    notes = [OPEN] if share.is_open and is_chosen else []
    notes += map(ABSENT_CLASS.format, share.absent_classes)
    return QueueCondition(READY, "True", ACCEPTED, "; ".join(notes))


def _orphan(share: QueueShare, above: QueueShare | None) -> QueueCondition:
    problem = next((each for each in share.problems if each.fault in BROKEN_PARENT), None)
    if problem is not None:
        return QueueCondition(ORPHAN, "True", problem.fault.value, _with_field(problem, share))
    if above:
        return QueueCondition(ORPHAN, "True", ANCESTOR_ORPHAN, _ancestor_message(above))
    return QueueCondition(ORPHAN, "False", "InTree")


def _over_deserved(share: QueueShare) -> QueueCondition:
    fields = QueueFields(share.api_version)
    message = "; ".join(
        f"{fields.text(allocated, resource)} allocated, {fields.path(resource, 'deserved')} is "
        f"{fields.text(deserved, resource)}: queues below their fair share may reclaim the rest"
        for resource, allocated, deserved in _exceeded(share, share.deserved)
    )
    if message:
        return QueueCondition(OVER_DESERVED, "True", "AboveDeserved", message)
    return QueueCondition(OVER_DESERVED, "False", "WithinDeserved")


def _over_max(share: QueueShare) -> QueueCondition:
    fields = QueueFields(share.api_version)
    message = "; ".join(
        f"{fields.text(allocated, resource)} allocated, {fields.path(resource, 'max')} is "
        f"{fields.text(maximum, resource)}: nothing starts until pods end or it is raised"
        for resource, allocated, maximum in _exceeded(share, share.maximum)
    )
    if message:
        return QueueCondition(OVER_MAX, "True", "AboveMax", message)
    return QueueCondition(OVER_MAX, "False", "WithinMax")


def _orphan_ancestor(share: QueueShare, shares: Mapping[str, QueueShare]) -> QueueShare | None:
    """The queue above whose parent can't be used, None if there is none."""
    while share.parent:
        share = shares[share.parent]
    return share if any(p.fault in BROKEN_PARENT for p in share.problems) else None


def _ancestor_message(above: QueueShare) -> str:
    return (
        f"queue {above.queue!r} above it has no usable {QueueFields(above.api_version).parent} and "
        "is treated as a root queue; correct it there"
    )


def _with_field(problem: QueueProblem, share: QueueShare) -> str:
    if problem.fault in BROKEN_PARENT:
        field = QueueFields(share.api_version).parent
        return f"{field}: {problem.reason}; until then the queue is treated as a root"
    return problem.reason


def _cut_message(share: QueueShare, shares: Mapping[str, QueueShare], resource: str) -> str:
    fields = QueueFields(share.api_version)
    deserved, scaled = share.deserved[resource], share.scaled_deserved[resource]
    siblings = [each for each in shares.values() if each.parent == share.parent]
    guaranteed = sum(
        each.scaled_deserved.get(resource, each.deserved.get(resource, 0.0)) for each in siblings
    )
    if len(siblings) > 1 and deserved > guaranteed * (1 + TOLERANCE):
        return (
            f"{fields.path(resource, 'deserved')} is {fields.text(deserved, resource)}, more than "
            f"the {fields.text(guaranteed, resource)} that all {len(siblings)} sibling queues "
            f"can be guaranteed together: this lowers the guarantees of the others, and leaves "
            f"{fields.text(scaled, resource)} for this queue; lower it to what the queue needs"
        )
    return (
        f"{fields.path(resource, 'deserved')} is {fields.text(deserved, resource)}, of which "
        f"{fields.text(scaled, resource)} can be guaranteed: the cluster is smaller than the sum "
        "of the guarantees"
    )


def _exceeded(share: QueueShare, bounds: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Resources allocated above their bound: (resource, allocated, bound)."""
    for resource in sorted(share.allocated):
        allocated, bound = share.allocated[resource], bounds.get(resource, math.inf)
        is_bounded = QueueFields(share.api_version).has(resource)
        # Relative, as amounts are sums of floats, and absolute, as a bound may be 0.
        if is_bounded and allocated > bound * (1 + TOLERANCE) + TOLERANCE:
            yield resource, allocated, bound
