"""Fewer, or cheaper, victims than were selected: those that the request needs.

Units that are not needed are put back, by eviction cost; of a gang that would fall below minMember,
every pod, if those that are needed are elastic. Where the strategy lets others be proposed, the
cheapest of them takes the place of what is needed.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from kai_py.plan.victims.minimise import (
    MAX_UNITS,
    EvictionCosts,
    ReplicaSteps,
    by_node_eviction_cost,
    by_total_cost,
)
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.trials import TrialPlacements
from kai_py.plan.victims.units import (
    VictimUnit,
    elastic_gangs_below_min,
    is_orphaned,
    keeps_min_members,
    pods_of,
    split_by_pod,
)


class VictimReduction:
    """Reduces the victims of one search; where counting cannot tell, it tries placements."""

    def __init__(self, strategy: VictimStrategy, trials: TrialPlacements) -> None:
        """``trials``: of the search, whose probes are spent."""
        self._strategy, self._trials = strategy, trials
        self._state, self._gang, self._request = strategy.state, strategy.gang, strategy.request

    def minimise(self, needed: list[VictimUnit], taken: list[VictimUnit]) -> list[VictimUnit]:
        """``needed`` of what was ``taken``, or others of no higher priority that cost less."""
        by_loss = self._state.loss_rules.by_loss
        if not needed or (len(pods_of(needed)) < 2 and not by_loss):
            return needed
        proposed = self._strategy.other_candidates(max(unit.gang.priority for unit in needed))
        if proposed is None:
            return needed
        units = list(islice(proposed, min(MAX_UNITS, self._state.minimisation_budget)))
        self._state.minimisation_budget -= len(units)
        cost = EvictionCosts(self._state, self._strategy.pool)
        replicas = ReplicaSteps(self._state, self._request, units, cost)
        proposals: list[Iterable[VictimUnit]] = [by_node_eviction_cost(replicas, cost)]
        if by_loss:
            each_by_cost = sorted(units, key=cost.of_unit)
            # Where counting decides, what was taken in this order already leads to ``needed``.
            if not self._trials.is_exact or each_by_cost[: len(taken)] != taken:
                proposals.append(each_by_cost)
            proposals.append(by_total_cost(self._request, replicas, cost))
        others = (self._enough_of(offered) for offered in proposals)
        return min([needed, *(each for each in others if each)], key=cost.of)

    def _enough_of(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Those of ``units`` that are needed, taken in their order; none if they do not suffice."""
        other = VictimSelection(self._state, self._gang, self._request)
        min_units, offered = 0, iter(units)
        while other.take_until_enough(offered, min_units):
            if self._suffice(other.units):
                return self.needed_units(other)
            if self._trials.probes <= 0:
                break
            min_units = other.doubled
        return []

    def needed_units(self, selection: VictimSelection) -> list[VictimUnit]:
        """The units without those that can stay; ``selection`` is as before afterwards."""
        kept, unneeded = self._drop_unneeded(selection, selection.units)
        for gang in elastic_gangs_below_min(kept, self._state.statement):
            fewer, staying = self._drop_unneeded(selection, split_by_pod(kept, gang))
            if keeps_min_members(gang, fewer, self._state.statement):
                kept, unneeded = fewer, [*unneeded, *staying]
            else:
                for unit in staying:
                    selection.count(unit, 1.0)
        for unit in unneeded:
            selection.count(unit, 1.0)
        return kept

    def _drop_unneeded(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> tuple[list[VictimUnit], list[VictimUnit]]:
        """Those of ``units`` that are needed, and those that can stay and are counted as back.

        Units that can stay without being counted are in neither.
        """
        if self._trials.is_exact and len(units) == 1:
            return list(units), []
        unneeded = [] if self._trials.is_exact else self._units_elsewhere(selection, units)
        useless = selection.unneeded(units) if self._trials.is_exact else []
        kept = {id(unit): unit for unit in units}
        for unit in (*unneeded, *useless):
            del kept[id(unit)]
        by_gang: dict[str, list[VictimUnit]] = {}
        for unit in kept.values():
            by_gang.setdefault(unit.gang.key, []).append(unit)
        must_leave = selection.must_leave(kept.values())
        for unit in reversed(list(kept.values())):
            if unit in must_leave:
                continue
            peers = by_gang[unit.gang.key]
            if is_orphaned(unit, peers):
                continue
            selection.count(unit, -1.0)
            del kept[id(unit)]
            if selection.is_enough and self._suffice(list(kept.values())):
                peers.remove(unit)
                unneeded.append(unit)
                continue
            selection.count(unit, 1.0)
            kept[id(unit)] = unit
        return [unit for unit in units if id(unit) in kept], unneeded

    def _suffice(self, units: Sequence[VictimUnit]) -> bool:
        """Whether units that are enough by counting really are."""
        return self._trials.is_exact or self._trials.fits(units)

    def _units_elsewhere(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """Units on nodes that the request does not use, counted as back, if all can stay."""
        names = self._state.snapshot.nodes.names
        with self._state.statement.trial():
            self._trials.place(units, explain=False)
            placed = self._state.statement.placed
            used_nodes = {
                names[placed[m.pod.uid].row] for m in self._request.members if m.pod.uid in placed
            }
        near = [u for u in units if any(member.node in used_nodes for member in u.members)]
        far = [u for u in units if u not in near and not is_orphaned(u, near)]
        for unit in far:
            selection.count(unit, -1.0)
        if selection.is_enough and self._trials.fits([unit for unit in units if unit not in far]):
            return far
        for unit in far:
            selection.count(unit, 1.0)
        return []
