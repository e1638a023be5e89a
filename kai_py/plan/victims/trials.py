"""Trial placements: evict units and place the request in the statement, then undo both.

Placements that are tried one after the other mostly evict nearly the same units. Within
``sharing_evictions`` these stay evicted from one to the next, so that each costs what differs. It
pays for what it evicts: a probe for every ``PODS_PER_PROBE`` pods.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from msgspec.structs import replace

from kai_py.plan.placement.exact import SearchSteps
from kai_py.plan.placement.gang import Placer
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Trial
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit, pods_of
from kai_py.policy.queue_limits import check_usage

MAX_EXACT_STEPS = 1_024
"""Steps of all exact searches in the trial placements of one search for victims."""

STEPS_PER_PROBE = 8
"""Steps of an exact search that cost as much as a probe."""

PODS_PER_PROBE = 256
"""Pods that are evicted, and put back, at the cost of a probe."""

UNREDUCED = "; within the trial placements that one search may make, no fewer victims were found"
"""Added to the reasons of evictions if it was not tried to evict fewer pods."""

REFUSAL_PROBES = 8
"""Probes charged for a refused set: the search selects and drops units again from the start."""

MIN_REFUSED_SETS, MAX_REFUSED_UNITS = 4, 1_024
"""A reclaim ends after so many refused sets, once so many units were selected to find them."""

MAX_TOO_LARGE_SETS = 8
"""Sets of more pods than may be evicted, after which a search ends: it finds small ones first."""


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
    _shared: "SharedEvictions | None" = None
    used_nodes: frozenset[str] = frozenset()
    """Where the pods of the request were in the last trial in which it fitted."""
    ran_out: bool = False
    """Whether more trials were needed than there were probes, so victims may be too many."""
    refused_sets: int = 0
    _refused_units: int = 0
    _too_large_sets: int = 0
    _has_evicted: bool = False
    _evicted_pods: int = 0
    """Those that no probe was charged for yet."""

    @cached_property
    def _placer(self) -> Placer:
        """One with all steps of exact searches left; most searches try no victims."""
        steps = SearchSteps(MAX_EXACT_STEPS, self.strategy.action)
        return replace(self.strategy.state.placer, search_steps=steps)

    def fits(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the request fits without ``units``. Costs a probe; False if none is left."""
        if self.probes <= 0:
            self.ran_out = True
            return False
        if self._shared is None:
            with self.sharing_evictions():
                return self.fits(units)
        self._evicted_pods += self._shared.change_to(units)
        paid, self._evicted_pods = divmod(self._evicted_pods, PODS_PER_PROBE)
        self.probes -= 1 + paid
        with self.strategy.state.statement.trial():
            return self._place_without(units)

    @contextmanager
    def sharing_evictions(self) -> Iterator[None]:
        """In this block ``fits`` leaves units evicted as long as the next calls evict them too.

        Nothing in it may read the statement otherwise; at its end all is undone.
        """
        with self.strategy.state.statement.trial():
            self._shared = SharedEvictions(self.strategy)
            try:
                yield
            finally:
                self._shared = None

    def goes_on_after_refusal(self, selected: int) -> bool:
        """Charge for a refused set of ``selected`` units; whether to look for another one."""
        self.probes -= REFUSAL_PROBES
        self.refused_sets += 1
        self._refused_units += selected
        few = self.refused_sets < MIN_REFUSED_SETS or self._refused_units <= MAX_REFUSED_UNITS
        is_small = self._too_large_sets < MAX_TOO_LARGE_SETS
        return is_small and (few or self.strategy.allowance() is None)

    def exceeds_max_pods(self, units: Sequence[VictimUnit]) -> bool:
        """Whether ``units`` have more pods than the strategy may evict."""
        max_pods = self.strategy.max_pods
        is_exceeded = max_pods is not None and len(pods_of(units)) > max_pods
        self._too_large_sets += is_exceeded
        return is_exceeded

    @property
    def all_exceeded_max_pods(self) -> bool:
        """Whether there were sets of victims, each with more pods than may be evicted."""
        return self._too_large_sets > 0 and not self._has_evicted

    def place(self, units: Sequence[VictimUnit], *, explain: bool) -> bool:
        """Evict ``units`` and place the request; whether it fits. The caller has opened a trial.

        ``explain``: with reasons for the evictions, for a trial that may be kept.
        """
        note = UNREDUCED if self.ran_out else ""
        self._has_evicted = True
        for unit in units:
            self.strategy.evict(unit, self.strategy.reason(unit) + note if explain else "")
        return self._place_without(units)

    def _place_without(self, units: Sequence[VictimUnit]) -> bool:
        """Place the request, once ``units`` are evicted; whether it fits."""
        statement = self.strategy.state.statement
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
        fits = blocked is None and self._stays_within_max()
        if fits:
            self.used_nodes = self._nodes_of_request()
        return fits

    def _nodes_of_request(self) -> frozenset[str]:
        state = self.strategy.state
        names, placed = state.snapshot.nodes.names, state.statement.placed
        members = self.strategy.request.members
        return frozenset(names[placed[m.pod.uid].row] for m in members if m.pod.uid in placed)

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


@dataclass
class SharedEvictions:
    """A stack of evicted units: to take one back, all evictions after it are undone.

    Those of them that are still wanted are evicted again and so come to lie on top, where the next
    change undoes them again. Once such repetitions cost as much as evicting all units would, the
    units that stayed are evicted again on top of them.
    """

    strategy: VictimStrategy
    _evicted: list[tuple[VictimUnit, Trial]] = field(default_factory=list)
    _repeated: int = 0
    """How many units were evicted since all of them were."""

    def change_to(self, units: Sequence[VictimUnit]) -> int:
        """Let just ``units`` be evicted; how many pods had to be evicted for that."""
        wanted = {id(unit) for unit in units}
        stay = 0
        while stay < len(self._evicted) and id(self._evicted[stay][0]) in wanted:
            stay += 1
        staying = {id(unit) for unit, _ in self._evicted[:stay]}
        added = [unit for unit in units if id(unit) not in staying]
        self._repeated = self._repeated + len(added) if stay else 0
        if self._repeated > len(units):
            added += [unit for unit, _ in self._evicted[:stay]]
            stay = self._repeated = 0
        if stay < len(self._evicted):
            self._evicted[stay][1].undo()
            del self._evicted[stay:]
        for unit in added:
            self._evicted.append((unit, self.strategy.state.statement.trial()))
            self.strategy.evict(unit, "")
        return sum(len(unit.members) for unit in added)
