"""Devices for the claims of pods on a node: the best for each pod, or enough for several together.

A pod gets the devices that suit it best, whatever the next one needs. Where that leaves too few,
the claims of several pods can be allocated in one search; each of these pods then gets its part.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from kai_py.api.records.node import Node
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.dra.allocator import Allocation
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.device_state import DeviceState

MAX_STEPS_TOGETHER = 2_000
"""Devices tried in one search for several pods."""


class DeviceSearch(Struct):
    """Searches for devices on ``nodes``."""

    allocator: ClusterAllocator
    nodes: tuple[Node, ...]
    _chosen: Mapping[str, AllocationResult] = field(default_factory=dict)
    """By uid of a claim, what it gets in the block of ``together``."""

    def find(
        self, claims: Sequence[ResourceClaim], row: int, state: DeviceState
    ) -> Sequence[AllocationResult] | None:
        """Devices for the claims of a pod on a node; None if there are too few."""
        if claims and all(claim.metadata.uid in self._chosen for claim in claims):
            return [self._chosen[claim.metadata.uid] for claim in claims]
        result = self.allocator.allocate(claims, self.nodes, row, state)
        return result.allocations if isinstance(result, Allocation) else None

    @contextmanager
    def together(
        self, claims: Sequence[ResourceClaim], row: int, state: DeviceState
    ) -> Iterator[bool]:
        """In the block, claims get devices that suffice for all of them, if there are enough."""
        with self.allocator.spending.steps.apart(MAX_STEPS_TOGETHER):
            found = self.find(claims, row, state)
        uids = [claim.metadata.uid for claim in claims]
        self._chosen = dict(zip(uids, found or (), strict=found is not None))
        try:
            yield found is not None
        finally:
            self._chosen = {}
