"""What evicting pods releases on their nodes, for counting: upper bounds.

Resources and GPUs are bounds of what the statement releases when the pod is evicted. A claim with
other users keeps its devices although they are counted here.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Floats

MANY_PODS = 16
"""From this many pods on, releasing them in arrays is faster than one by one."""


class FreedCapacity(Struct):
    """What one node has while pods are counted as gone from it.

    ``free``: (resources,); ``gpus``: how many GPUs of claims more than now, and ``devices``: how
    many devices of claims, by kind.
    """

    free: list[float]
    gpus: float = 0.0
    devices: dict[str, float] = field(default_factory=dict)

    def copy(self) -> "FreedCapacity":
        """The same, to be changed by itself."""
        return FreedCapacity(self.free.copy(), self.gpus, self.devices.copy())


class FreedResources:
    """Upper bounds of what evicting a pod releases on its node; once per shape and cycle."""

    def __init__(self, state: CycleState) -> None:
        """Start with what the cycle has computed."""
        self._state, self._known = state, state.freed_by_shape
        self._known_devices = state.freed_devices_by_shape

    def future_idle_of(self, row: int) -> FreedCapacity:
        """What the node ``row`` has before any pod is counted as gone."""
        return FreedCapacity(self._state.statement.future_idle[:, row].tolist())

    def release(self, member: Member, node: FreedCapacity, sign: float = 1.0) -> None:
        """Count the pod, which is on ``node``, as gone (or, with -1, as back again)."""
        free = node.free
        for position, amount in self._known.get(member.shape.number) or self.of(member):
            free[position] += sign * amount
        if member.claims:
            self.release_claims(member, node, sign)

    def release_claims(self, member: Member, node: FreedCapacity, sign: float) -> None:
        """Count only the devices of its claims."""
        node.gpus += sign * member.claimed_gpus
        for kind, devices in self._devices_of(member).items():
            node.devices[kind] = node.devices.get(kind, 0.0) + sign * devices

    def amount(self, member: Member, resource: int) -> float:
        """The amount released of one resource, given by its row."""
        for row, amount in self.of(member):
            if row == resource:
                return amount
        return 0.0

    def of(self, member: Member) -> list[tuple[int, float]]:
        """The rows and amounts of all resources that are released; amounts are not 0."""
        known = self._known.get(member.shape.number)
        if known is None:
            amounts = _max_freed(self._state, member).tolist()
            known = [(position, amount) for position, amount in enumerate(amounts) if amount]
            self._known[member.shape.number] = known
        return known

    def _devices_of(self, member: Member) -> Mapping[str, int]:
        # A pod whose claims are allocated has a shape of its own.
        known = self._known_devices.get(member.shape.number)
        if known is None:
            found = map(self._state.snapshot.devices.allocation, member.claims)
            allocations = [each for each in found if each is not None]
            known = self._state.statement.devices.whole_claims.by_kind(allocations)
            self._known_devices[member.shape.number] = known
        return known


class FreedNodes:
    """What every node has while pods are counted as gone; starts with what is idle then."""

    def __init__(self, state: CycleState) -> None:
        """No pod is counted as gone."""
        self._state, self._freed = state, FreedResources(state)
        self._positions = state.snapshot.nodes.positions
        self._claims: dict[int, FreedCapacity] = {}
        """By row, the devices of claims; its ``free`` is empty."""

    @cached_property
    def _free(self) -> Floats:
        return self._state.statement.future_idle.T.copy()

    def release(self, members: Iterable[Member], sign: float = 1.0) -> list[int]:
        """Count the pods as gone (or, with -1, as back again); returns the rows of their nodes.

        Pods on nodes that do not exist are left out. O(resources) per pod.
        """
        positions, rows = self._positions, list[int]()
        gone = list[Member]()
        for member in members:
            row = positions.get(member.node)
            if row is None:
                continue
            rows.append(row)
            gone.append(member)
            if member.claims:
                node = self._claims.setdefault(row, FreedCapacity([]))
                self._freed.release_claims(member, node, sign)
        if len(rows) >= MANY_PODS:
            np.add.at(self._free, rows, sign * self._amounts_of(gone))
        else:
            for row, member in zip(rows, gone, strict=True):
                for position, amount in self._freed.of(member):
                    self._free[row, position] += sign * amount
        return list(dict.fromkeys(rows))

    def _amounts_of(self, members: Sequence[Member]) -> Floats:
        """(members, resources) what evicting each of the pods releases."""
        of_shapes = {member.shape.number: member for member in members}
        amounts = np.zeros((len(of_shapes), self._free.shape[1]))
        for at, member in enumerate(of_shapes.values()):
            for position, amount in self._freed.of(member):
                amounts[at, position] = amount
        position_of = {number: at for at, number in enumerate(of_shapes)}
        listed: Floats = amounts[[position_of[member.shape.number] for member in members]]
        return listed

    def of(self, row: int) -> FreedCapacity:
        """What the node ``row`` has; may be changed."""
        free, claims = self._free[row].tolist(), self._claims.get(row)
        if claims is None:
            return FreedCapacity(free)
        return FreedCapacity(free, claims.gpus, claims.devices.copy())

    def without(self, row: int, member: Member) -> FreedCapacity:
        """What the node ``row`` has if the pod, which is counted as gone from it, stays."""
        node = self.of(row)
        self._freed.release(member, node, -1.0)
        return node

    def free_on(self, rows: Sequence[int]) -> Floats:
        """(rows, resources) the resources that some nodes have."""
        free: Floats = self._free[rows]
        return free

    def freed_by(self, member: Member) -> list[tuple[int, float]]:
        """The rows and amounts of the resources that evicting the pod releases."""
        return self._freed.of(member)


def _max_freed(state: CycleState, member: Member) -> Floats:
    """(resources,) the most that evicting the pod releases; part of a GPU counts as the GPU."""
    freed, share = state.statement.occupied(member), member.shape.gpu_share
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    if share is None or gpu is None:
        return freed
    whole = freed.copy()
    whole[gpu] += share.devices
    return whole
