"""Consolidate: relocate running gangs so that a pending gang fits; no pod is lost.

    for each pending preemptible gang that was not placed, in the order of the gangs:
        candidates: running preemptible gangs of any queue, the node that is cheapest to free first
        victims: the fewest candidates that make the request fit, also pod by pod; every one of
                 them must fit elsewhere, if need be after one further pod has been relocated

Pods that started within ``eviction.settlingTime`` stay where they are.

A relocation is a restart. The cost of a node is the number of pods to evict before one more pod of
the gang fits there; of equal numbers, where lost work counts, what they lose. Relocation frees no
capacity in total. So there is no search unless all nodes that admit the gang or any candidate have
enough idle resources together; cordoned nodes do not count. With the SPREAD strategy for GPU pods
nothing is relocated, as that would pack what was spread.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, tee

import numpy as np
from msgspec import structs

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.action import find_victims
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.replica_steps import units_by_row
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.survival import exceeded_limit
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.fit import holds
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats

MAX_HELPERS = 8
"""How many pods are tried as helpers of one refused victim."""

FRACTION_TOLERANCE = 1e-6
"""Sums of parts of GPUs are off by less than this."""


def consolidate(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending.

    ``pool``: the candidates, where they were collected already.
    """
    if state.placer.shapes.gpu_strategy is FillStrategy.SPREAD:
        return
    waiting = list(gangs)
    if _could_help_any(state, waiting):
        find_victims(state, waiting, Consolidation, pool)


def _could_help_any(state: CycleState, gangs: Iterable[Gang]) -> bool:
    """Whether the idle resources of all nodes together suffice for any of the gangs."""
    requests = (state.next_request(gang) for gang in gangs if gang.preemptible)
    kinds = {tuple(m.shape.number for m in each.members): each for each in requests if each}
    if not kinds:
        return False
    idle = _total_future_idle(state, np.ones(len(state.snapshot.nodes), bool))
    return any(_may_suffice(state, idle, request) for request in kinds.values())


class Consolidation(VictimStrategy):
    """Victims of any queue, all of which must be relocated."""

    action = Action.CONSOLIDATE
    backs_off = True
    _ordered: Iterator[VictimUnit] | None = None

    @property
    def max_pods(self) -> int:
        """The limit of the configuration on relocated pods."""
        return self.state.settings.max_relocated_pods

    def candidates(self) -> Iterator[VictimUnit] | None:
        """Every unit once, by the cost of the cheapest of its nodes; None if none can help."""
        idle = _total_future_idle(self.state, self._usable_nodes())
        if not self.gang.preemptible or not _may_suffice(self.state, idle, self.request):
            return None
        return self._by_node_cost()

    def _usable_nodes(self) -> Bools:
        """(nodes,) where pods of the request, or some that may be relocated, are admitted."""
        shapes = (group[0].shape for group in by_shape(self.request.members))
        return self.state.admits_any(shapes) | self.state.admits_evictable

    def other_candidates(self, max_priority: int) -> Iterator[VictimUnit]:
        """The pods of those units one by one, as the rest of their gangs may stay where it is."""
        return (
            pod
            for unit in self._by_node_cost()
            if unit.gang.priority <= max_priority
            for pod in _pod_by_pod(unit)
        )

    def _by_node_cost(self) -> Iterator[VictimUnit]:
        """All units in order, ranked once: between two trials nothing is evicted."""
        ranked = self._ordered or _by_node_cost(self.state, self.pool, self.request)
        self._ordered, units = tee(ranked)
        return units

    def refused_unit(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """The first of ``units``: none may be lost."""
        return units[0] if units else None

    def reason(self, unit: VictimUnit) -> str:
        """Names the workload that gets the capacity."""
        owner, queue = self.gang.owner, self.gang.queue
        return (
            f"relocated to free capacity for workload {owner.namespace}/{owner.name} in queue "
            f"{queue}: both it and {unit.gang.owner.name} fit"
        )

    def helpers(self, refused: VictimUnit) -> Iterator[VictimUnit]:
        """Single pods without any one of which ``refused`` would fit; at most ``MAX_HELPERS``."""
        if len(refused.members) > 1:
            return iter(())
        state, nodes = self.state, self.state.snapshot.nodes
        pod = refused.members[0]
        needed = _min_request(state, pod)
        partly_idle = (state.statement.future_idle > 0)[needed > 0].all(axis=0)
        mask = state.placer.shapes.fits.static_fits.of(pod.shape, nodes).mask
        possible = partly_idle & mask

        def helps(unit: VictimUnit) -> bool:
            row = nodes.positions.get(unit.members[0].node)
            if len(unit.members) > 1 or row is None or not possible[row]:
                return False
            idle = state.statement.future_idle[:, row]
            return bool(holds(idle + _min_request(state, unit.members[0]), needed))

        units = (unit for queue in self.pool.queues() for unit in self.pool.units(queue))
        movable = (pod for unit in units for pod in _pod_by_pod(unit) if helps(pod))
        return islice(filter(state.eviction_limits.has_settled, movable), MAX_HELPERS)


def _total_future_idle(state: CycleState, usable: Bools) -> Floats:
    """(resources,) idle on all ``usable`` nodes together once terminating pods have gone."""
    free: Floats = np.maximum(state.statement.future_idle[:, usable], 0.0).sum(axis=1)
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    shared = state.statement.gpu_parts.shared
    if gpu is not None and shared.exist:
        rows, parts = shared.all_free_fractions(Capacity.FUTURE_IDLE)
        free[gpu] += np.maximum(parts[usable[rows]], 0.0).sum()
    return free


def _may_suffice(state: CycleState, free: Floats, request: PlacementRequest) -> bool:
    """Whether ``free`` (resources,) is as much as the request, and its devices may be free."""
    by_kind = (len(group) * _min_request(state, group[0]) for group in by_shape(request.members))
    needed = sum(by_kind, np.zeros(len(free)))
    if (free + FRACTION_TOLERANCE < needed).any():
        return False
    specs = _claims_to_allocate(state, request)
    exceeded = state.statement.devices.exceed_free(specs, Capacity.FUTURE_IDLE)
    return not (exceeded and state.keeps_devices)


def _claims_to_allocate(state: CycleState, request: PlacementRequest) -> list[ResourceClaimSpec]:
    """The claims of the pods that have no devices yet; once where several pods name the same."""
    devices = state.statement.devices
    uses = (use for member in request.members for use in member.shape.claims)
    needed = [use for use in uses if devices.is_unallocated(use)]
    named = {use.claim.metadata.uid: use for use in needed if use.claim is not None}
    once = [*(use for use in needed if use.claim is None), *named.values()]
    return [devices.narrowed_spec(use.spec) for use in once]


def _min_request(state: CycleState, member: Member) -> Floats:
    """(resources,) the least that a pod takes; a shared GPU counts as its fraction.

    Resources that some nodes serve by claim are left out.
    """
    resources, share = state.snapshot.resources, member.shape.gpu_share
    reported = member.shape.reported_requests
    known = {n: a for n, a in reported.items() if n in resources.positions}
    taken = resources.vector(known)
    gpu = resources.positions.get(GPU_RESOURCE)
    if share is not None and gpu is not None and member.shape.extended.share is None:
        taken[gpu] += share.fraction * share.devices
    return taken


def _by_node_cost(
    state: CycleState, pool: VictimPool, request: PlacementRequest
) -> Iterator[VictimUnit]:
    """Every unit once, by the cost of the cheapest node it is on.

    All victims come back, so no unit brings a leaf below minMember for the pods that stay.
    """
    hardest = by_shape(request.members)[0][0]
    mask = state.placer.shapes.fits.static_fits.of(hardest.shape, state.snapshot.nodes).mask
    candidates = (unit for queue in pool.queues() for unit in pool.units(queue))
    settled = filter(state.eviction_limits.has_settled, candidates)
    on_row = {row: units for row, units in units_by_row(state, settled).items() if mask[row]}
    costs = pool.costs
    rank = partial(_victim_order, costs=costs)
    for units in on_row.values():
        units.sort(key=rank)
    cost = {row: _node_cost(state, hardest, row, units, costs) for row, units in on_row.items()}
    offered: set[int] = set()
    for row in sorted(on_row, key=lambda row: (cost[row], rank(on_row[row][0]), row)):
        for unit in on_row[row]:
            if id(unit) not in offered:
                offered.add(id(unit))
                yield structs.replace(unit, leaves_below_min=(), is_partial=False)


def _pod_by_pod(unit: VictimUnit) -> Iterator[VictimUnit]:
    """The pods of a unit as units of their own, as each of them comes back.

    The unit itself where its workload would not survive the loss of all its pods: those beyond
    what it survives may only leave together, and the workload is suspended then.
    """
    if exceeded_limit(unit.gang, unit.gang.bound) is not None:
        yield structs.replace(unit, leaves_below_min=(), is_partial=False)
        return
    for member in unit.members:
        members = (member,)
        yield structs.replace(unit, members=members, leaves_below_min=(), is_partial=False)


def _victim_order(unit: VictimUnit, costs: EvictionCosts) -> tuple[int, bool, float, float]:
    """Low priority first, elastic before minMember sets, what loses least, then the youngest."""
    gang = unit.gang
    return gang.priority, not unit.is_elastic, costs.lost_work(unit), -gang.created


def _node_cost(
    state: CycleState,
    member: Member,
    row: int,
    units: Sequence[VictimUnit],
    costs: EvictionCosts,
) -> tuple[float, float]:
    """Pods to evict before one more pod like ``member`` fits on the node, and what they lose.

    Pods of their gangs on other nodes stay where they are.
    """
    node, statement = state.snapshot.nodes.names[row], state.statement
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    lacking = _missing_for_one(_min_request(state, member), statement.future_idle[:, row])
    if gpu is not None and state.snapshot.gpu_sharing.rows.size:
        lacking[gpu] -= statement.gpu_parts.shared.free_fractions(row, Capacity.FUTURE_IDLE).sum()
    devices = member.charged_gpus if member.shape.needs_devices else 0.0
    pods, lost = 0, 0.0
    on_node = ((each, unit) for unit in units for each in unit.members if each.node == node)
    for victim, unit in on_node:
        if (lacking <= FRACTION_TOLERANCE).all() and devices <= 0:
            return pods, lost
        pods += 1
        lost += costs.lost_work(unit) / len(unit.members)
        lacking = lacking - _min_request(state, victim)
        devices -= victim.claimed_gpus
    is_enough = (lacking <= FRACTION_TOLERANCE).all() and devices <= 0
    return (pods, lost) if is_enough else (float("inf"), 0.0)


def _missing_for_one(min_request: Floats, free: Floats) -> Floats:
    """(resources,) what is missing for one pod more than fit already."""
    requested = min_request > 0
    fitting = np.floor((free[requested] + FRACTION_TOLERANCE) / min_request[requested]).min(
        initial=np.inf
    )
    pods = max(fitting, 0.0) + 1.0 if np.isfinite(fitting) else 0.0
    return np.where(requested, min_request * pods - free, 0.0)
