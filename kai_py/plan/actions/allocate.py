"""Allocate: place pending gangs into free room, queue by queue, without disturbing anybody.

    while a queue has a gang left:
        take the queue that comes next, and its next gang
        check the queue's bounds for the pods the gang asks for
        place them into room that is free now, or else into room that is being freed
        a gang with pods left to place goes back into its queue's line

A gang that finds no room spares every later gang of the same shapes and at least the same size the
search: room only shrinks during this action.
"""

import heapq
from collections.abc import Iterable

from kai_py.plan.candidates import Ask, next_ask, precondition
from kai_py.plan.cycle_state import CycleState
from kai_py.plan.decisions import Action, Stage
from kai_py.plan.place import by_shape
from kai_py.plan.reasons import Obstacle
from kai_py.plan.room import Room
from kai_py.policy.limits import check_limits, copies_within
from kai_py.policy.queue_line import QueueLine
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Gang, Member

Line = list[tuple[tuple[int, int, float, str], Gang]]
"""A heap of gangs: higher priority, then below floor, then older, then by name."""

Footprint = tuple[int, ...]
"""The shapes of an ask, hardest first."""

Hopeless = dict[tuple[Footprint, str], tuple[int, Obstacle]]
"""The smallest ask of a footprint that found no room, and why; surplus is kept per gang."""


def allocate(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Run the action for ``gangs``; whatever stays pending gets its obstacle in ``state``."""
    lines = _lines(state, gangs)
    order = QueueLine(state.quota.standing, state.quota.rules)
    for leaf, waiting in sorted(lines.items()):
        order.update(leaf, state.ask_cost(waiting[0][1]))
    hopeless: Hopeless = {}
    while (queue := order.first()) is not None:
        line = lines[queue]
        _, gang = heapq.heappop(line)
        if _try(state, queue, gang, hopeless):
            heapq.heappush(line, (_rank(gang), gang))
        order.update(queue, state.ask_cost(line[0][1]) if line else None)


def _lines(state: CycleState, gangs: Iterable[Gang]) -> dict[int, Line]:
    lines: dict[int, Line] = {}
    for gang in gangs:
        queue = state.quota.queue_of(gang)
        obstacle = precondition(gang, state.quota)
        if obstacle is not None or queue is None:
            if obstacle is not None:
                state.stop(gang, obstacle)
            continue
        lines.setdefault(queue, []).append((_rank(gang), gang))
    for line in lines.values():
        heapq.heapify(line)
    return lines


def _rank(gang: Gang) -> tuple[int, int, float, str]:
    return (-gang.priority, int(gang.is_satisfied), gang.created, gang.key)


def _try(
    state: CycleState,
    queue: int,
    gang: Gang,
    hopeless: Hopeless,
) -> bool:
    """Place what the gang asks for next; whether it should be asked again in this cycle."""
    ask = next_ask(gang, state.statement)
    if ask is None:
        return False
    ask = _within_limits(state, queue, gang, ask)
    if ask is None:
        return False
    footprint = tuple(group[0].shape.number for group in by_shape(ask.members))
    known = hopeless.get((footprint, gang.key if not ask.all_or_none else ""))
    if known is not None and len(ask.members) >= known[0]:
        state.stop(gang, known[1])
        return False
    obstacle = _place(state, gang, ask)
    if obstacle is None:
        state.clear(gang)
        return ask.all_or_none
    state.stop(gang, obstacle)
    if ask.all_or_none and len(footprint) == 1:
        hopeless[footprint, ""] = (len(ask.members), obstacle)
    return False


def _within_limits(state: CycleState, queue: int, gang: Gang, ask: Ask) -> Ask | None:
    """The ask, or for surplus the part of it, that the queue's bounds allow."""
    quota = state.quota
    members = ask.members
    if not ask.all_or_none:
        first = quota.cost(members[0].charge)
        able = copies_within(quota.standing, queue, first, preemptible=gang.preemptible)
        members = members[: int(min(able, len(members)))] or members[:1]
    cost = quota.cost(total(member.charge for member in members))
    over = check_limits(quota.standing, queue, cost, preemptible=gang.preemptible)
    if over is None:
        return Ask(members, ask.all_or_none)
    stage = Stage.QUEUE_MAX if over.bound == "OverLimit" else Stage.NON_PREEMPTIBLE
    state.stop(gang, Obstacle(stage, over.message(quota.resources[over.resource])))
    return None


def _place(state: CycleState, gang: Gang, ask: Ask) -> Obstacle | None:
    if not ask.all_or_none:
        return _place_each(state, gang, ask.members)
    obstacle: Obstacle | None = None
    for room in (Room.NOW, Room.LATER):
        with state.statement.trial() as trial:
            blocked = state.placer.place(
                state.statement, gang, ask.members, Action.ALLOCATE, room=room
            )
            if blocked is None:
                trial.keep()
                return None
        obstacle = obstacle or blocked
        if not state.frees_room:
            break
    return obstacle


def _place_each(state: CycleState, gang: Gang, members: tuple[Member, ...]) -> Obstacle | None:
    """Surplus: as many as fit now; the first that doesn't says why."""
    for member in members:
        with state.statement.trial() as trial:
            obstacle = state.placer.place(
                state.statement, gang, [member], Action.ALLOCATE, room=Room.NOW
            )
            if obstacle is not None:
                return obstacle
            trial.keep()
    return None
