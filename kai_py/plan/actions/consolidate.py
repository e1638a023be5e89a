"""Consolidate: relocate running gangs so that a pending gang fits; no pod is lost.

    for each pending preemptible gang that was not placed, in the order of the gangs:
        candidates: running preemptible gangs of any queue, the node that is cheapest to free first
        victims: the fewest candidates that make the request fit, also pod by pod; every one of
                 them must fit elsewhere, if need be after one further pod has been relocated

Pods that started within ``eviction.settlingTime`` stay where they are. Candidates that would fit
nowhere else even if nothing else were evicted come last, and only as many of them as sets of
victims are tried with a helper (``search``): without one, none of them can be relocated.

A relocation is a restart. The cost of a node is the number of pods to evict before one more pod of
the gang fits there; of equal numbers, where lost work counts, what they lose. Relocation frees no
capacity in total. So there is no search unless all nodes that admit the gang or any candidate have
enough idle resources together; cordoned nodes do not count. With the SPREAD strategy for GPU pods
nothing is relocated, as that would pack what was spread.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.relocate import RecreatedShapes, may_relocate
from kai_py.plan.victims.search import MAX_HELPED_SETS
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.survival import exceeded_limit
from kai_py.plan.victims.units import VictimUnit
from kai_py.plan.victims.units_by_node import FRACTION_TOLERANCE, UnitsByNode, min_request
from kai_py.policy.fit import holds
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats

MAX_HELPERS = 8
"""How many pods are tried as helpers of one refused victim."""


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
    loses_victims = False
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
        if self._ordered is None:
            hardest = by_shape(self.request.members)[0][0]
            mask = self.state.admitting(hardest.shape)
            by_node = _by_node(self.state, self.pool)
            units = by_node.in_order(hardest, mask)
            self._ordered = _relocatable_first(self.state, units, by_node.recreated)
        self._ordered, units = tee(self._ordered)
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
        needed = min_request(state, pod)
        partly_idle = (state.statement.future_idle > 0)[needed > 0].all(axis=0)
        possible = partly_idle & state.admitting(pod.shape)

        def helps(unit: VictimUnit) -> bool:
            row = nodes.positions.get(unit.members[0].node)
            if len(unit.members) > 1 or row is None or not possible[row]:
                return False
            idle = state.statement.future_idle[:, row]
            return bool(holds(idle + min_request(state, unit.members[0]), needed))

        units = (unit for queue in self.pool.queues() for unit in self.pool.units(queue))
        helping = (pod for unit in units for pod in _pod_by_pod(unit) if helps(pod))
        return islice((pod for pod in helping if may_relocate(state, pod)), MAX_HELPERS)


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
    by_kind = (len(group) * min_request(state, group[0]) for group in by_shape(request.members))
    needed = sum(by_kind, np.zeros(len(free)))
    if (free + FRACTION_TOLERANCE < needed).any():
        return False
    specs = _claims_to_allocate(state, request)
    exceeded = state.statement.devices.exceed_free(specs)
    return not (exceeded and state.keeps_devices)


def _claims_to_allocate(state: CycleState, request: PlacementRequest) -> list[ResourceClaimSpec]:
    """The claims of the pods that have no devices yet; once where several pods name the same."""
    devices = state.statement.devices
    uses = (use for member in request.members for use in member.shape.claims)
    needed = [use for use in uses if devices.is_unallocated(use)]
    named = {use.claim.metadata.uid: use for use in needed if use.claim is not None}
    once = [*(use for use in needed if use.claim is None), *named.values()]
    return [devices.narrowed_spec(use.spec) for use in once]


def _by_node(state: CycleState, pool: VictimPool) -> UnitsByNode:
    """The units that may be relocated, without those that were evicted since they were listed."""
    changes = pool.changes.total()
    if pool.by_node is None or not pool.by_node.remove_evicted(changes):
        units = (unit for queue in pool.queues() for unit in pool.units(queue))
        pool.by_node = UnitsByNode(state, units, pool.costs, changes)
    return pool.by_node


def _relocatable_first(
    state: CycleState, units: Iterable[VictimUnit], recreated: RecreatedShapes
) -> Iterator[VictimUnit]:
    """The units of which a pod fits elsewhere now, in order, and then a few of the others."""
    known, fits = dict[int, bool](), state.placer.shapes.fits
    everywhere = np.ones(len(state.snapshot.nodes), bool)

    def fits_elsewhere(member: Member) -> bool:
        shape = recreated.of(member)
        if shape.number not in known:
            replicas = fits.replicas(state.statement, shape, everywhere, 1, Capacity.FUTURE_IDLE)
            known[shape.number] = bool(replicas.any())
        return known[shape.number]

    without_capacity = list[VictimUnit]()
    for unit in units:
        if any(map(fits_elsewhere, unit.members)):
            yield unit
        elif len(without_capacity) < MAX_HELPED_SETS:
            without_capacity.append(unit)
    yield from without_capacity


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
