"""Devices in a cycle: what is allocated now and in future, given all decisions so far.

The idle state has what must be free for a pod to start; the future idle state what is free once all
terminating pods have gone. A placement allocates its devices in both, so no other pod gets what was
nominated; an eviction frees them in future idle only. A shared claim frees its devices when its
last user goes; a pod may still join such a claim while its devices were not reassigned.

A claim is allocated by the first pod that is placed with it; later pods share the allocation. Every
change can be undone, in reverse order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import numpy as np

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.resource import (
    AllocationResult,
    DeviceTaint,
    ResourceClaim,
    ResourceClaimSpec,
)
from kai_py.api.references import ClaimRef
from kai_py.dra.allocation_query import Alternatives
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.device_state import DeviceState, ReleasedAllocation
from kai_py.dra.explain.diagnosis import diagnose_allocation
from kai_py.dra.explain.diagnosis_message import diagnosis_message
from kai_py.dra.identity import AllocationError, DeviceID
from kai_py.dra.node_resources import NONE
from kai_py.dra.published_names import PublishedNames
from kai_py.plan.plan import ClaimAllocation
from kai_py.plan.state.assignment import NO_DEVICES, PodDevices
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.claim_users import (
    ClaimUsers,
    TakenOfNode,
    consumer_of,
    taken_of_node,
    unreachable_reason,
)
from kai_py.plan.state.claims_to_create import (
    NodeClaims,
    as_written,
    claim_to_create,
    divides_gpus,
    extended_claims_by_node,
    extended_claims_of_pod,
)
from kai_py.plan.state.device_search import DeviceSearch
from kai_py.plan.state.own_claims import own_claims
from kai_py.plan.state.undo import Undo, no_undo, undo_all
from kai_py.policy.node_filters import matches_selector
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.placeholders import is_placeholder
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import ClaimUse, Shape
from kai_py.snapshot.snapshot import Snapshot


class CycleDevices:
    """Tentative allocations on top of the cluster's."""

    def __init__(self, devices: ClusterDevices, snapshot: Snapshot) -> None:
        """Start from the allocations of the cluster, without those of terminating pods."""
        self._devices = devices
        self._cluster = devices.allocator
        self.whole_claims = devices.whole_claims
        self._snapshot = snapshot
        self._states = {capacity: devices.state.copy() for capacity in Capacity}
        self._empty_state = DeviceState(devices.inventory.device)
        self._allocations: dict[str, AllocationResult] = {}
        self.users = ClaimUsers(snapshot)
        self._freed: dict[str, ReleasedAllocation] = {}
        self._node_claim_problems: dict[tuple[int, int], str] = {}
        self._narrowed: Mapping[int, ResourceClaimSpec] = {}
        self._search = DeviceSearch(self._cluster, snapshot.nodes.records)
        for of_group in snapshot.group_claim_users:
            self._free_unused(of_group)
        for claim, ended_pod in snapshot.releasable_claims:
            self._release_claim(claim, ended_pod)
        for member in snapshot.terminating:
            self.release(member)

    def evicting_taints(self) -> Mapping[DeviceID, tuple[DeviceTaint, ...]]:
        """The devices whose taints end the pods that use them, whatever was decided."""
        return self._devices.inventory.evicting_taints()

    def replicas(self, shape: Shape, mask: Bools, count: int, capacity: Capacity) -> Ints:
        """(nodes,) int64: pods of ``shape``, at most ``count``, for which there are devices."""
        return self._count_replicas(shape, mask, count, self._states[capacity])

    def replicas_on_empty_nodes(self, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) int64: as ``replicas`` while all devices are free."""
        return self._count_replicas(shape, mask, count, self._empty_state)

    def hold_more_together(self, shape: Shape, replicas: Ints, mask: Bools) -> bool:
        """Whether an empty node of ``mask`` has devices for more than its ``replicas`` together."""
        for count in np.unique(replicas[mask]).tolist():
            reachable, missing = self._shape_claims(shape, mask & (replicas == count))
            for templates, rows in self._claims_by_node(shape, np.flatnonzero(reachable)):
                claims, nodes = [*missing, *templates] * (count + 1), self._snapshot.nodes.records
                state = self._empty_state
                fit = self._cluster.count_fits(claims, nodes, state, limit=1, node_rows=rows)
                if claims and fit.any():
                    return True
        return False

    def _count_replicas(self, shape: Shape, mask: Bools, count: int, state: DeviceState) -> Ints:
        reachable, missing = self._shape_claims(shape, mask)
        replicas = np.zeros(len(mask), dtype=np.int64)
        if count > 1 and any(c.metadata.uid not in self._allocations for c in shape.shared_claims):
            # One pod allocates it for all: where one pod fits, this claim lets any number fit.
            return np.where(self._count_replicas(shape, mask, 1, state) > 0, count, 0)
        for templates, rows in self._claims_by_node(shape, np.flatnonzero(reachable)):
            replicas += self._cluster.count_fits(
                [*missing, *templates],
                self._snapshot.nodes.records,
                state,
                limit=count,
                node_rows=rows,
            )
        return replicas

    def alternatives(
        self, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Alternatives | None:
        """Which alternatives up to ``count`` pods get on each node of ``mask``, (nodes,) bool."""
        reachable, missing = self._shape_claims(shape, mask)
        result = Alternatives(*np.zeros((2, len(mask)), dtype=np.int64))
        for templates, rows in self._claims_by_node(shape, np.flatnonzero(reachable)):
            part = self._cluster.alternatives(
                [*missing, *templates],
                self._snapshot.nodes.records,
                self._states[capacity],
                limit=count,
                node_rows=rows,
            )
            if part is None:
                return None
            result.depth[rows], result.pods[rows] = part
        return result

    def allocate(self, member: Member, row: int, capacity: Capacity) -> PodDevices | None:
        """Allocate the pod's claims on a node; None when the devices are not there."""
        if not member.claims and not member.shape.extended.requests:
            return NO_DEVICES
        needed = self._claims_to_allocate(member, row)
        if needed is None:
            return None
        missing, claims, templates = needed
        uses = dict(zip(member.claims, member.shape.claims, strict=False))
        is_fixed = all(self._devices.costs.has_fixed_charge(uses[ref].spec) for ref in missing)
        own = {} if is_fixed else self.own_claims(member)
        found = self._search.find([*claims, *templates], row, self._states[capacity])
        if found is None:
            return None
        if any(self._is_reassigned(ref.uid) for ref in member.claims):
            return None
        new = list(zip(missing, found, strict=False))
        created = found[-1:] if templates else ()
        taken = self._taken_of_node(member, dict(new), created)
        if isinstance(taken, str):
            self._node_claim_problems[member.shape.number, row] = taken
            return None
        undo = [self._record_allocation(ref, allocation) for ref, allocation in new]
        to_create = claim_to_create(member, templates[0], found[-1]) if templates else None
        if to_create is not None:
            undo += [state.mark_allocated(found[-1]) for state in self._states.values()]
        undo += [self._reallocate_freed(ref) for ref in member.claims if ref.uid in self._freed]
        undo += [self.users.join(ref.uid, member.pod.uid) for ref in member.claims]
        reserved = [self.users.reserve(ref.uid, consumer_of(member, ref)) for ref in member.claims]
        undo += [each for each in reserved if each is not None]
        allocate = tuple(ClaimAllocation(ref, found) for ref, found in new)
        return PodDevices(allocate, undo_all(undo), to_create, self._refund(own, allocate), *taken)

    def _claims_to_allocate(
        self, member: Member, row: int
    ) -> tuple[list[ClaimRef], list[ResourceClaim], tuple[ResourceClaim, ...]] | None:
        """Which claims of a pod have no devices, these claims, and one to create on this node.

        None where the node cannot serve the pod.
        """
        missing = [ref for ref in member.claims if self._allocation(ref) is None]
        templates = extended_claims_of_pod(
            member, self._snapshot, row, self._devices.divisible_gpus
        )
        if templates is None:
            return None
        return missing, [self._claim(member, ref) for ref in missing], templates

    @contextmanager
    def chosen_together(
        self, members: Iterable[Member], row: int, capacity: Capacity
    ) -> Iterator[bool]:
        """In the block, pods get devices on a node that suffice for all of them, if any do."""
        claims: dict[str, ResourceClaim] = {}
        for member in members:
            _, own, templates = self._claims_to_allocate(member, row) or ((), (), ())
            claims |= {claim.metadata.uid: claim for claim in (*own, *templates)}
        with self._search.together([*claims.values()], row, self._states[capacity]) as found:
            yield found

    def _taken_of_node(
        self,
        member: Member,
        new: Mapping[ClaimRef, AllocationResult],
        created: Sequence[AllocationResult],
    ) -> TakenOfNode | str:
        """What the claims of a pod take of its node, or why they can't.

        ``new``: allocations of claims that had none, ``created``: of a claim that is made for the
        pod.
        """
        if any(map(self._devices.node_resources, created)):
            return "a claim for extended resources can't take resources of the node"
        allocations = (new.get(ref) or self._allocation(ref) for ref in member.claims)
        resources = (
            NONE if each is None else self._devices.node_resources(each) for each in allocations
        )
        return taken_of_node(member, resources, self.users)

    def node_claim_problem(self, shape: Shape, row: int) -> str:
        """Why ``allocate`` refused claims that take resources of a node; "" if it did not."""
        return self._node_claim_problems.get((shape.number, row), "")

    def _claims_by_node(self, shape: Shape, rows: Ints) -> Iterator[NodeClaims]:
        return extended_claims_by_node(shape, self._snapshot, rows, self._devices.divisible_gpus)

    def divides_gpus(self, shape: Shape) -> Bools:
        """(nodes,) bool: where parts of GPUs can be claimed for ``shape``, were they free."""
        return divides_gpus(shape, self._snapshot, self._devices.divisible_gpus)

    def own_claims(self, member: Member) -> Mapping[ClaimRef, ResourceClaimSpec]:
        """The unallocated claims that are charged to the gang of a pod."""
        return own_claims(member, self._devices.accounting, self._allocation)

    @contextmanager
    def narrowed(self, specs: Mapping[int, ResourceClaimSpec]) -> Iterator[None]:
        """In the block, allocate claims by other specs; ``specs``: by ``id`` of the original."""
        before, self._narrowed = self._narrowed, specs
        try:
            yield
        finally:
            self._narrowed = before

    def narrowed_spec(self, spec: ResourceClaimSpec) -> ResourceClaimSpec:
        """The spec by which claims with ``spec`` are allocated."""
        return self._narrowed.get(id(spec), spec)

    def exceed_free(self, specs: Iterable[ResourceClaimSpec]) -> bool:
        """Whether ``specs``, narrowed ones, need more devices of a driver than will be free."""
        return self._devices.free.are_exceeded_by(specs, self._states[Capacity.FUTURE_IDLE])

    def is_unallocated(self, use: ClaimUse) -> bool:
        """Whether a claim has no devices yet, neither from before nor by this cycle."""
        by_cycle = use.claim is not None and use.claim.metadata.uid in self._allocations
        return not (use.is_allocated or by_cycle)

    def _refund(
        self, own: Mapping[ClaimRef, ResourceClaimSpec], allocated: Sequence[ClaimAllocation]
    ) -> dict[str, float]:
        """By how much the gang is charged less for claims that are its own."""
        return total(
            self._devices.costs.refund(own[new.claim], new.allocation)
            for new in allocated
            if new.claim in own
        )

    def release(self, member: Member) -> Undo | None:
        """Free the devices of an evicted pod; claims with other users stay allocated."""
        if not member.claims:
            return None
        return undo_all([self._release_claim(ref, member.pod.uid) for ref in member.claims])

    def fits_empty_cluster(self, shape: Shape) -> bool:
        """Whether some node has devices for one pod of ``shape`` while all are free."""
        nodes = np.ones(len(self._snapshot.nodes), dtype=np.bool_)
        return bool(self.replicas_on_empty_nodes(shape, nodes, 1).any())

    def infeasible_reason(self, shape: Shape, mask: Bools) -> str:
        """Why no node in ``mask``, (nodes,) bool, has the devices even while all are free.

        Empty if that may change.
        """
        claims, rows = self._unallocated(shape, mask)
        if not claims:
            return ""
        records, empty = self._snapshot.nodes.records, self._empty_state
        diagnosis = diagnose_allocation(self._cluster, claims, records, empty, rows)
        if isinstance(diagnosis, AllocationError) or not diagnosis.is_lasting:
            return ""
        return as_written(diagnosis_message(diagnosis, claims), shape)

    def published_names(self) -> PublishedNames:
        """What the devices of the cluster publish."""
        return self._devices.inventory.published_names()

    def reachable(self, shape: Shape, mask: Bools) -> Bools:
        """The nodes of ``mask``, (nodes,) bool, that can access what its claims have allocated."""
        return self._shape_claims(shape, mask)[0]

    def unschedulable_reasons(self, shape: Shape, mask: Bools) -> Iterator[tuple[str, str]]:
        """Why its claims can't be allocated in ``mask``, (nodes,) bool, each with details or ""."""
        beyond = np.count_nonzero(mask & ~self.reachable(shape, mask))
        if beyond:
            why = unreachable_reason(shape, self._allocations, self._is_reassigned)
            yield f"{beyond} {why}", ""
        missing, rows = self._unallocated(shape, mask)
        if not missing or not len(rows):
            return
        nodes, idle = self._snapshot.nodes.records, self._states[Capacity.IDLE]
        diagnosis = diagnose_allocation(self._cluster, missing, nodes, idle, rows)
        if isinstance(diagnosis, AllocationError):
            yield as_written(str(diagnosis), shape), ""
            return
        detail = as_written(diagnosis_message(diagnosis, missing), shape)
        yield f"{np.count_nonzero(mask) - beyond} cannot allocate all claims", detail

    def _unallocated(self, shape: Shape, mask: Bools) -> tuple[list[ResourceClaim], Ints]:
        """The claims to allocate on the nodes that need most claims, and the rows of those."""
        reachable, missing = self._shape_claims(shape, mask)
        templates, rows = max(
            self._claims_by_node(shape, np.flatnonzero(reachable)),
            key=lambda part: (len(part[0]), len(part[1])),
            default=((), np.flatnonzero(reachable)),
        )
        return [*missing, *templates], rows

    def _shape_claims(self, shape: Shape, mask: Bools) -> tuple[Bools, list[ResourceClaim]]:
        """Nodes that can reach what is allocated already, and the claims still to allocate."""
        reachable, missing = mask, []
        for use in shape.claims:
            uid = "" if use.claim is None else use.claim.metadata.uid
            allocation = self._allocations.get(uid)
            if self._is_reassigned(uid):
                reachable = np.zeros_like(mask)
            if allocation is not None and allocation.node_selector is not None:
                nodes = self._snapshot.nodes
                reachable = reachable & matches_selector(allocation.node_selector, nodes)
            if allocation is None and not use.is_allocated:
                meta = None if use.claim is None else use.claim.metadata
                # A claim that was made from a template has a generated name: show the pod's own.
                if meta is None or meta.owner_references:
                    meta = ObjectMeta(name=use.name)
                missing.append(ResourceClaim(metadata=meta, spec=self.narrowed_spec(use.spec)))
        return reachable, missing

    def _claim(self, member: Member, ref: ClaimRef) -> ResourceClaim:
        """The claim, or what it will be if it is yet to be created."""
        existing = self._snapshot.devices.claim(ref)
        exists = member.state is not PodState.EXPECTED and not is_placeholder(member.pod.uid)
        use = member.shape.claims[member.claims.index(ref)]
        spec = self.narrowed_spec(use.spec)
        if existing is not None and exists:
            return existing if spec is use.spec else msgspec.structs.replace(existing, spec=spec)
        meta = ObjectMeta(name=ref.name, namespace=ref.namespace, uid=ref.uid)
        return use.claim or ResourceClaim(metadata=meta, spec=spec)

    def _allocation(self, ref: ClaimRef) -> AllocationResult | None:
        return self._snapshot.devices.allocation(ref) or self._allocations.get(ref.uid)

    def _record_allocation(self, ref: ClaimRef, allocation: AllocationResult) -> Undo:
        self._allocations[ref.uid] = allocation
        undo = [state.mark_allocated(allocation) for state in self._states.values()]
        undo.append(self._states[Capacity.FUTURE_IDLE].mark_needed_by_admins(allocation))
        return undo_all([*undo, partial(self._allocations.__delitem__, ref.uid)])

    def _release_claim(self, ref: ClaimRef, pod_uid: str) -> Undo:
        claim = self._snapshot.devices.claim(ref)
        left = self.users.leave(ref.uid, pod_uid) if claim is not None else None
        return no_undo if left is None else undo_all([left, self._free_unused(ref)])

    def _free_unused(self, ref: ClaimRef) -> Undo:
        """Free the claim's devices unless they are free already or the claim is in use."""
        claim = self._snapshot.devices.claim(ref)
        allocation = None if claim is None else claim.status.allocation
        if claim is None or allocation is None or ref.uid in self._freed:
            return no_undo
        return no_undo if self.users.is_in_use(claim) else self._free(ref, allocation)

    def _free(self, ref: ClaimRef, allocation: AllocationResult) -> Undo:
        future_idle = self._states[Capacity.FUTURE_IDLE]
        undo = future_idle.release(allocation)
        self._freed[ref.uid] = ReleasedAllocation.capture(allocation, future_idle)
        return undo_all([undo, partial(self._freed.__delitem__, ref.uid)])

    def _reallocate_freed(self, ref: ClaimRef) -> Undo:
        freed = self._freed.pop(ref.uid)
        undo = self._states[Capacity.FUTURE_IDLE].mark_allocated(freed.allocation)
        return undo_all([lambda: self._freed.update({ref.uid: freed}), undo])

    def _is_reassigned(self, uid: str) -> bool:
        """Whether the claim is losing its devices and other claims were given some of them."""
        freed = self._freed.get(uid)
        return freed is not None and not freed.can_restore(self._states[Capacity.FUTURE_IDLE])
