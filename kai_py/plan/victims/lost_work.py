"""What evictions destroy: the work of pods since they last saved it, as a part of the cluster."""

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.lost_work import lost_seconds
from kai_py.snapshot.resources import Floats


def part_of_cluster(state: CycleState, cost: Floats) -> float:
    """The part of the cluster that costs (quota resources,) so much: of its scarcest resource."""
    known = state.parts_of_cluster.get(id(cost))
    if known is not None and known[0] is cost:
        return known[1]
    pairs = zip(cost.tolist(), state.quota.usage.total.tolist(), strict=True)
    part = max([amount / total for amount, total in pairs if total > 0], default=0.0)
    part = max(part, 0.0)
    if not cost.flags.writeable:
        # The entry keeps the array alive, so its id can't be used by another one.
        state.parts_of_cluster[id(cost)] = cost, part
    return part


def lost_work(state: CycleState, unit: VictimUnit, at: float | None = None) -> float:
    """Seconds of the whole cluster that evicting the unit destroys, weighted (``lost_work``).

    ``at``: when it is evicted, without the pods that are expected to have ended; None: now.
    """
    quota, lost, cost = state.quota, 0.0, state.loss_rules.restart_cost
    now = state.snapshot.now if at is None else at
    for member in unit.members:
        if now > state.snapshot.now and state.expected_ends.end_of(unit.gang, member) <= now:
            continue
        seconds = lost_seconds(unit.gang, member, now, cost)
        lost += part_of_cluster(state, quota.cost(member.charge)) * seconds
    return lost * (1 + state.eviction_limits.evictions_of(unit.gang))
