"""Devices in a cycle: who holds what now, who will hold what later, given all decisions so far.

``now`` is what must be free for a pod to start, ``later`` what is free once everybody who leaves
has left. A placement holds its devices in both, so nobody is given what was promised; an eviction
frees them in ``later`` only. A shared claim frees its devices when the last of its users leaves; a
pod may still join such a claim while nobody else was given what it holds.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.dra.allocator import Allocated
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.errors import AllocationError
from kai_py.dra.freed import Freed
from kai_py.dra.funnel import device_funnel
from kai_py.dra.funnel_text import tell
from kai_py.dra.holdings import DeviceState
from kai_py.dra.question import Alternatives
from kai_py.plan.plan import ClaimAllocation
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.claims import ClaimUsers, claim_to_make, claims_of_pod, claims_to_make
from kai_py.plan.state.device_api import Taken, Undo
from kai_py.policy.node_selector import matches_selector
from kai_py.snapshot.accounting import total
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.suspended import is_stand_in


class CycleDevices:
    """Trial allocations on top of what the cluster holds; see ``DeviceTrial``."""

    def __init__(self, devices: ClusterDevices, snapshot: Snapshot) -> None:
        """Start from what is allocated, without those who are leaving."""
        self._devices = devices
        self._fleet = devices.fleet
        self._snapshot = snapshot
        self._states = {Room.NOW: devices.state.copy(), Room.LATER: devices.state.copy()}
        self._nobody = DeviceState(devices.inventory.device)
        self._found: dict[str, AllocationResult] = {}
        self._users = ClaimUsers({ref.uid: pods for ref, pods in snapshot.group_users.items()})
        self._freed: dict[str, Freed] = {}
        for of_group in snapshot.group_users:
            self._free_unused(of_group)
        for claim, ended_pod in snapshot.vacancies:
            self._leave(claim, ended_pod)
        for member in snapshot.leaving:
            self.give_back(member)

    def copies(self, shape: Shape, mask: Bools, count: int, room: Room) -> Ints:
        """(nodes,) int64: how many pods of ``shape``, at most ``count``, find devices where."""
        reachable, missing = self._shape_claims(shape, mask)
        found = np.zeros(len(mask), dtype=np.int64)
        for made, rows in claims_to_make(shape, self._snapshot, np.flatnonzero(reachable)):
            found += self._fleet.count_fits(
                [*missing, *made],
                self._snapshot.nodes.records,
                self._states[room],
                limit=count,
                among=rows,
            )
        return found

    def alternatives(
        self, shape: Shape, mask: Bools, count: int, room: Room
    ) -> Alternatives | None:
        """What of their lists of alternatives up to ``count`` pods of ``shape`` get where."""
        reachable, missing = self._shape_claims(shape, mask)
        found = Alternatives(*np.zeros((2, len(mask)), dtype=np.int64))
        for made, rows in claims_to_make(shape, self._snapshot, np.flatnonzero(reachable)):
            part = self._fleet.alternatives(
                [*missing, *made],
                self._snapshot.nodes.records,
                self._states[room],
                limit=count,
                among=rows,
            )
            if part is None:
                return None
            found.depth[rows], found.pods[rows] = part
        return found

    def take(self, member: Member, row: int, room: Room) -> Taken | None:
        """Allocate the pod's claims on a node; None when the devices are not there."""
        if not member.claims and not member.shape.extended.requests:
            return Taken()
        missing = [ref for ref in member.claims if self._allocation(ref) is None]
        claims = [self._claim(member, ref) for ref in missing]
        made = claims_of_pod(member, self._snapshot, row)
        answer = self._fleet.allocate(
            [*claims, *made], self._snapshot.nodes.records, row, self._states[room]
        )
        if not isinstance(answer, Allocated) or self._lost(member.claims):
            return None
        written = list(zip(missing, answer.allocations, strict=False))
        undo = [self._hold(ref, allocation) for ref, allocation in written]
        make = claim_to_make(member, made[0], answer.allocations[-1]) if made else None
        if make is not None:
            undo += [state.hold(answer.allocations[-1]) for state in self._states.values()]
        undo += [self._take_back(ref) for ref in member.claims if ref.uid in self._freed]
        undo += [self._users.join(ref.uid, member.pod.uid) for ref in member.claims]
        allocate = tuple(ClaimAllocation(ref, found) for ref, found in written)
        return Taken(allocate, _all(undo), make, self._saved(member, allocate))

    def _saved(self, member: Member, allocated: Sequence[ClaimAllocation]) -> dict[str, float]:
        """What the gang pays less for claims that are its own."""
        uses = dict(zip(member.claims, member.shape.claims, strict=False))
        group = member.for_group.claims if member.for_group is not None else ()
        return total(
            self._devices.saved(uses[new.claim].spec, new.allocation)
            for new in allocated
            if uses[new.claim].claim is None or new.claim in group
        )

    def give_back(self, member: Member) -> Undo | None:
        """Free what a leaving pod held; claims that others share stay allocated."""
        if not member.claims:
            return None
        return _all([self._leave(ref, member.pod.uid) for ref in member.claims])

    def ever_fits(self, shape: Shape) -> bool:
        """Whether some node has the devices for one pod of ``shape`` when nobody holds any."""
        nodes = self._snapshot.nodes.records
        _, missing = self._shape_claims(shape, np.ones(len(nodes), dtype=np.bool_))
        everywhere = np.arange(len(nodes), dtype=np.int64)
        return any(
            self._fleet.count_fits(
                [*missing, *made], nodes, self._nobody, limit=1, among=rows
            ).any()
            for made, rows in claims_to_make(shape, self._snapshot, everywhere)
        )

    def why_not(self, shape: Shape, mask: Bools) -> str:
        """One sentence: what keeps the claims of ``shape`` from being allocated in ``mask``."""
        reachable, missing = self._shape_claims(shape, mask)
        made, rows = max(
            claims_to_make(shape, self._snapshot, np.flatnonzero(reachable)),
            key=lambda part: (len(part[0]), len(part[1])),
            default=((), np.flatnonzero(reachable)),
        )
        missing = [*missing, *made]
        if not missing:
            return "the claim is about to lose its devices, which others were given"
        state, nodes = self._states[Room.NOW], self._snapshot.nodes.records
        funnel = device_funnel(self._fleet, missing, nodes, state, rows)
        if isinstance(funnel, AllocationError):
            return str(funnel)
        head = f"{len(rows) if made else int(np.count_nonzero(mask))} cannot allocate all claims"
        return f"{head}: {tell(funnel, missing)}"

    def _shape_claims(self, shape: Shape, mask: Bools) -> tuple[Bools, list[ResourceClaim]]:
        """Nodes from which what is allocated can be reached, and the claims still to allocate."""
        reachable, missing = mask, []
        for use in shape.claims:
            found = None if use.claim is None else self._found.get(use.claim.metadata.uid)
            if use.claim is not None and self._is_lost(use.claim.metadata.uid):
                reachable = np.zeros_like(mask)
            if found is not None and found.node_selector is not None:
                nodes = self._snapshot.nodes
                reachable = reachable & matches_selector(found.node_selector, nodes)
            if found is None and not use.is_allocated:
                meta = ObjectMeta(name=use.name) if use.claim is None else use.claim.metadata
                missing.append(ResourceClaim(metadata=meta, spec=use.spec))
        return reachable, missing

    def _claim(self, member: Member, ref: ClaimRef) -> ResourceClaim:
        """The claim, or what it will be if it stands for one that is still to be made."""
        known = self._snapshot.devices.claims.get((ref.namespace, ref.name))
        exists = member.state is not PodState.AWAITED and not is_stand_in(member.pod.uid)
        if known is not None and exists:
            return known
        meta = ObjectMeta(name=ref.name, namespace=ref.namespace, uid=ref.uid)
        use = member.shape.claims[member.claims.index(ref)]
        return use.claim or ResourceClaim(metadata=meta, spec=use.spec)

    def _allocation(self, ref: ClaimRef) -> AllocationResult | None:
        claim = self._snapshot.devices.claims.get((ref.namespace, ref.name))
        known = claim.status.allocation if claim is not None else None
        return known or self._found.get(ref.uid)

    def _hold(self, ref: ClaimRef, allocation: AllocationResult) -> Undo:
        self._found[ref.uid] = allocation
        undo = [state.hold(allocation) for state in self._states.values()]
        return _all([*undo, lambda: _forget(self._found, ref.uid)])

    def _leave(self, ref: ClaimRef, pod_uid: str) -> Undo:
        claim = self._snapshot.devices.claims.get((ref.namespace, ref.name))
        left = self._users.leave(ref.uid, pod_uid) if claim is not None else None
        if claim is None or left is None:
            return _nothing
        return _all([left, self._free_unused(ref)])

    def _free_unused(self, ref: ClaimRef) -> Undo:
        """Free what the claim holds unless it is free already or somebody uses it."""
        claim = self._snapshot.devices.claims.get((ref.namespace, ref.name))
        allocation = None if claim is None else claim.status.allocation
        if claim is None or allocation is None or ref.uid in self._freed:
            return _nothing
        return _nothing if self._users.any_left(claim) else self._free(ref, allocation)

    def _free(self, ref: ClaimRef, allocation: AllocationResult) -> Undo:
        later = self._states[Room.LATER]
        undo = later.release(allocation)
        self._freed[ref.uid] = Freed.after(allocation, later)
        return _all([undo, lambda: _forget(self._freed, ref.uid)])

    def _take_back(self, ref: ClaimRef) -> Undo:
        freed = self._freed.pop(ref.uid)
        undo = self._states[Room.LATER].hold(freed.allocation)
        return _all([lambda: self._freed.update({ref.uid: freed}), undo])

    def _lost(self, claims: Sequence[ClaimRef]) -> bool:
        return any(self._is_lost(ref.uid) for ref in claims)

    def _is_lost(self, uid: str) -> bool:
        """Tell whether the claim is losing its devices and others were given some of them."""
        freed = self._freed.get(uid)
        return freed is not None and not freed.still_free(self._states[Room.LATER])


def _all(steps: Sequence[Callable[[], None]]) -> Undo:
    def undo() -> None:
        for step in reversed(steps):
            step()

    return undo


def _forget(table: dict[str, AllocationResult] | dict[str, Freed], key: str) -> None:
    del table[key]


def _nothing() -> None:
    """Nothing was changed."""
