"""Return to spot: gangs on on-demand nodes go back to spot nodes that are idle, if moving pays.

    cost of staying = the remaining work of the gang, at the price of on-demand nodes
    cost of moving  = the remaining and the lost work, at the price of spot nodes

The remaining work is known if the runtime is declared or such pods ended before; for gangs that
save their work it is assumed to equal the work done so far. Other gangs stay, as do gangs that may
not be evicted or were evicted often. Gangs move whole, and at most ``MAX_TRIED`` are tried in a
cycle.
"""

from collections.abc import Iterable
from math import isfinite

from msgspec import structs

from kai_py.api.spot import SpotUse
from kai_py.api.times import format_duration, format_time
from kai_py.plan.plan import SHORT_OF_CAPACITY, Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.relocate import move_whole, owns_all_claims
from kai_py.plan.victims.survival import are_created_again, would_fail
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import lost_seconds
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.nodes import spot_nodes
from kai_py.snapshot.resources import Bools

MAX_TRIED = 4


def return_to_spot(state: CycleState) -> None:
    """Move the gangs for which it pays most per pod first, as far as spot nodes are idle."""
    uses, gangs = state.spot.uses, state.snapshot.gangs
    wanted = [gangs[key] for key, use in uses.items() if use is not SpotUse.NEVER]
    running = [gang for gang in wanted if gang.bound]
    if not running:
        return
    spot = spot_nodes(state.spot.rules.labels, state.snapshot.nodes)
    found = [(gain, gang) for gang in running if (gain := _gain(state, gang, spot)) > 0]
    found.sort(key=lambda each: (-each[0], each[1].key))
    for gang in state.turns.eligible(gang for _, gang in found[:MAX_TRIED]):
        with state.turns.of(gang):
            _move(state, gang, spot)


def _gain(state: CycleState, gang: Gang, spot: Bools) -> float:
    """Seconds at the price of on-demand nodes that a move saves per pod; 0 or less: it stays."""
    rows, now = state.snapshot.nodes.positions, state.snapshot.now
    members = gang.bound
    outside = [m for m in members if m.node in rows and not spot[rows[m.node]]]
    evicted, limits = state.statement.evicted, state.eviction_limits
    if (
        not outside
        or gang.pending
        or not gang.is_preemptible(members)
        or any(m.pod.uid in evicted for m in members)
        or gang.key in limits.evicted_often(by_others=False)
        or would_fail(gang, members)
        or not are_created_again(members)
        or not all(map(owns_all_claims, members))
    ):
        return 0.0
    end = min(state.expected_ends.end_of(gang, member) for member in members)
    if not isfinite(end) and not gang.settings.checkpoint_interval:
        return 0.0
    remaining = end - now if isfinite(end) else now - gang.started
    cost = state.settings.loss_rules.restart_cost
    lost = max(lost_seconds(gang, member, now, cost) for member in members)
    return remaining * len(outside) / len(members) - state.spot.rules.price_ratio * (
        remaining * len(outside) / len(members) + lost
    )


def _move(state: CycleState, gang: Gang, spot: Bools) -> None:
    unit = VictimUnit(gang, gang.bound)
    if not list(state.eviction_limits.evictable(iter((unit,)), state.statement.evicted)):
        return
    reason = "spot nodes are idle again, and the remaining work costs less there"
    move_whole(state, gang, Action.CONSOLIDATE, reason, allowed=spot)


def explain_fallback(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Say of gangs that wait for spot nodes when they may use others."""
    for gang in gangs:
        reason = state.unschedulable.get(gang.key)
        if reason is None or reason.stage not in SHORT_OF_CAPACITY or reason.hint:
            continue
        if hint := _hint(state, gang):
            state.mark_unschedulable(gang, structs.replace(reason, hint=hint))


def _hint(state: CycleState, gang: Gang) -> str:
    at, over = state.spot.fallback_at.get(gang.key), state.spot.over_budget.get(gang.key)
    if at is not None:
        waited = format_duration(max(at - gang.waiting_since, 0.0))
        return f"It may use on-demand nodes from {format_time(at)} on, after waiting {waited}."
    if over is not None:
        return f'It may not use on-demand nodes: maxGPUs of spotFallback of queue "{over}" is used.'
    return ""
