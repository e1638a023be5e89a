"""The search for the fewest victims that let the request of one preemptor be placed.

    until the request is placed, or no candidate is left:
        take candidates in order until, by counting, the request could fit (``selection``)
        drop every unit that is not needed for that (``reduction``)
        if the strategy has other candidates, propose cheaper sets from them (``minimise``), and go
            on with the cheapest set
        evict the set, place the request, and relocate every victim that fits elsewhere
        ask the strategy whether the victims that fit nowhere, the lost ones, may be evicted
        if one may not be, exclude it from the candidates; after the first such refusal, also try a
            set that is composed of what the queues may lose together (``replica_steps``)
    if every set was refused:
        try the first refused sets once more, each with one helper: a further unit whose eviction
        lets the refused one be relocated

Either the request is placed and all its victims are evicted, or nothing is. Every victim is needed:
the request does not fit if any one of them stays. Where counting is exact (``count.is_exact``),
each round makes one trial placement. Elsewhere the number of units doubles after each trial
placement that failed, and trial placements also show which units are needed. Each trial placement
costs one probe; the search ends when its probe budget is spent, or when several sets had more pods
than may be relocated.

Compare ``dryRunPreemption`` and ``selectVictimsOnDomain`` of kube-scheduler's
``default_preemption.go`` and ``minimalPreemptions``/``fillBackWorkloads`` of Kueue's
``preemption.go``: all of them remove candidates until the preemptor fits, then add back those that
are not needed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, tee
from typing import NamedTuple

from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.postponed_ahead import until_those_ahead
from kai_py.plan.victims.reduction import VictimReduction
from kai_py.plan.victims.relocate import relocate
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.timing import postponed_until
from kai_py.plan.victims.trials import TrialPlacements
from kai_py.plan.victims.units import VictimUnit, pods_of

MAX_HELPED_SETS = 2
"""How many refused sets are tried again with a helper."""


class SearchOutcome(Enum):
    """How a search ended."""

    PLACED = auto()
    NO_CAPACITY = auto()
    """The request does not fit even without all candidates."""
    REFUSED = auto()
    """It would fit, but the strategy allows none of the sets of victims found."""
    OUT_OF_BUDGET = auto()
    """The probes were spent; nothing is proven."""
    POSTPONED = auto()
    """It costs less to wait until the victims end than to evict them now (``timing``)."""


@dataclass
class VictimSearch:
    """Places the request of a strategy's gang at the cost of victims.

    ``max_probes``: the probe budget, ``trials``: what is left of it. ``victims``: the units that
    ``run`` has evicted.
    """

    strategy: VictimStrategy
    max_probes: int = 0
    victims: tuple[VictimUnit, ...] = ()

    def __post_init__(self) -> None:
        """Prepare the search; nothing is tried yet."""
        self._state, self._gang = self.strategy.state, self.strategy.gang
        self._request = self.strategy.request
        exact = is_exact(self._state, self._gang, self._request.members)
        self.trials = TrialPlacements(self.strategy, self.max_probes, is_exact=exact)
        self._reduction = VictimReduction(self.strategy, self.trials)

    def run(self, candidates: Iterable[VictimUnit]) -> SearchOutcome:
        """Place the request and evict its victims; nothing is done unless the outcome is PLACED."""
        selection = VictimSelection(self.strategy)
        offered = iter(candidates)
        refused_sets: list[tuple[list[VictimUnit], VictimUnit]] = []
        while selection.take_until_enough(offered):
            if self.trials.probes <= 0:
                return SearchOutcome.OUT_OF_BUDGET
            if not self._reduction.fits_without(selection):
                continue
            needed = self._reduction.needed_units(selection)
            refused = next((unit for unit in needed if unit.is_partial), None)
            if refused is None:
                tried = self._try_cheapest(needed, selection.units)
                if tried.outcome is SearchOutcome.NO_CAPACITY:
                    # Counting said that it fits and it did not: from here on, only trial
                    # placements decide.
                    self.trials.is_exact = False
                    continue
                if tried.refused is None:
                    return tried.outcome
                refused = tried.refused
                refused_sets.append((needed, refused))
            if not self.trials.refused_sets:
                offered, again = tee(offered)
                allowed = self._reduction.allowed(chain(selection.units_read, again))
                outcome = allowed and self._try_cheapest(allowed, allowed).outcome
                if outcome in (SearchOutcome.PLACED, SearchOutcome.POSTPONED):
                    return outcome
            alike = None if refused.is_partial else self.strategy.refused_like(refused)
            selection.exclude(refused, alike)
            if not self.trials.goes_on_after_refusal(len(selection.units)):
                break
        helped_sets = () if self.trials.all_exceeded_max_pods else refused_sets[:MAX_HELPED_SETS]
        if any(self._try_with_helper(*each) for each in helped_sets):
            return SearchOutcome.PLACED
        return SearchOutcome.REFUSED if self.trials.refused_sets else SearchOutcome.NO_CAPACITY

    def _try_cheapest(self, needed: list[VictimUnit], taken: list[VictimUnit]) -> "_TriedSet":
        """Try the cheapest set of victims, and then ``needed`` if that fails.

        ``taken``: the selected units, of which ``needed`` are left.
        """
        cheapest = self._reduction.minimise(needed, taken)
        tried = self._try_victims(cheapest)
        failed = tried.outcome in (SearchOutcome.NO_CAPACITY, SearchOutcome.REFUSED)
        return self._try_victims(needed) if failed and cheapest is not needed else tried

    def _try_with_helper(self, units: Sequence[VictimUnit], refused: VictimUnit) -> bool:
        """Whether the request is placed if a helper is evicted as well as ``units``."""
        evicted = {member.pod.uid for member in pods_of(units)}
        for helper in self.strategy.helpers(refused):
            if self.trials.probes <= 0:
                break
            if any(member.pod.uid in evicted for member in helper.members):
                continue
            outcome = self._try_victims([*units, helper]).outcome
            if outcome in (SearchOutcome.PLACED, SearchOutcome.POSTPONED):
                return outcome is SearchOutcome.PLACED
        return False

    def _try_victims(self, units: Sequence[VictimUnit]) -> "_TriedSet":
        """Evict the units and place the request; undone unless PLACED. Costs a probe."""
        self.trials.probes -= 1
        if self.trials.exceeds_max_pods(units):
            return _TriedSet(SearchOutcome.REFUSED, units[-1])
        ahead = until_those_ahead(self.strategy, units)
        with self._state.statement.trial() as trial:
            if not self.trials.place(units, explain=True):
                return _TriedSet(SearchOutcome.NO_CAPACITY)
            lost = relocate(self._state, units, self.strategy.action) if units else []
            refused = self.strategy.refused_unit(lost)
            if refused is not None:
                return _TriedSet(SearchOutcome.REFUSED, refused)
            until = postponed_until(self.strategy, units) if ahead is None else ahead
            if until is not None:
                self._state.postpone(self.strategy.action, self._gang, until)
                return _TriedSet(SearchOutcome.POSTPONED)
            self.victims = tuple(units)
            trial.keep()
        return _TriedSet(SearchOutcome.PLACED)


class _TriedSet(NamedTuple):
    """The outcome for a set of victims; ``refused``: the first that may not be evicted, if any."""

    outcome: SearchOutcome
    refused: VictimUnit | None = None
