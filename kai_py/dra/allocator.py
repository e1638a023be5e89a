"""Give every claim of a pod its devices on one node, all claims together or none.

The answer is a value: the allocations; that they do not fit, with reasons; that the budget ran
out; or that the question itself is faulty. Nothing is changed: holding the devices is the caller's
step (``DeviceState.hold``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kai_py.api.records.core import Node
from kai_py.api.records.resource import (
    MAX_RESULTS_PER_CLAIM,
    AllocationResult,
    DeviceClass,
    ResourceClaim,
)
from kai_py.dra.claims import ClaimSet, Option, plan_claims
from kai_py.dra.counters import CounterLayout, lay_out
from kai_py.dra.errors import AllocationError
from kai_py.dra.expressions import CompiledExpressions, KnownMatches
from kai_py.dra.features import Choice, Features
from kai_py.dra.holdings import DeviceState
from kai_py.dra.inventory import Inventory, NodeView
from kai_py.dra.placement_loss import PlacementLoss
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.results import build_allocations
from kai_py.dra.scoring import BestFit
from kai_py.dra.search import DEFAULT_BUDGET, Order, Outcome, Search, Verdict
from kai_py.dra.selection import UNSELECTABLE, Eligibility, Expressions, Refusal
from kai_py.dra.standing import Standing, standing_of
from kai_py.dra.trial import Trial


@dataclass(frozen=True, slots=True)
class Allocated:
    """One allocation per claim, in the order of the claims."""

    allocations: tuple[AllocationResult, ...]


@dataclass(frozen=True, slots=True)
class NoFit:
    """The node cannot serve the claims."""

    text: str = "cannot allocate all claims"


@dataclass(frozen=True, slots=True)
class Undecided:
    """The budget ran out before an answer was found."""

    steps: int


Answer = Allocated | NoFit | Undecided | AllocationError


def allocate(
    claims: Sequence[ResourceClaim],
    node: Node,
    inventory: Inventory,
    state: DeviceState,
    classes: Mapping[str, DeviceClass],
    *,
    budget: int = DEFAULT_BUDGET,
) -> Answer:
    """Find devices for ``claims`` on ``node``."""
    if not claims:
        return Allocated(())
    try:
        view = inventory.view(node)
        site = prepare(
            plan_claims(claims, classes, inventory.features),
            view,
            inventory.features,
            inventory.choice,
            KnownMatches(CompiledExpressions()),
        )
        standing = standing_of(view, site.counters, state.pools, inventory.choice)
        outcome = solve(site, standing, budget)
        if outcome.verdict is Verdict.FOUND:
            return Allocated(build_allocations(claims, site.eligibility, view, outcome.picks))
        return refusal_of(outcome)
    except AllocationError as error:
        return error


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Claims on a node view, as far as it does not matter who holds what."""

    eligibility: Eligibility
    counters: CounterLayout
    everything: dict[int, tuple[int, ...]]
    order: Order | None


def prepare(
    claims: ClaimSet,
    view: NodeView,
    features: Features,
    choice: Choice,
    expressions: Expressions,
) -> Site:
    """Find out what ``claims`` mean on ``view``.

    :raises AllocationError: the claims cannot be served on any standing.
    """
    eligibility = Eligibility(claims, view, features, choice, expressions)
    everything = find_everything(eligibility)
    check_limits(claims, everything)
    counters = lay_out(view)
    order = BestFit(PlacementLoss(counters)) if choice is Choice.BEST_FIT else None
    return Site(eligibility, counters, everything, order)


def solve(site: Site, standing: Standing, budget: int) -> Outcome:
    """Search for devices.

    :raises AllocationError: a device or request cannot be judged, or, with first fit, nothing is
        left but pools that are invalid.
    """
    trial = Trial(site.eligibility, site.counters, standing)
    outcome = Search(trial, site.everything, site.order, budget).run()
    if (
        outcome.verdict is Verdict.INFEASIBLE
        and site.eligibility.choice is Choice.FIRST_FIT
        and site.eligibility.view.faulty(PoolStatus.INVALID)
    ):
        raise AllocationError("invalid resource pools were encountered")
    return outcome


def refusal_of(outcome: Outcome) -> NoFit | Undecided:
    """Turn the end of a search that found nothing into an answer."""
    if outcome.verdict is Verdict.UNDECIDED:
        return Undecided(outcome.steps)
    return NoFit()


def find_everything(eligibility: Eligibility) -> dict[int, tuple[int, ...]]:
    """Return what each ``All`` option means on this node, by the option's position.

    :raises AllocationError: a pool is not complete, so that "all" has no meaning.
    """
    found = {}
    for option in eligibility.claims.options:
        if option.everything:
            if eligibility.choice is Choice.FIRST_FIT:
                _refuse_partial(option, eligibility.view.pools)
            meant = tuple(
                device
                for device in range(len(eligibility.view.rows))
                if _is_meant(eligibility, option, device)
            )
            drivers = {eligibility.view.rows[device].id.driver for device in meant}
            related = [p for p in eligibility.view.pools if not meant or p.id.driver in drivers]
            _refuse_partial(option, related)
            found[option.position] = meant
    return found


def _is_meant(eligibility: Eligibility, option: Option, device: int) -> bool:
    outcome = eligibility.judge(option, device)
    return not (isinstance(outcome, Refusal) and outcome.step in UNSELECTABLE)


def _refuse_partial(option: Option, pools: Sequence[Pool]) -> None:
    """Refuse to say what "all" means while a pool is not complete.

    Upstream does so for pools of any driver.
    """
    for pool in pools:
        if pool.status is not PoolStatus.READY:
            state = "being updated" if pool.status is PoolStatus.INCOMPLETE else "invalid"
            raise AllocationError(
                f"{option.where}: asks for all devices, but resource pool {pool.id} is currently "
                f"{state}"
            )


def check_limits(claims: ClaimSet, everything: Mapping[int, tuple[int, ...]]) -> None:
    """Check that no claim asks for more devices than a claim can hold, whatever is chosen.

    :raises AllocationError: one does.
    """
    for claim in claims.claims:
        total = 0
        for request in claim.requests:
            least = min(
                len(everything[option.position]) if option.everything else option.count
                for option in request
            )
            if total + least > MAX_RESULTS_PER_CLAIM:
                name = request[0].name.partition("/")[0]
                raise AllocationError(
                    f"claim {claim.name}, request {name}: adding {least} devices exceeds the "
                    f"claim limit of {MAX_RESULTS_PER_CLAIM}, with {total} already accounted for"
                )
            total += least
