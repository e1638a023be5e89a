"""Preempt: inside a queue, a gang may take the room of gangs with a lower priority.

    for each pending gang that found no room, by queue and priority:
        victims: running preemptible gangs of the same queue with a lower priority,
                 surplus pods before cores, low priority first, youngest first
        take the fewest that make the whole gang fit

The room is held for the gang until its victims have left. ``preemptionPolicy: Never`` is honoured.
"""

from collections.abc import Iterable
from functools import partial

from kai_py.plan.candidates import next_ask
from kai_py.plan.cycle_state import CycleState
from kai_py.plan.decisions import Action, Stage
from kai_py.plan.victim_order import bundled_by_node, cheapest_first
from kai_py.plan.victims import VictimSearch, VictimUnit, victim_units
from kai_py.snapshot.gangs import Gang

CURABLE = (Stage.RESOURCES, Stage.DEVICES, Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE)
"""Obstacles that go away when somebody leaves."""


def preempt(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Run the action for those of ``gangs`` that are still pending."""
    pending = [gang for gang in gangs if _may_preempt(state, gang)]
    running = _running_by_queue(state) if pending else {}
    for gang in sorted(pending, key=lambda g: (g.queue, -g.priority, g.created, g.key)):
        units = _units(state, gang, running.get(gang.queue, []))
        ask = next_ask(gang, state.statement)
        if ask is None or not ask.all_or_none or not units:
            continue
        search = VictimSearch(state, gang, ask, Action.PREEMPT, partial(_reason, gang))
        if search.run(bundled_by_node(state, ask.members, units)) is not None:
            state.clear(gang)


def _may_preempt(state: CycleState, gang: Gang) -> bool:
    obstacle = state.obstacles.get(gang.key)
    return obstacle is not None and gang.may_preempt and obstacle.stage in CURABLE


def _running_by_queue(state: CycleState) -> dict[str, list[Gang]]:
    running: dict[str, list[Gang]] = {}
    for gang in state.snapshot.gangs.values():
        if gang.preemptible and gang.bound:
            running.setdefault(gang.queue, []).append(gang)
    return running


def _units(state: CycleState, gang: Gang, running: Iterable[Gang]) -> list[VictimUnit]:
    leaving = frozenset(state.statement.evicted)
    units = [
        unit
        for victim in running
        if victim.priority < gang.priority
        for unit in victim_units(victim, leaving)
    ]
    return cheapest_first(units)


def _reason(winner: Gang, unit: VictimUnit) -> str:
    return (
        f"preempted by higher priority workload {winner.owner.namespace}/{winner.owner.name} "
        f"(priority {winner.priority} > {unit.gang.priority}) in queue {winner.queue}"
    )
