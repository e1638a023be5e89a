"""Reduction of the selected units to those that the request needs, or to a cheaper set.

Units that are not needed are dropped, the last candidates first. If the minMember set of a gang
with elastic pods is still among them, the gang's pods are considered one by one: evicting as many
pods as it has elastic ones may suffice. If the strategy has other candidates, sets proposed from
these compete (``minimise``), and the set with the lowest eviction cost is taken. If the set is
refused, another one is composed with what queues may lose in mind (``replica_steps``).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from kai_py.plan.victims.minimise import (
    MAX_UNITS,
    by_node_eviction_cost,
    by_total_cost,
    cheapest_set,
    has_few_subsets,
    is_cheapest,
    needs_all_subsets,
    rows_by_domain,
)
from kai_py.plan.victims.relocate import place_again
from kai_py.plan.victims.replica_steps import AllowedSteps, ReplicaSteps
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.shared_domains import shared_domains
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.trials import TrialPlacements
from kai_py.plan.victims.units import (
    VictimUnit,
    elastic_gangs_below_min,
    is_evicted_with,
    is_on,
    keeps_min_members,
    pods_of,
    split_by_pod,
    units_by_gang,
)
from kai_py.snapshot.pod_selection import may_be_counted

MANY_UNITS = 64
"""From this many units on, taking twice as many costs more than the wider choice is worth."""


class VictimReduction:
    """Reduces the victims of one search, by trial placements where counting is not exact."""

    def __init__(self, strategy: VictimStrategy, trials: TrialPlacements) -> None:
        """``trials``: those of the search; their probes are spent."""
        self._strategy, self._trials = strategy, trials
        self._state, self._gang, self._request = strategy.state, strategy.gang, strategy.request
        self._without_rules = set[VictimUnit]()
        """Units that no rule of the request reads, as far as this has been checked."""

    def minimise(self, needed: list[VictimUnit], taken: list[VictimUnit]) -> list[VictimUnit]:
        """``needed``, or other units of no higher priority that cost less together.

        ``taken``: the selected units, of which ``needed`` are left.
        """
        by_loss = self._state.settings.loss_rules.by_loss
        if not needed or (len(pods_of(needed)) < 2 and not by_loss):
            return needed
        proposed = self._strategy.other_candidates(max(unit.gang.priority for unit in needed))
        if proposed is None:
            return needed
        units = list(islice(proposed, min(MAX_UNITS, self._state.search_budgets.minimised_units)))
        self._state.search_budgets.minimised_units -= len(units)
        costs = self._strategy.pool.costs
        if is_cheapest(needed, units, costs):
            return needed
        replicas = ReplicaSteps(self._state, self._request, units, costs)
        proposals: list[Iterable[VictimUnit]] = [
            by_node_eviction_cost(replicas, rows) for rows in self._rows_of(replicas)
        ]
        if by_loss:
            each_by_cost = sorted(units, key=costs.of_unit)
            # Units that were taken in this order lead to ``needed`` again.
            if each_by_cost[: len(taken)] != taken:
                proposals.append(each_by_cost)
            proposals.append(by_total_cost(self._request, replicas, costs))
        others = (self._enough_of(offered) for offered in proposals)
        best = min([needed, *(each for each in others if each)], key=costs.of)
        if not by_loss or not needs_all_subsets(self._request, units):
            return best
        cheapest = cheapest_set(self._request, units, replicas, costs, max_cost=costs.of(best))
        found = self._enough_of(cheapest)
        return min(best, found, key=costs.of) if found else best

    def allowed(self, candidates: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Victims that their queues may all lose; empty if none were found, or no queue decides."""
        allowance, budgets = self._strategy.allowance(), self._state.search_budgets
        if allowance is None:
            return []
        units = list(islice(candidates, min(MAX_UNITS, budgets.minimised_units)))
        budgets.minimised_units -= len(units)
        units = [unit for unit in units if not unit.is_partial]
        found = self._enough_of(AllowedSteps(self._state, units, allowance).units(self._request))
        if found or not has_few_subsets(self._request, units):
            return found
        in_order = {unit: position for position, unit in enumerate(units)}

        def is_refused(chosen: Sequence[VictimUnit]) -> bool:
            ordered = sorted(chosen, key=in_order.__getitem__)
            return self._strategy.refused_unit(ordered) is not None

        costs = self._strategy.pool.costs
        replicas = ReplicaSteps(self._state, self._request, units, costs)
        least = cheapest_set(self._request, units, replicas, costs, is_refused=is_refused)
        return self._enough_of(least)

    def _rows_of(self, replicas: ReplicaSteps) -> Iterator[Collection[int]]:
        """All nodes with candidates, and if the gang must be in one domain those of each."""
        yield replicas.rows
        domains = shared_domains(self._state, self._gang, self._request.members)
        if domains is not None:
            yield from rows_by_domain(replicas, domains)

    def _enough_of(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Those of ``units`` that are needed if taken in this order; empty if all are too few."""
        other = VictimSelection(self._strategy)
        offered = iter(units)
        while other.take_until_enough(offered):
            if self.fits_without(other):
                return self.needed_units(other)
            if self._trials.probes <= 0:
                break
        return []

    def fits_without(self, selection: VictimSelection) -> bool:
        """Whether the request fits without the selected units, which are enough by counting.

        If it does not, the selection takes more the next time. Most units may be on nodes that
        still fit no pod of the request, so it is tried without the others first.
        """
        if self._trials.is_exact:
            return True
        gaining = selection.gaining()
        others_matter = not selection.only_gains_matter or self._matter_to_rules(selection.units)
        is_shorter = not others_matter or 2 * len(gaining) < len(selection.units)
        if is_shorter and self._trials.fits(gaining):
            return True
        if others_matter and self._trials.fits(selection.units):
            return True
        selection.double(in_replicas=not others_matter and len(selection.units) >= MANY_UNITS)
        return False

    def _matter_to_rules(self, units: Iterable[VictimUnit]) -> bool:
        """Whether a rule between pods, or a limit of nodes, may read what is evicted."""
        shapes = {member.shape for member in self._request.members}
        if any(map(self._state.statement.limits.refusing, shapes)):
            return True
        for unit in units:
            if unit not in self._without_rules:
                pods = [(member.labels, member.shape) for member in unit.members]
                if any(may_be_counted(each, *pod) for each in shapes for pod in pods):
                    return True
                self._without_rules.add(unit)
        return False

    def needed_units(self, selection: VictimSelection) -> list[VictimUnit]:
        """The units of the selection without those that can stay; the selection is unchanged."""
        if not selection.units and self._trials.is_exact:
            return []
        needed, unneeded = self._drop_unneeded(selection, selection.units)
        for gang in elastic_gangs_below_min(needed, self._state.statement):
            fewer, staying = self._drop_unneeded(selection, split_by_pod(needed, gang))
            if keeps_min_members(gang, fewer, self._state.statement):
                needed, unneeded = fewer, [*unneeded, *staying]
            else:
                selection.count(staying, 1.0)
        selection.count(unneeded, 1.0)
        return needed

    def _drop_unneeded(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> tuple[list[VictimUnit], list[VictimUnit]]:
        """Those of ``units`` that are needed, and those that can stay.

        ``selection`` no longer counts the latter as evicted. Units whose eviction gains nothing
        (``useless``) are in neither list: the count is the same with and without them.
        """
        if self._trials.is_exact and len(units) == 1:
            return list(units), []
        unneeded = [] if self._trials.is_exact else self._drop_by_placement(selection, units)
        useless = selection.useless(units) if self._trials.is_exact else []
        needed = {id(unit): unit for unit in units}
        for unit in (*unneeded, *useless):
            del needed[id(unit)]
        must_leave = selection.must_leave(needed.values())
        order = [unit for unit in reversed(list(needed.values())) if unit not in must_leave]
        with self._trials.sharing_evictions():
            unneeded += self._drop_in_runs(_Needed(selection, needed), order)
        return [unit for unit in units if id(unit) in needed], unneeded

    def _drop_in_runs(self, needed: "_Needed", order: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Those of ``order`` that can stay, each judged without those before it that can.

        Runs of units are dropped at once, each twice as long as the one before; if a run is needed,
        half of it is tried. A unit is kept if the run that it completes is needed; a whole run is
        kept if the probes that are left do not suffice for a closer look.
        """
        dropped: list[VictimUnit] = []
        at, size, too_many = 0, 1, 0
        while at < len(order):
            least = self._least_run(len(order) - at)
            size = max(size, least)
            run, end = needed.drop(order, at, size)
            if too_many != 1 and run and self._suffice(list(needed.units.values())):
                dropped += run
                at, too_many = end, max(0, too_many - len(run))
                size = max(1, too_many // 2) if too_many else 2 * size
                continue
            needed.restore(run)
            if len(run) > least:
                too_many, size = len(run), len(run) // 2
            else:
                at, size, too_many = end, 1, 0
                self._trials.ran_out |= len(run) > 1
        return dropped

    def _least_run(self, count: int) -> int:
        """How many of ``count`` units to try at once, so that the probes suffice for all."""
        if self._trials.is_exact:
            return 1
        return math.ceil(count / max(1, self._trials.probes))

    def _suffice(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the request fits without units that are enough by counting."""
        return self._trials.is_exact or self._trials.fits(units)

    def _drop_by_placement(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """The units that the last trial placement shows to be unneeded, at few probes.

        Units beside the request are among them only if the probes do not suffice to try without
        each of the others.
        """
        elsewhere = self._units_elsewhere(selection, units)
        dropped = set(elsewhere)
        others = [unit for unit in units if unit not in dropped]
        if self._trials.probes >= len(others):
            return elsewhere
        return [*elsewhere, *self._units_beside(selection, others)]

    def _units_elsewhere(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """The units on nodes that the last trial placement does not use, if all of them can stay.

        ``selection`` then no longer counts them as evicted; otherwise the list is empty.
        """
        used_nodes = self._trials.used_nodes
        on_used = units_by_gang(unit for unit in units if is_on(unit, used_nodes))
        elsewhere = [
            unit
            for unit in units
            if not is_on(unit, used_nodes)
            and not is_evicted_with(unit, on_used.get(unit.gang.key, ()))
        ]
        return self._drop_together(selection, units, elsewhere)

    def _units_beside(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """The units that fit on their own nodes beside the pods of the request, as above.

        The last candidates come first. Only single pods that are the only unit of their gang.
        """
        of_gang = Counter(unit.gang.key for unit in units)
        single = [u for u in reversed(units) if len(u.members) == of_gang[u.gang.key] == 1]
        state, action, beside = self._state, self._strategy.action, list[VictimUnit]()
        with state.statement.trial():
            if self._trials.place(units, explain=False):
                beside += [u for u in single if place_again(state, u.gang, u.members[0], action)]
        return self._drop_together(selection, units, beside)

    def _drop_together(
        self,
        selection: VictimSelection,
        units: Sequence[VictimUnit],
        dropped: Sequence[VictimUnit],
    ) -> list[VictimUnit]:
        """``dropped`` if the request fits without the other ``units``, else nothing."""
        if not dropped:
            return []
        selection.count(dropped, -1.0)
        stay = {id(unit) for unit in dropped}
        if selection.is_enough and self._trials.fits([u for u in units if id(u) not in stay]):
            return list(dropped)
        selection.count(dropped, 1.0)
        return []


class _Needed:
    """The units, by ``id``, that are not dropped; ``selection`` counts exactly these as evicted."""

    def __init__(self, selection: VictimSelection, units: dict[int, VictimUnit]) -> None:
        self.units, self._selection = units, selection
        self._by_gang = units_by_gang(units.values())

    def drop(self, order: Sequence[VictimUnit], at: int, size: int) -> tuple[list[VictimUnit], int]:
        """Drop up to ``size`` units from the position ``at`` on that counting does not need.

        Also returns the position after the last of them, or the end.
        """
        run: list[VictimUnit] = []
        for position in range(at, len(order)):
            unit = order[position]
            peers = self._by_gang[unit.gang.key]
            if is_evicted_with(unit, peers):
                continue
            self._selection.count([unit], -1.0)
            if not self._selection.is_enough:
                self._selection.count([unit], 1.0)
                continue
            del self.units[id(unit)]
            peers.remove(unit)
            run.append(unit)
            if len(run) == size:
                return run, position + 1
        return run, len(order)

    def restore(self, run: Sequence[VictimUnit]) -> None:
        """Take units back that were dropped."""
        self._selection.count(run, 1.0)
        for unit in run:
            self.units[id(unit)] = unit
            self._by_gang[unit.gang.key].append(unit)
