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
from kai_py.dra.counters import lay_out
from kai_py.dra.errors import AllocationError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.holdings import DeviceState
from kai_py.dra.inventory import Inventory
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.results import build_allocations
from kai_py.dra.search import DEFAULT_BUDGET, Search, Verdict
from kai_py.dra.selection import UNSELECTABLE, Eligibility, Refusal
from kai_py.dra.standing import standing_of
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
        claim_set = plan_claims(claims, classes, inventory.features)
        view = inventory.view(node)
        eligibility = Eligibility(
            claim_set, view, inventory.features, inventory.choice, CompiledExpressions()
        )
        everything = find_everything(eligibility)
        check_limits(claim_set, everything)
        layout = lay_out(view)
        standing = standing_of(view, layout, state.pools, inventory.choice)
        trial = Trial(eligibility, layout, standing)
        outcome = Search(trial, everything, budget=budget).run()
        if outcome.verdict is Verdict.UNDECIDED:
            return Undecided(outcome.steps)
        if outcome.verdict is Verdict.INFEASIBLE:
            if view.faulty(PoolStatus.INVALID):
                return AllocationError("invalid resource pools were encountered")
            return NoFit()
        return Allocated(build_allocations(claims, eligibility, view, outcome.picks))
    except AllocationError as error:
        return error


def find_everything(eligibility: Eligibility) -> dict[int, tuple[int, ...]]:
    """Return what each ``All`` option means on this node, by the option's position.

    :raises AllocationError: a pool is not complete, so that "all" has no meaning.
    """
    found = {}
    for option in eligibility.claims.options:
        if option.everything:
            for pool in eligibility.view.pools:
                _refuse_partial(option, pool)
            found[option.position] = tuple(
                device
                for device in range(len(eligibility.view.rows))
                if _is_meant(eligibility, option, device)
            )
    return found


def _is_meant(eligibility: Eligibility, option: Option, device: int) -> bool:
    outcome = eligibility.judge(option, device)
    return not (isinstance(outcome, Refusal) and outcome.step in UNSELECTABLE)


def _refuse_partial(option: Option, pool: Pool) -> None:
    if pool.status is PoolStatus.READY:
        return
    state = "being updated" if pool.status is PoolStatus.INCOMPLETE else "invalid"
    raise AllocationError(
        f"{option.where}: asks for all devices, but resource pool {pool.id} is currently {state}"
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
