"""The working state of a cycle, and trials on it that can be undone.

Everything an action does goes through ``place`` and ``evict``, which keep free resources, device
state, node limits and queue usage consistent. A trial undoes its work unless it is kept:

    with statement.trial() as trial:
        ...
        if good:
            trial.keep()

Undoing runs the log backwards, so trials nest. Costs are per pod, never per node.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, partial

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import SharedGpu
from kai_py.plan.plan import Action
from kai_py.plan.state.assignment import Assignment, Evicted, PodDevices
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.gpu_parts import GpuParts
from kai_py.plan.state.limits import node_limits
from kai_py.plan.state.limits.gpu_sharing import ShareReplicas
from kai_py.plan.state.limits.numa import NumaZones
from kai_py.plan.state.limits.volumes import AssumedVolumes
from kai_py.plan.state.pod_decisions import decided_pods, evicted_pod, placed_pod
from kai_py.plan.state.pod_rules import PodRuleCounts
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.undo import Trial, Undo
from kai_py.policy.round_robin import GangCosts
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Charge, Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import Index


class Statement:
    """The decisions of the cycle so far, on top of a snapshot.

    ``idle``: (resources, nodes) free now. ``future_idle``: free once terminating pods have gone and
    nominated pods have come. A pod that starts now must fit in both. GPUs that pods share are in
    neither but in ``gpu_parts``. ``changed_rows``: nodes whose free resources changed, in order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        quota: Quota,
        devices: CycleDevices,
        sharing: FillStrategy = FillStrategy.BINPACK,
    ) -> None:
        """Start from the snapshot; ``sharing``: which GPU of a node to share."""
        self.snapshot = snapshot
        self.quota = quota
        self.devices = devices
        self._has_released = False
        self.gpu_parts = GpuParts(snapshot, devices, sharing)
        self.volumes = AssumedVolumes(snapshot)
        self.numa_zones = NumaZones(snapshot)
        self.limits = node_limits(snapshot, self.volumes, self.numa_zones)
        self.changed_rows: list[int] = []
        self.placed: dict[str, Assignment] = {}
        self.evicted: dict[str, Evicted] = {}
        # Not a bound method: the counts must not keep the statement that owns them alive.
        decided = partial(decided_pods, snapshot.nodes.positions, self.placed, self.evicted)
        self.pod_rules = PodRuleCounts(snapshot, decided)
        self._vectors: dict[int, Floats] = {}
        self.claim_shortages: dict[tuple[int, int], str] = {}
        """By shape and row, what the claims of a pod were refused there."""
        self._undo: list[Undo] = []

    @cached_property
    def idle(self) -> Floats:
        """(resources, nodes) free now. O(nodes) when it is first asked for."""
        idle: Floats = self.snapshot.nodes.allocatable - self.snapshot.used
        return idle

    @cached_property
    def future_idle(self) -> Floats:
        """(resources, nodes) free later; what changes ``idle`` asks for this first."""
        return self.idle + self.snapshot.releasing

    @property
    def _has_releasing(self) -> bool:
        """Whether later anything else is free than now."""
        return self._has_released or self.snapshot.has_releasing

    def trial(self) -> Trial:
        """Undo everything done in the block unless ``keep`` was called."""
        return Trial(self._undo)

    def free(self, capacity: Capacity) -> Floats:
        """(resources, nodes) free for pods that start now, or that wait for terminating pods.

        May follow later placements and evictions, and is read-only.
        """
        if capacity is Capacity.FUTURE_IDLE or not self._has_releasing:
            return self.future_idle
        return np.minimum(self.idle, self.future_idle)

    def free_on(self, row: int, capacity: Capacity) -> list[float]:
        """(resources,) what ``free`` has for one node."""
        future_idle: list[float] = self.future_idle[:, row].tolist()
        if capacity is Capacity.FUTURE_IDLE or not self._has_releasing:
            return future_idle
        return list(map(min, self.idle[:, row].tolist(), future_idle))

    def gpu_share_replicas(
        self, shape: Shape, capacity: Capacity, count: int
    ) -> ShareReplicas | None:
        """Where ``count`` pods get their parts of GPUs; None if the shape requests none."""
        if shape.gpu_share is None:
            return None
        free = self.free(capacity)
        return self.gpu_parts.replicas(shape, shape.gpu_share, free, capacity, count)

    def request_vector(self, shape: Shape) -> Floats:
        """(resources,) request of a shape; resources that no node has are left out."""
        cached = self._vectors.get(shape.number)
        if cached is None:
            positions = self.snapshot.resources.positions
            requests = total((shape.requests, shape.plugin_equivalents))
            listed = {name: amount for name, amount in requests.items() if name in positions}
            cached = self._vectors[shape.number] = self.snapshot.resources.vector(listed)
        return cached

    def occupied(self, member: Member) -> Floats:
        """(resources,) what a bound pod takes of its node: its requests, and that of its claims."""
        requests = self.request_vector(member.shape)
        if not member.claimed_amounts:
            return requests
        positions = self.snapshot.resources.positions
        taken = {name: each for name, each in member.claimed_amounts.items() if name in positions}
        return requests + self.snapshot.resources.vector(taken)

    def place(
        self,
        gang: Gang,
        members: Sequence[Member],
        row: int,
        action: Action,
        *,
        capacity: Capacity,
        gpu_fraction: float | None = None,
    ) -> int:
        """Place ``members``, all of one shape, on a node; returns how many of them fit.

        ``gpu_fraction``: share the GPU of which this fraction (0 to 1) of the memory is free.
        """
        placed = 0
        for member in members:
            trial = self.trial()
            taken = self._take(member, row, capacity, gpu_fraction, before=placed)
            if taken is None:
                trial.undo()
                break
            gpus, devices = taken
            self._record(
                member.pod.uid,
                Assignment(
                    member=member,
                    gang=gang,
                    row=row,
                    capacity=capacity,
                    action=action,
                    allocations=devices.allocations,
                    reserved_claims=member.claims,
                    gpus=gpus,
                    create_claim=devices.create_claim,
                    node_claims=devices.node_claims,
                    node_amounts=devices.node_amounts,
                ),
            )
            if devices.refund:
                self._charge(
                    gang, devices.refund, -1.0, non_preemptible=gang.is_non_preemptible(member)
                )
            placed += 1
        if placed:
            self._assume(members[0].shape, row, placed, capacity)
            for member in members[:placed]:
                cost = self.gpu_parts.charge_on(member, row)
                self._charge(gang, cost, 1.0, non_preemptible=gang.is_non_preemptible(member))
                self._undo.append(self.quota.shared_claims.place(gang, member))
        return placed

    def _take(
        self,
        member: Member,
        row: int,
        capacity: Capacity,
        gpu_fraction: float | None,
        *,
        before: int,
    ) -> tuple[tuple[SharedGpu, ...], PodDevices] | None:
        """Take what a pod needs of a node besides its requests: limits, parts of GPUs and devices.

        None if something is lacking; what was taken until then is to be rolled back. ``before``:
        pods of the shape whose requests are taken only after this one.
        """
        limit_undos = self.limits.allocate(member, row, capacity)
        if limit_undos is None:
            return None
        self._undo += limit_undos
        gpus = self._allocate_gpu_share(member, row, capacity, gpu_fraction)
        if gpus is None:
            return None
        devices = self.devices.allocate(member, row, capacity)
        if devices is None:
            return None
        if devices.undo is not None:
            self._undo.append(devices.undo)
        if not self._take_for_claims(member, row, devices, capacity, before):
            return None
        return gpus, devices

    def _take_for_claims(
        self, member: Member, row: int, devices: PodDevices, capacity: Capacity, before: int
    ) -> bool:
        """Take of a node what a pod's claims take; False, with the reason noted, if it lacks that.

        ``before``: as in ``_take``.
        """
        # A victim that is placed again takes what it took before.
        amounts, shape = devices.node_amounts or member.claimed_amounts, member.shape
        if not amounts:
            return True
        positions, requests = self.snapshot.resources.positions, self.request_vector(shape)
        free = self.free_on(row, capacity)
        for name, amount in amounts.items():
            position = positions.get(name)
            left = 0.0 if position is None else free[position] - (before + 1) * requests[position]
            if amount > left:
                self.claim_shortages[shape.number, row] = (
                    f"Insufficient {name} (the devices of its claims take more than is free)"
                )
                return False
        self._shift(row, -self.snapshot.resources.vector(amounts), capacity)
        return True

    def place_resources_only(
        self,
        gang: Gang,
        members: Sequence[Member],
        rows: Sequence[int],
        action: Action,
        capacity: Capacity,
    ) -> None:
        """Place pods of one shape, which requests only node resources, each on its row."""
        self.assume_rows(members[0].shape, rows, capacity)
        self._record_all([(gang, member) for member in members], rows, action, capacity)
        ids = [id(member.charge) for member in members]
        charged = Counter(zip(ids, gang.are_non_preemptible(members), strict=True))
        charges = dict(zip(ids, [member.charge for member in members], strict=True))
        for (charge, non_preemptible), count in charged.items():
            self._charge(gang, charges[charge], 1.0, count, non_preemptible=non_preemptible)

    def place_batch(
        self, gangs: Sequence[Gang], rows: Sequence[int], leaves: Index, costs: GangCosts
    ) -> None:
        """Start preemptible gangs in the order of their queues ``leaves`` (n,).

        The resources of their pods, one on each of ``rows``, must be assumed already.
        """
        pods = [(gang, member) for gang in gangs for member in gang.members]
        self._record_all(pods, rows, Action.ALLOCATE, Capacity.IDLE)
        self._undo.append(self.quota.charge_batch(leaves, costs))

    def assume_rows(self, shape: Shape, rows: Sequence[int], capacity: Capacity) -> None:
        """Allocate the resources of pods, one on each of ``rows``, which may repeat."""
        if rows and rows.count(rows[0]) == len(rows):
            self._assume(shape, rows[0], len(rows), capacity)
            return
        counts = Counter(rows)
        amounts = np.outer(self.request_vector(shape), list(counts.values()))
        self._shift_rows(list(counts), -amounts, capacity)
        self._undo.append(lambda: self._shift_rows(list(counts), amounts, capacity))

    def evict(self, victim: Evicted) -> None:
        """Evict a bound pod: what it has becomes future idle."""
        member = victim.member
        row = self.snapshot.nodes.positions.get(member.node)
        self.evicted[member.pod.uid] = victim
        self._undo.append(lambda: self._unevict(member.pod.uid))
        undo = self.devices.release(member)
        if undo is not None:
            self._undo.append(undo)
        if row is not None:
            self._shift(row, self.occupied(member), Capacity.FUTURE_IDLE)
            self._undo += self.limits.release(member, row)
            if self.pod_rules.is_counting:
                self.pod_rules.add(evicted_pod(member, row))
            if member.gpus:
                ended, unshare = self.gpu_parts.shared.release(member, row)
                self._undo.append(unshare)
                self._shift_gpus(row, ended, Capacity.FUTURE_IDLE)
        non_preemptible = victim.gang.is_non_preemptible(member)
        self._charge(victim.gang, member.charge, -1.0, non_preemptible=non_preemptible)
        self._undo.append(self.quota.shared_claims.evict(victim.gang, member))

    def _allocate_gpu_share(
        self, member: Member, row: int, capacity: Capacity, gpu_fraction: float | None
    ) -> tuple[SharedGpu, ...] | None:
        """Parts of GPUs for the pod, empty if it requests none or claims them; None if none fit."""
        if member.shape.gpu_share is None:
            return ()
        resource = self.gpu_parts.resource
        idle = 0.0 if resource is None else self.free_on(row, capacity)[resource]
        parts = self.gpu_parts.allocate(member, row, capacity, idle, gpu_fraction)
        if parts is None:
            return None
        self._undo.append(parts.undo)
        self._shift_gpus(row, -parts.opened, capacity)
        return parts.gpus

    def _shift_gpus(self, row: int, gpus: int, capacity: Capacity) -> None:
        if not gpus or self.gpu_parts.resource is None:
            return
        amounts = np.zeros(len(self.future_idle))
        amounts[self.gpu_parts.resource] = gpus
        self._shift(row, amounts, capacity)

    def _record(self, uid: str, assignment: Assignment) -> None:
        self.placed[uid] = assignment
        self._undo.append(lambda: self._unplace([uid]))
        if self.pod_rules.is_counting:
            self.pod_rules.add(placed_pod(assignment.member, assignment.row, assignment.capacity))

    def _record_all(
        self,
        pods: Sequence[tuple[Gang, Member]],
        rows: Sequence[int],
        action: Action,
        capacity: Capacity,
    ) -> None:
        for (gang, member), row in zip(pods, rows, strict=True):
            self.placed[member.pod.uid] = Assignment(member, gang, row, capacity, action)
            if self.pod_rules.is_counting:
                self.pod_rules.add(placed_pod(member, row, capacity))
        self._undo.append(lambda: self._unplace(member.pod.uid for _, member in pods))

    def _assume(self, shape: Shape, row: int, count: int, capacity: Capacity) -> None:
        amounts = self.request_vector(shape) if count == 1 else self.request_vector(shape) * count
        self._shift(row, -amounts, capacity)

    def _shift_rows(self, rows: Sequence[int], amounts: Floats, capacity: Capacity) -> None:
        """Add ``amounts`` (resources, rows) to what is free on distinct rows."""
        self.future_idle[:, rows] += amounts
        if capacity is Capacity.IDLE:
            self.idle[:, rows] += amounts
        else:
            self._has_released = True
        self.changed_rows += rows

    def _shift(self, row: int, amounts: Floats, capacity: Capacity) -> None:
        """Add ``amounts`` (resources,) to what is free on a node."""
        self._add(row, amounts, capacity)
        self._undo.append(lambda: self._add(row, -amounts, capacity))

    def _charge(
        self, gang: Gang, charge: Charge, sign: float, count: int = 1, *, non_preemptible: bool
    ) -> None:
        self._undo.append(
            self.quota.charge(gang, charge, sign, count, non_preemptible=non_preemptible)
        )

    def conclude(self) -> None:
        """The decisions stand: none is undone any more, so what could undo them is dropped."""
        self._undo.clear()

    def _add(self, row: int, amounts: Floats, capacity: Capacity) -> None:
        self.future_idle[:, row] += amounts
        if capacity is Capacity.IDLE:
            self.idle[:, row] += amounts
        else:
            self._has_released = True
        self.changed_rows.append(row)

    def _unplace(self, uids: Iterable[str]) -> None:
        for uid in uids:
            del self.placed[uid]
            if self.pod_rules.is_counting:
                self.pod_rules.undo(uid, placed=True)

    def _unevict(self, uid: str) -> None:
        del self.evicted[uid]
        if self.pod_rules.is_counting:
            self.pod_rules.undo(uid, placed=False)
