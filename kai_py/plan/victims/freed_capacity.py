"""What evicting pods releases on their nodes, for counting: upper bounds.

Resources and GPUs are bounds of what the statement releases when the pod is evicted. A claim with
other users keeps its devices although they are counted here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Floats


@dataclass(slots=True)
class FreedCapacity:
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


def _max_freed(state: CycleState, member: Member) -> Floats:
    """(resources,) the most that evicting the pod releases; part of a GPU counts as the GPU."""
    freed, share = state.statement.occupied(member), member.shape.gpu_share
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    if share is None or gpu is None:
        return freed
    whole = freed.copy()
    whole[gpu] += share.devices
    return whole
