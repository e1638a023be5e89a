"""Pending requests that cannot be served yet: they do not count as demand in fair shares.

- A gang without enough pods for its minMember, or whose pods name claims, volumes or subgroups that
  do not exist, cannot start, whatever is idle.
- Non-preemptible pods of a queue never exceed what it deserves.

If these counted, the shares of other queues would shrink for capacity that this queue cannot use,
and that would stay with the queues that have it now. They count from the moment on at which they
can be served.

A gang that lost pods to an eviction within ``RECREATION_SECONDS`` counts all the same: its pods are
being created again, and shares must not change to and fro meanwhile. O(pending gangs) when gangs
change.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.grouping.gang import is_satisfied
from kai_py.plan.explain.infeasible_demand import InfeasibleDemand, total_by_queue
from kai_py.plan.state.eviction_history import EvictionHistory
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Charge, Gang, PodState
from kai_py.snapshot.snapshot import Snapshot

RECREATION_SECONDS = 60.0
"""How long controllers may take to create evicted pods again."""


@dataclass
class IncompleteDemand:
    """Pending requests that cannot be served yet; cached while gangs and nodes are the same."""

    non_preemptible: Mapping[str, Charge] = field(default_factory=dict)
    """By queue, the charge of those pending non-preemptible gangs that lack nothing."""
    counts_until: float = math.inf
    """When the first gang that counts for ``RECREATION_SECONDS`` no longer does."""
    _gangs: Mapping[str, Gang] | None = None
    _pending: tuple[str, ...] = ()
    _infeasible: Mapping[str, Charge] | None = None
    _charges: dict[str, Charge] = field(default_factory=dict)

    def of(
        self, snapshot: Snapshot, evictions: EvictionHistory, infeasible: InfeasibleDemand
    ) -> Mapping[str, Charge]:
        """By queue, the charge of the pending pods that lack something.

        Without gangs of which a part is ``infeasible``: that does not count already.
        """
        gangs, now = snapshot.gangs, snapshot.now
        if (
            gangs is not self._gangs
            or snapshot.pending != self._pending
            or infeasible.charges is not self._infeasible
        ):
            counted = [gangs[key] for key in snapshot.pending if gangs[key].charged]
            self._charges = {g.key: _charge_of_unable(g) for g in counted if not g.is_complete}
            self.non_preemptible = total_by_queue(
                (gang.queue, _pending_charge(gang))
                for gang in counted
                if gang.is_complete and not (gang.preemptible or infeasible.concerns(gang.key))
            )
            self._gangs, self._pending = gangs, snapshot.pending
            self._infeasible = infeasible.charges
        self.counts_until = math.inf
        found: list[tuple[str, Charge]] = []
        for key, charge in self._charges.items():
            times = evictions.times_of(key, now)
            until = times[-1] + RECREATION_SECONDS if times else now
            if until > now:
                self.counts_until = min(self.counts_until, until)
            elif not infeasible.concerns(key):
                found.append((gangs[key].queue, charge))
        return total_by_queue(found)


def _charge_of_unable(gang: Gang) -> Charge:
    """The charge of the pending pods that cannot start yet."""
    able = [m for m in gang.pending if not (m.waiting_for or m.problem)]
    counts = dict(gang.counts(PodState.BOUND))
    for member in able:
        counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
    if gang.problem or not is_satisfied(gang.tree, counts):
        return _pending_charge(gang)
    return total([m.charge for m in gang.pending if m.waiting_for or m.problem])


def _pending_charge(gang: Gang) -> Charge:
    return total([member.charge for member in gang.pending])
