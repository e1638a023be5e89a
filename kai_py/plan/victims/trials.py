"""Trial placements: evict units and place the request in the statement, then undo both."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

from kai_py.plan.placement.exact import SearchSteps
from kai_py.plan.placement.gang import Placer
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.queue_limits import check_usage

MAX_EXACT_STEPS = 1_024
"""Steps of all exact searches in the trial placements of one search for victims."""

STEPS_PER_PROBE = 8
"""Steps of an exact search that cost as much as a probe."""


@dataclass
class TrialPlacements:
    """The trial placements of one search; each costs a probe, and more with exact search.

    ``probes``: how many are left. ``is_exact``: whether the request fits if, and only if, counting
    says so (``count.is_exact``). The search changes both.
    """

    strategy: VictimStrategy
    probes: int
    _: KW_ONLY
    is_exact: bool

    @cached_property
    def _placer(self) -> Placer:
        """One with all steps of exact searches left; most searches try no victims."""
        steps = SearchSteps(MAX_EXACT_STEPS, self.strategy.action)
        return replace(self.strategy.state.placer, search_steps=steps)

    def fits(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the request fits without ``units``. Costs a probe; False if none is left."""
        if self.probes <= 0:
            return False
        self.probes -= 1
        with self.strategy.state.statement.trial():
            return self.place(units, explain=False)

    def place(self, units: Sequence[VictimUnit], *, explain: bool) -> bool:
        """Evict ``units`` and place the request; whether it fits. The caller has opened a trial.

        ``explain``: with reasons for the evictions, for a trial that may be kept.
        """
        statement = self.strategy.state.statement
        for unit in units:
            reason = self.strategy.reason(unit) if explain else ""
            for member in unit.members:
                statement.evict(
                    Evicted(member, unit.gang, self.strategy.action, self.strategy.gang, reason)
                )
        # Without victims there is nothing to find that the gang's own allocation did not.
        placer = self._placer if units else self.strategy.state.placer
        steps_left = placer.search_steps.left
        blocked = placer.place(
            statement,
            self.strategy.gang,
            self.strategy.request.members,
            self.strategy.action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        self.probes -= (steps_left - placer.search_steps.left) // STEPS_PER_PROBE
        return blocked is None and self._stays_within_max()

    def _stays_within_max(self) -> bool:
        """Whether the queue is within its limits in the trial.

        Counting takes for granted that a victim releases its claims; one that other pods use stays
        charged.
        """
        quota, gang = self.strategy.state.quota, self.strategy.gang
        if not quota.shared_claims.exist:
            return True
        members = self.strategy.request.members
        queue, cost = quota.queues.positions[gang.queue], quota.cost_of(members)
        preemptible = gang.is_preemptible(members)
        return check_usage(quota.usage, queue, cost, preemptible=preemptible) is None
