"""Placing the pods of a request, also those whose claims have alternatives (``firstAvailable``).

A pod takes the first alternative that its node has devices for, whatever the pods of its gang that
come after it need. Where that leaves too few devices for these, the first alternatives are given
up: of the last request at first, of earlier ones if that is not enough. So the first request keeps
its first alternatives for as long as the others find any. Claims with one spec get the same
alternatives. At most ``MAX_TRIALS`` further placements are tried.

If the pods fit in none of these ways, the devices of those on a node are searched together.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from msgspec.structs import replace

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.next_pods import may_start
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.placement.together import may_fit_together
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools

MAX_TRIALS = 16

ClaimSpecs = Mapping[int, ResourceClaimSpec]
"""Narrowed claim specs, by the ``id`` of the original spec."""


def place_with_alternatives(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None = None,
    explain: bool = True,
) -> Unschedulable | None:
    """Place all of ``members`` in idle, else in future idle capacity; None, or why not.

    Only in the latter if the gang does not start yet.
    If they do not fit, also with later alternatives of the claims of several pods, and with devices
    that are chosen for all of them. ``allowed``: (nodes,) bool, None for all. The reason is that of
    idle capacity.
    """
    reason = _place_earliest(state, gang, members, allowed=allowed, explain=explain)
    if reason is None or len(members) == 1:
        return reason
    if have_alternatives(members):
        devices = state.statement.devices
        own = own_claims(state, members).values()
        narrowed = {id(spec): devices.narrowed_spec(spec) for spec in own}
        for specs in islice(_later_alternatives(narrowed), MAX_TRIALS):
            with devices.narrowed(specs):
                if _place_earliest(state, gang, members, allowed=allowed, explain=False) is None:
                    return None
    return None if _place_together(state, gang, members, allowed) else reason


def _place_together(
    state: CycleState, gang: Gang, members: Sequence[Member], allowed: Bools | None
) -> bool:
    """Place all of ``members``, with devices that are chosen for those on a node together."""
    if state.turns.spending.cut_short or not may_fit_together(state.statement, members):
        return False
    placer = replace(state.placer, together=True)
    return _place_earliest(state, gang, members, allowed=allowed, placer=placer) is None


def _place_earliest(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None,
    explain: bool = False,
    placer: Placer | None = None,
) -> Unschedulable | None:
    """``place_with_alternatives`` with the alternatives that claims are narrowed to now."""
    placer = placer or state.placer
    reason: Unschedulable | None = None
    capacities: tuple[Capacity, ...] = (Capacity.IDLE, Capacity.FUTURE_IDLE)
    if state.frees_capacity and not may_start(gang, members, state.statement):
        capacities = (Capacity.FUTURE_IDLE,)
    for capacity in capacities:
        with state.statement.trial() as trial:
            blocked = placer.place(
                state.statement,
                gang,
                members,
                Action.ALLOCATE,
                capacity=capacity,
                allowed=allowed,
                explain=explain and reason is None,
            )
            if blocked is None:
                trial.keep()
                return None
        reason = reason or blocked
        if not state.frees_capacity:
            break
    return reason


def try_placing(
    state: CycleState, gang: Gang, members: Sequence[Member], allowed: Bools | None = None
) -> bool:
    """``place_with_alternatives`` without finding out why not; whether the pods were placed."""
    return place_with_alternatives(state, gang, members, allowed=allowed, explain=False) is None


def _later_alternatives(specs: ClaimSpecs) -> Iterator[ClaimSpecs]:
    """``specs`` without some of their first alternatives, the fewest of the first requests."""
    lengths = [
        max(len(request.first_available), 1)
        for spec in specs.values()
        for request in spec.devices.requests
    ]
    for dropped in islice(product(*map(range, lengths)), 1, None):
        left = iter(dropped)
        yield {key: _without_first(spec, left) for key, spec in specs.items()}


def _without_first(spec: ResourceClaimSpec, dropped: Iterator[int]) -> ResourceClaimSpec:
    """``spec`` without the first alternatives; ``dropped``: how many of each request."""
    requests = tuple(
        replace(each, first_available=each.first_available[next(dropped) :])
        for each in spec.devices.requests
    )
    return replace(spec, devices=replace(spec.devices, requests=requests))


def have_alternatives(members: Sequence[Member]) -> bool:
    """Whether a request of their claims may be served in several ways."""
    shapes = {member.shape.number: member.shape for member in members}
    uses = (use for shape in shapes.values() for use in shape.claims)
    return any(len(each.first_available) > 1 for use in uses for each in use.spec.devices.requests)


def own_claims(
    state: CycleState, members: Sequence[Member]
) -> Mapping[ClaimRef, ResourceClaimSpec]:
    """The unallocated claims of pods that are charged to their gang."""
    found: dict[ClaimRef, ResourceClaimSpec] = {}
    for member in members:
        found |= state.statement.devices.own_claims(member)
    return found
