"""The fewest victims for one preemptor, taken from its candidates in the order of these.

    until the request is placed:
        take candidates until counting says that the request could fit
        put back, by eviction cost, every unit that is not needed for that; of a gang that would
            fall below minMember, every pod, if those that are needed are elastic
        where the strategy lets others be proposed: node by node (``minimise``), and where lost work
            counts by what each loses; the cheapest of these
        evict the units, place the request, and relocate every victim that fits elsewhere
        the strategy says whether the victims that are lost may be evicted; the first that may not
            is a candidate no more
    where all of that is refused:
        one of the first refused sets again, with one helper: a further unit whose eviction lets the
        refused one be relocated

Nothing is evicted unless all of it succeeds, and every victim is needed: without any one of them
the request does not fit. Where counting is exact (``count.is_exact``) each round makes one trial
placement. Elsewhere the number of units doubles after each placement that failed, and whether a
unit is needed is tried where counting cannot tell. Every trial placement costs a probe; the search
ends when its probe budget is used up.

Compare ``dryRunPreemption`` and ``selectVictimsOnDomain`` of kube-scheduler's
``default_preemption.go`` and ``minimalPreemptions``/``fillBackWorkloads`` of Kueue's
``preemption.go``: all of them remove candidates until the preemptor fits, then add back those that
are not needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import ClassVar

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.minimise import (
    MAX_UNITS,
    EvictionCosts,
    ReplicaSteps,
    by_node_eviction_cost,
    by_total_cost,
)
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.relocate import relocate
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.timing import postponed_until
from kai_py.plan.victims.units import (
    VictimUnit,
    elastic_gangs_below_min,
    is_orphaned,
    keeps_min_members,
    pods_of,
    split_by_pod,
)
from kai_py.snapshot.gangs import Gang

MAX_HELPED_SETS = 2
"""Refused sets that are tried again with a helper."""

REJECTION_PROBES = 8
"""What a refused set of victims costs beside its placement: the selection starts over."""


@dataclass
class VictimStrategy(ABC):
    """How an action chooses victims for one ``request`` of a preemptor, the gang.

    ``action``: to which evictions are attributed. ``backs_off``: a search that used up its probes
    is not repeated before a pod has left or a node has come.
    """

    action: ClassVar[Action]
    backs_off: ClassVar[bool] = False

    state: CycleState
    pool: VictimPool
    gang: Gang
    request: PlacementRequest

    @abstractmethod
    def candidates(self) -> Iterable[VictimUnit] | None:
        """The eviction units in the order to take them; None where no eviction can help."""

    @abstractmethod
    def may_evict(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """The first of ``units`` that may not be lost after those before it; None if all may."""

    @abstractmethod
    def reason(self, unit: VictimUnit) -> str:
        """Why the pods of ``unit`` are evicted, for their owner."""

    @property
    def max_pods(self) -> int | None:
        """The most pods to evict for the request; None: as many as it takes."""
        return None

    def other_candidates(self, priority: int) -> Iterable[VictimUnit] | None:
        """Units of gangs up to ``priority`` among which fewer may do; None: leave it."""
        del priority
        return None

    def helpers(self, rejected: VictimUnit) -> Iterable[VictimUnit]:
        """Units whose eviction could let ``rejected``, which may not be lost, be relocated."""
        del rejected
        return ()

    def placed(self, gang_queue: GangQueue, victims: Sequence[VictimUnit]) -> None:
        """The request was placed for ``victims``: go on with equivalent gangs, if any."""
        del gang_queue, victims


class SearchOutcome(Enum):
    """How a search ended."""

    PLACED = auto()
    NO_CAPACITY = auto()
    REJECTED = auto()
    OUT_OF_BUDGET = auto()
    POSTPONED = auto()
    """The victims would lose more than waiting for their ends costs."""


@dataclass
class VictimSearch:
    """Places the request of a strategy's gang at the cost of victims.

    ``probes``: trial placements it may make; afterwards those that are left. ``victims``: the
    units that were evicted.
    """

    strategy: VictimStrategy
    probes: int = 0
    victims: tuple[VictimUnit, ...] = ()
    _exact: bool = field(init=False)

    def __post_init__(self) -> None:
        """Whether counting decides depends on the request alone."""
        self._state, self._gang = self.strategy.state, self.strategy.gang
        self._request = self.strategy.request
        self._exact = is_exact(self._state, self._gang, self._request.members)

    def run(self, candidates: Iterable[VictimUnit]) -> SearchOutcome:
        """Place the request and evict its victims; nothing is done unless the outcome is PLACED."""
        selection, offered = self._empty_selection(), iter(candidates)
        min_units, rejected_any = 0, False
        rejected_sets: list[tuple[list[VictimUnit], VictimUnit]] = []
        while selection.take_until_enough(offered, min_units):
            if self.probes <= 0:
                return SearchOutcome.OUT_OF_BUDGET
            if not self._exact and not self._fits(selection.units):
                min_units = selection.doubled
                continue
            needed = self._needed_units(selection)
            rejected = next((unit for unit in needed if unit.is_partial), None)
            if rejected is None:
                cheaper = self._minimise(needed)
                tried = self._try_victims(cheaper)
                if cheaper is not needed and (tried is None or tried.rejected is not None):
                    tried = self._try_victims(needed)
                if tried is None:
                    # Counting promised too much for this request: from here on, placing decides.
                    self._exact = False
                    continue
                if tried.rejected is None:
                    return SearchOutcome.POSTPONED if tried.is_postponed else SearchOutcome.PLACED
                rejected = tried.rejected
                rejected_sets.append((needed, rejected))
            selection.exclude(rejected)
            self.probes -= REJECTION_PROBES
            rejected_any = True
        if any(self._try_with_helper(*each) for each in rejected_sets[:MAX_HELPED_SETS]):
            return SearchOutcome.PLACED
        return SearchOutcome.REJECTED if rejected_any else SearchOutcome.NO_CAPACITY

    def _empty_selection(self) -> VictimSelection:
        return VictimSelection(self._state, self._gang, self._request)

    def _try_with_helper(self, units: Sequence[VictimUnit], rejected: VictimUnit) -> bool:
        """Evict a helper too, so that the unit that was refused is relocated."""
        evicted = {member.pod.uid for member in pods_of(units)}
        for helper in self.strategy.helpers(rejected):
            if self.probes <= 0:
                break
            if any(member.pod.uid in evicted for member in helper.members):
                continue
            tried = self._try_victims([*units, helper])
            if tried is not None and tried.rejected is None:
                return not tried.is_postponed
        return False

    def _minimise(self, needed: list[VictimUnit]) -> list[VictimUnit]:
        """``needed``, or others of no higher priority that cost less to evict."""
        by_loss = self._state.loss_rules.by_loss
        if not needed or (len(pods_of(needed)) < 2 and not by_loss):
            return needed
        proposed = self.strategy.other_candidates(max(unit.gang.priority for unit in needed))
        if proposed is None:
            return needed
        units = list(islice(proposed, min(MAX_UNITS, self._state.minimisation_budget)))
        self._state.minimisation_budget -= len(units)
        cost = EvictionCosts(self._state, self.strategy.pool)
        replicas = ReplicaSteps(self._state, self._request, units, cost)
        proposals: list[Iterable[VictimUnit]] = [by_node_eviction_cost(replicas, cost)]
        if by_loss:
            proposals.append(sorted(units, key=cost.of_unit))
            proposals.append(by_total_cost(self._request, replicas, cost))
        others = (self._enough_of(offered) for offered in proposals)
        return min([needed, *(each for each in others if each)], key=cost.of)

    def _enough_of(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Those of ``units`` that are needed, taken in their order; none if they do not suffice."""
        other, min_units, offered = self._empty_selection(), 0, iter(units)
        while other.take_until_enough(offered, min_units):
            if self._exact or self._fits(other.units):
                return self._needed_units(other)
            if self.probes <= 0:
                break
            min_units = other.doubled
        return []

    def _needed_units(self, selection: VictimSelection) -> list[VictimUnit]:
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
        if self._exact and len(units) == 1:
            return list(units), []
        unneeded = [] if self._exact else self._units_elsewhere(selection, units)
        useless = selection.unneeded(units) if self._exact else []
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
            if selection.is_enough and (self._exact or self._fits(list(kept.values()))):
                peers.remove(unit)
                unneeded.append(unit)
                continue
            selection.count(unit, 1.0)
            kept[id(unit)] = unit
        return [unit for unit in units if id(unit) in kept], unneeded

    def _units_elsewhere(
        self, selection: VictimSelection, units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """Units on nodes that the request does not use, counted as back, if all can stay."""
        names = self._state.snapshot.nodes.names
        with self._state.statement.trial():
            self._place(units, explain=False)
            placed = self._state.statement.placed
            used_nodes = {
                names[placed[m.pod.uid].row] for m in self._request.members if m.pod.uid in placed
            }
        near = [u for u in units if any(member.node in used_nodes for member in u.members)]
        far = [u for u in units if u not in near and not is_orphaned(u, near)]
        for unit in far:
            selection.count(unit, -1.0)
        if selection.is_enough and self._fits([unit for unit in units if unit not in far]):
            return far
        for unit in far:
            selection.count(unit, 1.0)
        return []

    def _fits(self, units: Sequence[VictimUnit]) -> bool:
        if self.probes <= 0:
            return False
        self.probes -= 1
        with self._state.statement.trial():
            return self._place(units, explain=False)

    def _try_victims(self, units: Sequence[VictimUnit]) -> "_TriedVictims | None":
        """Evict the units and place the request; None if it does not fit."""
        self.probes -= 1
        max_pods = self.strategy.max_pods
        if max_pods is not None and len(pods_of(units)) > max_pods:
            return _TriedVictims(units[-1])
        with self._state.statement.trial() as trial:
            if not self._place(units, explain=True):
                return None
            lost = relocate(self._state, units, self.strategy.action)
            rejected = self.strategy.may_evict(lost)
            postponed = rejected is None and self._is_postponed(units)
            if rejected is None and not postponed:
                self.victims = tuple(units)
                trial.keep()
        return _TriedVictims(rejected, postponed)

    def _is_postponed(self, units: Sequence[VictimUnit]) -> bool:
        """Whether it is better to wait than to evict the units now."""
        members, action = self._request.members, self.strategy.action
        until = postponed_until(self._state, self._gang, members, units, action)
        if until is not None:
            self._state.postponed[action, self._gang.key] = until
        return until is not None

    def _place(self, units: Sequence[VictimUnit], *, explain: bool) -> bool:
        """Evict the units and place the request; ``explain``: with reasons, as it may be kept."""
        statement = self._state.statement
        for unit in units:
            reason = self.strategy.reason(unit) if explain else ""
            for member in unit.members:
                statement.evict(
                    Evicted(member, unit.gang, self.strategy.action, self._gang, reason)
                )
        blocked = self._state.placer.place(
            statement,
            self._gang,
            self._request.members,
            self.strategy.action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        return blocked is None


@dataclass(frozen=True, slots=True)
class _TriedVictims:
    """The request fits; ``rejected``: the unit that may not be lost, None when it was placed.

    ``is_postponed``: all may be lost, but it is better to wait.
    """

    rejected: VictimUnit | None
    is_postponed: bool = False
