"""The plan of a finished cycle, read off its statement and its unschedulable reasons.

Pods placed on idle capacity start, gang by gang; pods placed on future idle capacity are nominated.
Victims are evicted or relocated (``evictions``). Every gang with pods left over is listed with its
reason (``unplaced``), and every queue with its shares (``queue_shares``).
"""

import dataclasses
from collections.abc import Mapping

from kai_py.dra.inventory import Inventory
from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.cycle.queue_shares import queue_shares
from kai_py.plan.explain.objects import object_problems
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.plan import Admission, Eviction, GangPlacement, Nomination, Plan, Unplaced
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.turns import Turns
from kai_py.plan.state.assignment import Assignment, gang_placement
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import PodState


def _spares(state: CycleState) -> dict[str, tuple[str, ...]]:
    """The names of the spare nodes of each queue."""
    names = state.snapshot.nodes.names
    by_queue = state.placer.reservations.spares.rows
    return {queue: tuple(names[row] for row in rows) for queue, rows in by_queue.items()}


def build_plan(
    state: CycleState,
    inventory: Inventory,
    *,
    placements: tuple[GangPlacement, ...],
    evictions: tuple[Eviction, ...],
    admissions: tuple[Admission, ...],
    unplaced: tuple[Unplaced, ...],
    pending_by_queue: Mapping[str, int],
    problems: tuple[ObjectProblem, ...],
) -> Plan:
    """The decisions of the cycle, in the order of decision.

    ``pending_by_queue``: how many gangs are pending; ``problems``: known ones.
    """
    nominations: list[Nomination] = []
    names, step = state.snapshot.nodes.names, state.turns.step
    promised = {row for each in state.placer.reservations.active for row in each.rows}
    for uid, assignment in state.statement.placed.items():
        if uid in state.statement.evicted:
            continue
        if assignment.member.state is PodState.EXPECTED:
            promised.add(assignment.row)
        elif assignment.capacity is not Capacity.IDLE:
            promised.add(assignment.row)
            nominations.append(
                Nomination(assignment.gang.key, assignment.member.pod, names[assignment.row])
            )
    found = step("problems", object_problems, state.snapshot, inventory)
    holds = step("holds", capacity_holds, state.snapshot, state.settings.reservation_seconds)
    spares = step("spares", _spares, state) or {}
    shares = step("queue shares", queue_shares, state, pending_by_queue, spares)
    return Plan(
        placements=placements,
        nominations=tuple(nominations),
        evictions=evictions,
        unplaced=unplaced,
        queues=shares or (),
        problems=(*(found or ()), *problems),
        admissions=admissions,
        holds=holds or (),
        checkpoints=tuple(state.report.checkpoints),
        at_risk=tuple(state.report.at_risk.values()),
        promised_nodes=tuple(names[row] for row in sorted(promised)),
        starting=tuple(state.report.starting.values()),
        avoided_nodes=state.report.avoided_nodes,
        avoided_devices=state.report.avoided_devices,
        set_aside=tuple(state.turns.failed.values()),
        failed_extensions=tuple(state.turns.extensions.failed.values()),
    )


def with_failures(plan: Plan, turns: Turns) -> Plan:
    """``plan`` with what has failed since it was made."""
    failed = tuple(turns.extensions.failed.values())
    known = len(failed) == len(plan.failed_extensions)
    return plan if known else dataclasses.replace(plan, failed_extensions=failed)


def gang_placements(state: CycleState) -> tuple[GangPlacement, ...]:
    """The pods that start now, by gang; a gang for which this fails is set aside."""
    starting: dict[str, list[Assignment]] = {}
    for uid, each in state.statement.placed.items():
        starts = each.capacity is Capacity.IDLE and each.member.state is not PodState.EXPECTED
        if starts and uid not in state.statement.evicted:
            starting.setdefault(each.gang.key, []).append(each)
    placements: list[GangPlacement] = []
    volumes = state.statement.volumes
    for pods in starting.values():
        try:
            placements.append(gang_placement(pods, state.snapshot.nodes.names, volumes))
        except Exception as error:
            # Its pods stay pending; the other gangs have been placed beside them.
            state.turns.fail(pods[0].gang, error)
    return tuple(placements)
