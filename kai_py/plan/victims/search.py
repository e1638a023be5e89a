"""The fewest victims for one preemptor, taken from its candidates in the order of these.

    until the request is placed:
        take candidates until counting says that the request could fit
        put back, by eviction cost, every unit that is not needed for that; of a gang that would
            fall below minMember, every pod, if those that are needed are elastic (``reduction``)
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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.reduction import VictimReduction
from kai_py.plan.victims.relocate import relocate
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.timing import postponed_until
from kai_py.plan.victims.trials import TrialPlacements
from kai_py.plan.victims.units import (
    VictimUnit,
    pods_of,
)

MAX_HELPED_SETS = 2
"""Refused sets that are tried again with a helper."""

REJECTION_PROBES = 8
"""What a refused set of victims costs beside its placement: the selection starts over."""


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

    ``max_probes``: trial placements it may make. ``victims``: the units that were evicted.
    """

    strategy: VictimStrategy
    max_probes: int = 0
    victims: tuple[VictimUnit, ...] = ()

    def __post_init__(self) -> None:
        """Nothing is tried yet."""
        self._state, self._gang = self.strategy.state, self.strategy.gang
        self._request = self.strategy.request
        exact = is_exact(self._state, self._gang, self._request.members)
        self._trials = TrialPlacements(self.strategy, self.max_probes, is_exact=exact)
        self._reduction = VictimReduction(self.strategy, self._trials)

    @property
    def probes_used(self) -> int:
        """The trial placements that it has made."""
        return self.max_probes - self._trials.probes

    def run(self, candidates: Iterable[VictimUnit]) -> SearchOutcome:
        """Place the request and evict its victims; nothing is done unless the outcome is PLACED."""
        selection = VictimSelection(self._state, self._gang, self._request)
        offered = iter(candidates)
        min_units, rejected_any = 0, False
        rejected_sets: list[tuple[list[VictimUnit], VictimUnit]] = []
        while selection.take_until_enough(offered, min_units):
            if self._trials.probes <= 0:
                return SearchOutcome.OUT_OF_BUDGET
            if not self._trials.is_exact and not self._trials.fits(selection.units):
                min_units = selection.doubled
                continue
            needed = self._reduction.needed_units(selection)
            rejected = next((unit for unit in needed if unit.is_partial), None)
            if rejected is None:
                cheaper = self._reduction.minimise(needed, selection.units)
                tried = self._try_victims(cheaper)
                if cheaper is not needed and (tried is None or tried.rejected is not None):
                    tried = self._try_victims(needed)
                if tried is None:
                    # Counting promised too much for this request: from here on, placing decides.
                    self._trials.is_exact = False
                    continue
                if tried.rejected is None:
                    return SearchOutcome.POSTPONED if tried.is_postponed else SearchOutcome.PLACED
                rejected = tried.rejected
                rejected_sets.append((needed, rejected))
            selection.exclude(rejected)
            self._trials.probes -= REJECTION_PROBES
            rejected_any = True
        if any(self._try_with_helper(*each) for each in rejected_sets[:MAX_HELPED_SETS]):
            return SearchOutcome.PLACED
        return SearchOutcome.REJECTED if rejected_any else SearchOutcome.NO_CAPACITY

    def _try_with_helper(self, units: Sequence[VictimUnit], rejected: VictimUnit) -> bool:
        """Evict a helper too, so that the unit that was refused is relocated."""
        evicted = {member.pod.uid for member in pods_of(units)}
        for helper in self.strategy.helpers(rejected):
            if self._trials.probes <= 0:
                break
            if any(member.pod.uid in evicted for member in helper.members):
                continue
            tried = self._try_victims([*units, helper])
            if tried is not None and tried.rejected is None:
                return not tried.is_postponed
        return False

    def _try_victims(self, units: Sequence[VictimUnit]) -> "_TriedVictims | None":
        """Evict the units and place the request; None if it does not fit."""
        self._trials.probes -= 1
        max_pods = self.strategy.max_pods
        if max_pods is not None and len(pods_of(units)) > max_pods:
            return _TriedVictims(units[-1])
        with self._state.statement.trial() as trial:
            if not self._trials.place(units, explain=True):
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


@dataclass(frozen=True, slots=True)
class _TriedVictims:
    """The request fits; ``rejected``: the unit that may not be lost, None when it was placed.

    ``is_postponed``: all may be lost, but it is better to wait.
    """

    rejected: VictimUnit | None
    is_postponed: bool = False
