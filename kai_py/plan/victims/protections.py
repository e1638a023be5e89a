"""Who holds the room that a gang waits for, and which rule lets them keep it?

A gang that lacks nothing but room would start if others left. Where those who could leave may not,
the stage is the rule that keeps them, and not the room:

    FairShare          its own queue would hold more than its fair share (or, for pods that can't be
                       taken back, more than it deserves), so it may take nothing from other queues
    EvictionBudget     who may be asked is spared for now: a disruption budget, an eviction rate
    VictimsProtected   the other queues hold no more than their due, or what they hold above it,
                       past its min runtime, is not enough

It stays what it was where the gang would not fit on empty nodes, where nobody who could leave runs,
and where it may evict nobody by its own choice. Only told, never decided by. O(nodes) per shape and
O(queues) per kind of gang (queue, priority, cost), once per cycle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action, Protection, ProtectionRule, Stage
from kai_py.plan.session import CycleState
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.fit import copies_that_fit
from kai_py.policy.limits import units_of
from kai_py.policy.min_runtime import preempt_min_runtime, protected, reclaim_min_runtime
from kai_py.policy.queue_usage import exceeds, exceeds_any, facing
from kai_py.policy.reclaim_rules import Reclaimer, ReclaimRule, may_reclaim, reclaimable_queues
from kai_py.snapshot.gangs import Gang

QUEUES_TOLD = 3
ROOM_IS_SHORT = frozenset({Stage.RESOURCES, Stage.DEVICES})

Verdict = tuple[Stage, tuple[Protection, ...]]
Kind = tuple[str, bool, int, bytes]
"""Queue, whether preemptible, priority, cost."""


@dataclass
class _Known:
    """What was found out for gangs before: by shape whether it fits, by kind who is protected."""

    pool: VictimPool
    fits: dict[int, int] = field(default_factory=dict)
    verdicts: dict[Kind, Verdict | None] = field(default_factory=dict)


def tell_protections(state: CycleState, gangs: Sequence[Gang], actions: Sequence[Action]) -> None:
    """Name for each of ``gangs`` that lacks room who keeps it from them, and by which rule."""
    short = [gang for gang in gangs if gang.may_preempt and _lacks_room(state, gang)]
    if not short:
        return
    known = _Known(VictimPool(state))
    if not known.pool.queues():
        return
    for gang in short:
        obstacle = state.obstacles[gang.key]
        ask = state.ask(gang)
        if ask is None or not _fits_without_others(state, ask, known.fits):
            continue
        verdict = _verdict(state, gang, ask, actions, known)
        if verdict is not None:
            state.stop(gang, _protected(obstacle, *verdict))


def _lacks_room(state: CycleState, gang: Gang) -> bool:
    obstacle = state.obstacles.get(gang.key)
    return obstacle is not None and obstacle.stage in ROOM_IS_SHORT


def _protected(obstacle: Obstacle, stage: Stage, found: tuple[Protection, ...]) -> Obstacle:
    told = "; ".join(each.message for each in found[:QUEUES_TOLD])
    others = len(found) - QUEUES_TOLD
    more = f"; {others} more queues are protected" if others > 0 else ""
    message = f"{obstacle.message} Nobody leaves for it: {told}{more}."
    return replace(obstacle, stage=stage, message=message, protections=found)


def _fits_without_others(state: CycleState, ask: Ask, fits: dict[int, int]) -> bool:
    """Whether empty nodes would have room for the pods, shape by shape."""
    snapshot = state.snapshot
    for members in by_shape(ask.members):
        shape = members[0].shape
        if shape.number not in fits:
            static = state.placer.shapes.fits.statics.of(shape, snapshot.nodes)
            whole = snapshot.nodes.allocatable
            copies = copies_that_fit(shape, snapshot.resources, whole, static.mask, whole)
            able = not shape.needs_devices or state.statement.devices.ever_fits(shape)
            fits[shape.number] = int(np.minimum(copies, 1 << 20).sum()) if able else 0
        if fits[shape.number] < len(members):
            return False
    return True


def _verdict(
    state: CycleState, gang: Gang, ask: Ask, actions: Sequence[Action], known: _Known
) -> Verdict | None:
    cost = state.quota.cost_of(ask.members)
    kind = (gang.queue, gang.preemptible, gang.priority, cost.tobytes())
    if kind not in known.verdicts:
        reclaimer = Reclaimer(state.quota.queues.positions[gang.queue], cost, gang.preemptible)
        known.verdicts[kind] = _judged(state, gang, reclaimer, actions, known.pool)
    return known.verdicts[kind]


def _judged(
    state: CycleState,
    gang: Gang,
    reclaimer: Reclaimer,
    actions: Sequence[Action],
    pool: VictimPool,
) -> Verdict | None:
    found = list(_inside(state, gang, reclaimer, pool)) if Action.PREEMPT in actions else []
    others = [queue for queue in pool.queues() if queue != reclaimer.queue]
    if Action.RECLAIM in actions and others:
        own = _own_share(state, reclaimer)
        if own is not None:
            return Stage.FAIR_SHARE, (own, *found)
        found += _outside(state, reclaimer, others, pool)
    rules = {each.rule for each in found}
    if not rules - {ProtectionRule.PRIORITY}:
        return None
    spared = ProtectionRule.SPARED in rules
    return (Stage.EVICTION_BUDGET if spared else Stage.VICTIMS), tuple(found)


def _own_share(state: CycleState, reclaimer: Reclaimer) -> Protection | None:
    """What the gang's own queue would hold above what it may hold at the cost of others."""
    refused = may_reclaim(state.quota.standing, reclaimer, state.quota.rules)
    if refused is None:
        return None
    noun, per_unit = units_of(state.quota.resources[refused.resource])
    fair = refused.rule is ReclaimRule.FAIR_SHARE
    rule = ProtectionRule.FAIR_SHARE if fair else ProtectionRule.DESERVED
    value, bound = refused.value / per_unit, refused.bound / per_unit
    what = "its fair share" if fair else "what it deserves, for pods that can't be taken back,"
    message = f"{refused.queue} would hold {value:g} {noun}, more than {what} of {bound:g}"
    return Protection(rule, refused.queue, message, value, bound)


def _inside(
    state: CycleState, gang: Gang, reclaimer: Reclaimer, pool: VictimPool
) -> Iterator[Protection]:
    """Running gangs of the same queue: priority decides among them."""
    queue = reclaimer.queue
    least = pool.least_priority(queue)
    if least is None:
        return
    if least >= gang.priority:
        message = f"no gang of {gang.queue} has a priority below {gang.priority}"
        yield Protection(ProtectionRule.PRIORITY, gang.queue, message, least, gang.priority)
        return
    lower = [each for each in pool.gangs(queue) if each.priority < gang.priority]
    safe = float(preempt_min_runtime(state.quota.queues, state.quota.rules)[queue])
    yield from _held_back(state, gang.queue, lower, safe)


def _outside(
    state: CycleState, reclaimer: Reclaimer, others: Sequence[int], pool: VictimPool
) -> Iterator[Protection]:
    """The other queues, each by the sibling that faces the gang's own line."""
    standing, rules = state.quota.standing, state.quota.rules
    asked = reclaimable_queues(standing, reclaimer, rules)
    safe = reclaim_min_runtime(standing.queues, reclaimer.queue, rules)
    _, theirs = facing(standing.queues, reclaimer.queue)
    for side in sorted({int(theirs[queue]) for queue in others}):
        leaves = [queue for queue in others if theirs[queue] == side and asked[queue]]
        told = [
            each
            for queue in leaves
            for each in _held_back(
                state, standing.queues.names[queue], pool.gangs(queue), float(safe[queue])
            )
        ]
        yield from told or [_share_of(state, reclaimer, side)]


def _held_back(
    state: CycleState, queue: str, gangs: Sequence[Gang], safe: float
) -> Iterator[Protection]:
    """Who could be asked, but not now."""
    now = state.snapshot.now
    if safe and all(protected(each.started, safe, now) for each in gangs):
        until = min(each.started + safe for each in gangs)
        message = f"no gang of {queue} has run for its min runtime of {safe:g} s"
        yield Protection(ProtectionRule.MIN_RUNTIME, queue, message, now, until)
    elif queue in state.spared.withheld:
        message = f"pods of {queue} are spared by {state.spared.withheld[queue]}"
        yield Protection(ProtectionRule.SPARED, queue, message)


def _share_of(state: CycleState, reclaimer: Reclaimer, side: int) -> Protection:
    """What a sibling holds against what it may keep."""
    standing = state.quota.standing
    rows = np.flatnonzero(reclaimer.request > 0)
    row = int(rows[0]) if len(rows) else 0
    ours = facing(standing.queues, reclaimer.queue)[0][side]
    held = standing.allocated[:, ours] + reclaimer.request
    starved = not exceeds_any(held[rows, None], standing.queues.deserved[rows, ours, None]).any()
    bounds = standing.queues.deserved if starved else standing.allocatable
    noun, per_unit = units_of(state.quota.resources[row])
    value, bound = standing.allocated[row, side] / per_unit, bounds[row, side] / per_unit
    due = "what it deserves" if starved else "its fair share"
    name = standing.queues.names[side]
    holds = f"{name} holds {value:g} {noun}"
    if exceeds(standing.allocated[row, side], bounds[row, side]):
        told = f"{holds}, and what is above {due} of {bound:g} does not make room"
        return Protection(ProtectionRule.NOT_ENOUGH, name, told, float(value), float(bound))
    told = f"{holds}, no more than {due} of {bound:g}"
    return Protection(ProtectionRule.WITHIN_SHARE, name, told, float(value), float(bound))
