"""Protections: the rules by which no pod is evicted for a gang that lacks only capacity.

Such a gang would start if other pods were evicted. Where they may not be, its unschedulable reason
gets the stage of the rule that protects them:

    FairShare          its own queue would exceed its fair share (or, for non-preemptible pods, what
                       it deserves), so it may reclaim nothing from other queues
    EvictionLimits     the candidates are protected for now, by a disruption budget or eviction rate
    VictimsProtected   the other queues are within their shares, or too little of what they have
                       above them is past its min runtime

The stage stays as it is if the gang would not fit on empty nodes, if no pod that could be evicted
runs, or if the gang never preempts. This is for explanation only and decides nothing.
O(nodes) per shape and O(queues) per class of gang (queue, priority, cost), once per cycle.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from kai_py.api.texts import count_of, is_or_are
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action, Protection, ProtectionRule, Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.empty_nodes import eventually_admitted, replicas_on_empty
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.fit import StaticFit
from kai_py.policy.min_runtime import within_min_runtime
from kai_py.policy.queue_limits import display_amount, display_unit
from kai_py.policy.queue_usage import diverging_siblings, exceeds, exceeds_any
from kai_py.policy.reclaim_rules import (
    Reclaimer,
    ReclaimRefused,
    ReclaimRule,
    check_reclaimer,
    reclaimable_queues,
)
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.shape import Shape

MAX_QUEUES_LISTED = 3
CAPACITY_STAGES = frozenset({Stage.RESOURCES, Stage.DEVICES})

ProtectionVerdict = tuple[Stage, tuple[Protection, ...]]
RequesterClass = tuple[str, bool, int, bytes]
"""Queue, whether preemptible, priority, cost."""


@dataclass
class _Findings:
    """What was found for earlier gangs of the cycle.

    ``fits``: by number of a shape, how many of its pods fit on empty nodes; ``lasting``: by static
    fit, whether no node is left out for a passing state; ``verdicts``: by class of gang.
    """

    pool: VictimPool
    fits: dict[int, int] = field(default_factory=dict)
    lasting: dict[StaticFit, bool] = field(default_factory=dict)
    verdicts: dict[RequesterClass, ProtectionVerdict | None] = field(default_factory=dict)


def explain_protections(state: CycleState, gangs: Sequence[Gang]) -> None:
    """For each of ``gangs`` that lacks capacity, set the stage and the rules that protect pods."""
    short = [gang for gang in gangs if gang.may_preempt and _lacks_capacity(state, gang)]
    if not short:
        return
    findings = _Findings(VictimPool(state))
    if not findings.pool.queues():
        return
    for gang in state.turns.eligible(short):
        with state.turns.of(gang):
            _explain_for(state, gang, findings)


def _explain_for(state: CycleState, gang: Gang, findings: _Findings) -> None:
    reason = state.unschedulable[gang.key]
    request = state.next_request(gang)
    if request is None or not _fits_empty_nodes(state, request, findings):
        return
    verdict = _cached_verdict(state, gang, findings)
    if verdict is not None:
        state.mark_unschedulable(gang, _with_protections(reason, *verdict))


def _lacks_capacity(state: CycleState, gang: Gang) -> bool:
    reason = state.unschedulable.get(gang.key)
    return reason is not None and reason.stage in CAPACITY_STAGES and not reason.infeasible


def _with_protections(
    reason: Unschedulable, stage: Stage, found: tuple[Protection, ...]
) -> Unschedulable:
    listed = "; ".join(each.message for each in found[:MAX_QUEUES_LISTED])
    others = len(found) - MAX_QUEUES_LISTED
    more = f"; {count_of(others, 'more queue')} {is_or_are(others)} protected" if others > 0 else ""
    noted = reason.with_sentence(f"No preemption victims: {listed}{more}.")
    return structs.replace(noted, stage=stage, protections=found)


def _fits_empty_nodes(state: CycleState, request: PlacementRequest, findings: _Findings) -> bool:
    """Whether the pods, each shape by itself, would fit on the nodes that admit them if empty."""
    groups = by_shape(request.members)
    return all(
        _fit_empty_nodes(state, members[0].shape, len(members), findings) for members in groups
    )


def _fit_empty_nodes(state: CycleState, shape: Shape, count: int, findings: _Findings) -> bool:
    snapshot, fits = state.snapshot, findings.fits
    static = state.placer.shapes.fits.static_fits.of(shape, snapshot.nodes)
    if not shape.has_claims and _is_lasting(static, shape, snapshot.nodes, findings.lasting):
        return state.empty_nodes.hold(snapshot, shape, count)
    if shape.number not in fits:
        able = not shape.needs_devices or state.statement.devices.fits_empty_cluster(shape)
        replicas = replicas_on_empty(shape, snapshot.nodes, snapshot.resources, static.mask)
        fits[shape.number] = int(replicas.sum()) if able else 0
    return fits[shape.number] >= count


def _is_lasting(
    static: StaticFit, shape: Shape, nodes: NodeColumns, known: dict[StaticFit, bool]
) -> bool:
    """Whether the nodes that admit the shape now are those that eventually do."""
    if static not in known:
        known[static] = np.array_equal(static.mask, eventually_admitted(shape, nodes))
    return known[static]


def _cached_verdict(state: CycleState, gang: Gang, findings: _Findings) -> ProtectionVerdict | None:
    cost = state.request_cost(gang)
    kind = (gang.queue, gang.preemptible, gang.priority, cost.tobytes())
    if kind not in findings.verdicts:
        reclaimer = Reclaimer(state.quota.queues.positions[gang.queue], cost, gang.preemptible)
        findings.verdicts[kind] = _find_verdict(state, gang, reclaimer, findings.pool)
    return findings.verdicts[kind]


def _find_verdict(
    state: CycleState,
    gang: Gang,
    reclaimer: Reclaimer,
    pool: VictimPool,
) -> ProtectionVerdict | None:
    actions = state.settings.actions
    found = list(_within_queue(state, gang, reclaimer, pool)) if Action.PREEMPT in actions else []
    if Action.RECLAIM in actions and any(queue != reclaimer.queue for queue in pool.queues()):
        own = _own_share_refusal(state, reclaimer)
        if own is not None:
            return Stage.FAIR_SHARE, (own, *found)
        others = [queue for queue in pool.queues() if queue != reclaimer.queue]
        found += _other_queues(state, reclaimer, others, pool)
    rules = {each.rule for each in found}
    if not rules - {ProtectionRule.PRIORITY}:
        return None
    limited = ProtectionRule.EVICTION_LIMITS in rules
    return (Stage.EVICTION_LIMITS if limited else Stage.VICTIMS_PROTECTED), tuple(found)


def _own_share_refusal(state: CycleState, reclaimer: Reclaimer) -> Protection | None:
    """The protection by which the gang's own queue may reclaim nothing; None if it may."""
    refused = check_reclaimer(state.quota.usage, reclaimer, state.quota.rules)
    return None if refused is None else share_protection(refused, state.quota.resources)


def share_protection(refused: ReclaimRefused, resources: Sequence[str]) -> Protection:
    """The protection by shares, from a refusal; ``resources``: names of the rows compared."""
    resource = resources[refused.resource]
    _, per_unit = display_unit(resource)
    fair = refused.rule is ReclaimRule.FAIR_SHARE
    rule = ProtectionRule.FAIR_SHARE if fair else ProtectionRule.DESERVED
    value, bound = refused.value / per_unit, refused.bound / per_unit
    what = "its fair share" if fair else "its deserved quota for non-preemptible pods"
    allocated = display_amount(refused.value, resource)
    message = f"queue {refused.queue} would have {allocated} allocated, above {what} of {bound:g}"
    return Protection(rule, refused.queue, message, value, bound)


def _within_queue(
    state: CycleState, gang: Gang, reclaimer: Reclaimer, pool: VictimPool
) -> Iterator[Protection]:
    """What protects the running gangs of the same queue from preemption."""
    queue = reclaimer.queue
    lowest = state.lowest_evictable_priority(queue)
    if lowest is None:
        return
    if lowest >= gang.priority:
        message = f"no gang of queue {gang.queue} has a priority below {gang.priority}"
        yield Protection(ProtectionRule.PRIORITY, gang.queue, message, lowest, gang.priority)
        return
    lower = [each for each in pool.gangs(queue) if each.priority < gang.priority]
    yield from _protected_victims(state, gang.queue, lower, state.preempt_min_runtime[queue])


def _other_queues(
    state: CycleState, reclaimer: Reclaimer, others: Sequence[int], pool: VictimPool
) -> Iterator[Protection]:
    """What protects other queues, by the sibling queues at which they branch off.

    A sibling is a queue with the same parent as the gang's queue or one of its ancestors.
    """
    usage, rules = state.quota.usage, state.quota.rules
    reclaimable = reclaimable_queues(usage, reclaimer, rules)
    min_runtimes = state.reclaim_min_runtimes(reclaimer.queue)
    _, theirs = diverging_siblings(usage.queues, reclaimer.queue)
    for sibling in sorted({int(theirs[queue]) for queue in others}):
        reclaimable_leaves = [
            queue for queue in others if theirs[queue] == sibling and reclaimable[queue]
        ]
        own = [
            each
            for queue in reclaimable_leaves
            for each in _protected_victims(
                state, usage.queues.names[queue], pool.gangs(queue), min_runtimes[queue]
            )
        ]
        yield from own or [_sibling_share(state, reclaimer, sibling)]


def _protected_victims(
    state: CycleState, queue: str, gangs: Sequence[Gang], min_runtime: float
) -> Iterator[Protection]:
    """What protects the pods of a queue that may lose some; empty if nothing does."""
    now = state.snapshot.now
    if min_runtime and all(within_min_runtime(each.started, min_runtime, now) for each in gangs):
        until = min(each.started + min_runtime for each in gangs)
        message = f"every gang of queue {queue} is within its min runtime of {min_runtime:g} s"
        yield Protection(ProtectionRule.MIN_RUNTIME, queue, message, now, until)
    elif queue in state.eviction_limits.protected_by:
        message = (
            f"pods of queue {queue} are protected by {state.eviction_limits.protected_by[queue]}"
        )
        yield Protection(ProtectionRule.EVICTION_LIMITS, queue, message)


def _sibling_share(state: CycleState, reclaimer: Reclaimer, sibling: int) -> Protection:
    """What ``sibling``, the position of a queue, has allocated against what protects it."""
    usage = state.quota.usage
    rows = np.flatnonzero(reclaimer.request > 0)
    row = int(rows[0]) if len(rows) else 0
    ours = diverging_siblings(usage.queues, reclaimer.queue)[0][sibling]
    with_request = usage.allocated[:, ours] + reclaimer.request
    below_deserved = not exceeds_any(
        with_request[rows, None], usage.queues.deserved[rows, ours, None]
    ).any()
    bounds = usage.queues.deserved if below_deserved else usage.allocatable
    resource = state.quota.resources[row]
    _, per_unit = display_unit(resource)
    value, bound = usage.allocated[row, sibling] / per_unit, bounds[row, sibling] / per_unit
    share = "its deserved quota" if below_deserved else "its fair share"
    share += ", which is unlimited" if math.isinf(bound) else f" of {bound:g}"
    name = usage.queues.names[sibling]
    allocated = (
        f"queue {name} has {display_amount(usage.allocated.item(row, sibling), resource)} allocated"
    )
    if exceeds(usage.allocated[row, sibling], bounds[row, sibling]):
        message = f"{allocated}, and reclaiming what is above {share} does not free enough capacity"
        return Protection(
            ProtectionRule.TOO_LITTLE_ABOVE_SHARE, name, message, float(value), float(bound)
        )
    message = f"{allocated}, within {share}"
    return Protection(ProtectionRule.WITHIN_SHARE, name, message, float(value), float(bound))
