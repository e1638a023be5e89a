"""Allocation of devices to all claims of a pod on one node, all claims together or none.

The outcome is a value: the allocations; infeasible; the budget ran out; or a fault of the claims
themselves. No state is changed: marking the devices as allocated is the caller's step
(``DeviceState.mark_allocated``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kai_py.api.records.node import Node
from kai_py.api.records.resource import (
    MAX_RESULTS_PER_CLAIM,
    AllocationResult,
    DeviceClass,
    ResourceClaim,
)
from kai_py.dra.counters import CounterLayout, layout_counters
from kai_py.dra.device_state import DeviceState
from kai_py.dra.eligibility import SELECTION_CHECKS, DeviceRejection, Eligibility, Expressions
from kai_py.dra.expressions import CachedExpressions, CompiledExpressions
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import Inventory, NodeDevices
from kai_py.dra.parsed_claims import Option, ParsedClaims, parse_claims
from kai_py.dra.placement_loss import PlacementLoss
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.results import build_allocations
from kai_py.dra.scoring import BestFit
from kai_py.dra.search import DEFAULT_BUDGET, DeviceSearchResult, Order, Search, SearchStatus
from kai_py.dra.search_state import SearchState
from kai_py.dra.spending import SelectorAllowance
from kai_py.dra.usage_classes import DeviceUsage, device_usage


class Allocation(Struct, frozen=True):
    """One allocation per claim, in the order of the claims."""

    allocations: tuple[AllocationResult, ...]


class Infeasible(Struct, frozen=True):
    """The node can't serve the claims."""


class BudgetExceeded(Struct, frozen=True):
    """The budget ran out before the search ended; ``proven``: it will each time."""

    steps: int
    proven: bool = True


AllocationOutcome = Allocation | Infeasible | BudgetExceeded | AllocationError


def allocate(
    claims: Sequence[ResourceClaim],
    node: Node,
    inventory: Inventory,
    state: DeviceState,
    classes: Mapping[str, DeviceClass],
    *,
    budget: int = DEFAULT_BUDGET,
    allowance: SelectorAllowance | None = None,
) -> AllocationOutcome:
    """Find devices for ``claims`` on ``node``."""
    if not claims:
        return Allocation(())
    try:
        view = inventory.view(node)
        problem = prepare_problem(
            parse_claims(claims, classes, inventory.features),
            view,
            inventory.strategy,
            CachedExpressions(CompiledExpressions(allowance or SelectorAllowance())),
        )
        usage = device_usage(view, problem.counters, state.pools, inventory.strategy)
        outcome = solve(problem, usage, budget)
        if outcome.status is SearchStatus.FOUND:
            return Allocation(build_allocations(claims, problem.eligibility, view, outcome.picks))
        return failure_of(outcome)
    except AllocationError as error:
        return error.as_outcome()


class NodeProblem(Struct, frozen=True, eq=False):
    """Claims on a node view, as far as it is independent of current allocations."""

    eligibility: Eligibility
    counters: CounterLayout
    all_mode_devices: dict[int, tuple[int, ...]]
    order: Order | None


def prepare_problem(
    claims: ParsedClaims, view: NodeDevices, strategy: AllocationStrategy, expressions: Expressions
) -> NodeProblem:
    """Evaluate ``claims`` on the devices of ``view``.

    :raises AllocationError: the claims can't be served whatever is allocated.
    """
    eligibility = Eligibility(claims, view, strategy, expressions)
    all_mode_devices = find_all_mode_devices(eligibility)
    check_limits(claims, all_mode_devices)
    counters = layout_counters(view)
    order = BestFit(PlacementLoss(counters)) if strategy is AllocationStrategy.BEST_FIT else None
    return NodeProblem(eligibility, counters, all_mode_devices, order)


def solve(
    problem: NodeProblem,
    usage: DeviceUsage,
    budget: int,
    poll: Callable[[], None] = lambda: None,
) -> DeviceSearchResult:
    """Search for devices; ``poll`` is called now and then, and may raise to end the search.

    :raises AllocationError: a device or request can't be evaluated, or, with first fit, an invalid
    pool is visible and the search found nothing.
    """
    search_state = SearchState(problem.eligibility, problem.counters, usage)
    outcome = Search(search_state, problem.all_mode_devices, problem.order, budget, poll).run()
    if (
        outcome.status is SearchStatus.INFEASIBLE
        and problem.eligibility.strategy is AllocationStrategy.FIRST_FIT
        and problem.eligibility.view.faulty(PoolStatus.INVALID)
    ):
        raise AllocationError("invalid resource pools were encountered")
    return outcome


def failure_of(result: DeviceSearchResult) -> Infeasible | BudgetExceeded:
    """The outcome for a search that found nothing."""
    if result.status is SearchStatus.UNDECIDED:
        return BudgetExceeded(result.steps)
    return Infeasible()


def find_all_mode_devices(eligibility: Eligibility) -> dict[int, tuple[int, ...]]:
    """Devices of each option with allocation mode All on this node, by option position.

    :raises AllocationError: a pool is not complete, so that "all" has no meaning.
    """
    devices_by_option = {}
    for option in eligibility.claims.options:
        if option.is_all_mode:
            selected = tuple(_selected_devices(eligibility, option))
            drivers = {eligibility.view.rows[device].id.driver for device in selected}
            related = [p for p in eligibility.view.pools if not selected or p.id.driver in drivers]
            _require_complete_pools(option, related)
            devices_by_option[option.position] = selected
    return devices_by_option


def _selected_devices(eligibility: Eligibility, option: Option) -> Iterator[int]:
    """The devices that ``option`` selects; first fit requires every pool to be complete."""
    view = eligibility.view
    for position, pool in enumerate(view.pools):
        if eligibility.strategy is AllocationStrategy.FIRST_FIT:
            _require_complete_pools(option, (pool,))
        start = bisect_left(view.pool_of_row, position)
        end = bisect_right(view.pool_of_row, position)
        yield from (
            device for device in range(start, end) if _is_selected(eligibility, option, device)
        )


def _is_selected(eligibility: Eligibility, option: Option, device: int) -> bool:
    outcome = eligibility.check(option, device)
    return not (isinstance(outcome, DeviceRejection) and outcome.check in SELECTION_CHECKS)


def _require_complete_pools(option: Option, pools: Sequence[Pool]) -> None:
    """Raise AllocationError if a pool is not complete, because "all" is then undefined.

    kube-scheduler does so for pools of any driver.
    """
    for pool in pools:
        if pool.status is not PoolStatus.READY:
            state = "being updated" if pool.status is PoolStatus.INCOMPLETE else "invalid"
            raise AllocationError(
                f"{option.location}: asks for all devices, but resource pool {pool.id} is "
                f"currently {state}"
            )


def check_limits(claims: ParsedClaims, all_mode_devices: Mapping[int, tuple[int, ...]]) -> None:
    """Check that no claim requests more devices than fit in it, whichever options are chosen.

    :raises AllocationError: a claim does.
    """
    for claim in claims.claims:
        total = 0
        for request in claim.requests:
            least = min(
                len(all_mode_devices[option.position]) if option.is_all_mode else option.count
                for option in request
            )
            if total + least > MAX_RESULTS_PER_CLAIM:
                name = request[0].name.partition("/")[0]
                raise AllocationError(
                    f"claim {claim.name}, request {name}: adding {least} devices exceeds the "
                    f"claim limit of {MAX_RESULTS_PER_CLAIM}, with {total} already accounted for"
                )
            total += least
