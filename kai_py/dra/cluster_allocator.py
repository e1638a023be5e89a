"""Allocate devices on any of thousands of nodes: equal nodes in equal standing share one answer.

A question about all nodes is one look-up per distinct pair of (class of the node, what is held on
it); the exact allocator runs once per pair that was never seen. Answers are positions of devices;
they become allocations of a node's own devices when asked for. Nothing here changes an allocation
state.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from kai_py.api.records.core import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.dra.allocation_query import AllocationQuery, Alternatives, QueryContext
from kai_py.dra.allocator import Allocation, AllocationOutcome, allocate
from kai_py.dra.cluster_layout import ClusterLayout, Ints, LayoutCache, lay_out_cluster
from kai_py.dra.device_state import DeviceState
from kai_py.dra.errors import AllocationError
from kai_py.dra.expressions import MaskedExpressions
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_classes import LOCALITY_ATTRIBUTES, NodeClasses
from kai_py.dra.parsed_claims import parse_claims
from kai_py.dra.search import DEFAULT_BUDGET
from kai_py.dra.usage_classes import UsageClasses

QUERY_CACHE_SIZE = 256
"""Sets of claims whose answers are kept, the most recently used ones."""


@dataclass(slots=True, eq=False)
class ClusterAllocator:
    """Answers questions about all nodes; inventory and classes may change in between."""

    inventory: Inventory
    classes: Mapping[str, DeviceClass]
    budget: int = DEFAULT_BUDGET
    _layout_cache: LayoutCache = field(default_factory=LayoutCache)
    _usage_classes: UsageClasses = field(default_factory=UsageClasses)
    _expressions: MaskedExpressions = field(default_factory=MaskedExpressions)
    _layout: ClusterLayout | None = None
    _queries: "OrderedDict[bytes, AllocationQuery]" = field(default_factory=OrderedDict)

    def count_fits(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        state: DeviceState,
        *,
        limit: int,
        node_rows: Ints | None = None,
    ) -> Ints:
        """(nodes,) int64: how many pods with such claims fit each node, one after the other.

        ``limit`` is the most that is worth knowing; ``among`` restricts the answer to some rows
        of ``nodes``, the others get 0. Claims that cannot be judged fit nowhere. Where nodes share
        a pool the counts hold for each node alone.
        """
        counts = np.zeros(len(nodes), dtype=np.int64)
        rows = np.arange(len(nodes), dtype=np.int64) if node_rows is None else node_rows
        if not claims:
            counts[rows] = limit
            return counts
        try:
            question, usage = self.query(claims, nodes, state)
        except AllocationError:
            return counts
        counts[rows] = question.counts(rows, usage, state, limit)
        return counts

    def alternatives(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        state: DeviceState,
        *,
        limit: int,
        node_rows: Ints,
    ) -> Alternatives | None:
        """What of their lists of alternatives pods get on ``among``, rows of ``nodes``.

        None where the claims have no such lists. To be asked after ``count_fits``.
        """
        requests = (request for claim in claims for request in claim.spec.devices.requests)
        if not any(request.first_available for request in requests):
            return None
        try:
            question, usage = self.query(claims, nodes, state)
        except AllocationError:
            return None
        return question.alternatives(node_rows, usage, limit)

    def allocate(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        row: int,
        state: DeviceState,
    ) -> AllocationOutcome:
        """Find devices for ``claims`` on ``nodes[row]``, as ``allocator.allocate`` does."""
        if not claims:
            return Allocation(())
        try:
            question, usage = self.query(claims, nodes, state)
            step = question.step(row, int(usage[row]), state)
            if step.failure is None:
                return Allocation(question.allocations_for(claims, row, step.picks))
        except AllocationError as error:
            return error
        if isinstance(step.failure, AllocationError):
            return self.allocate_uncached(claims, nodes[row], state)
        return step.failure

    def query(
        self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...], state: DeviceState
    ) -> tuple[AllocationQuery, Ints]:
        """Return what is known of ``claims``, and (nodes,) the number of what is held on each.

        :raises AllocationError: the claims concern no device, whatever the node.
        """
        question = self._cached_query(claims, nodes)
        return question, self._usage_classes.of_nodes(self._current_layout(nodes), state)

    def allocate_uncached(
        self, claims: Sequence[ResourceClaim], node: Node, state: DeviceState
    ) -> AllocationOutcome:
        """Find the fault again for the node and claims in question, whose names it tells."""
        return allocate(claims, node, self.inventory, state, self.classes, budget=self.budget)

    def _current_layout(self, nodes: tuple[Node, ...]) -> ClusterLayout:
        known = self._layout
        if known is None or known.nodes is not nodes or known.revision != self.inventory.revision:
            known = self._layout = lay_out_cluster(self.inventory, nodes, self._layout_cache)
            self._expressions.layout = known
        return known

    def _cached_query(
        self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...]
    ) -> AllocationQuery:
        key = msgspec.msgpack.encode([claim.spec for claim in claims])
        question = self._queries.get(key)
        if question is None or any(
            self.classes.get(known.metadata.name) is not known for known in question.device_classes
        ):
            question = self._queries[key] = self._new_query(claims)
            if len(self._queries) > QUERY_CACHE_SIZE:
                self._queries.popitem(last=False)
        self._queries.move_to_end(key)
        question.set_layout(self._current_layout(nodes))
        return question

    def _new_query(self, claims: Sequence[ResourceClaim]) -> AllocationQuery:
        inventory = self.inventory
        planned = parse_claims(claims, self.classes, inventory.features)
        near = LOCALITY_ATTRIBUTES if inventory.strategy is AllocationStrategy.BEST_FIT else ()
        return AllocationQuery(
            claims=planned,
            sample_claims=tuple(claims),
            device_classes=tuple(option.device_class for option in planned.options),
            node_classes=NodeClasses(planned, near),
            context=QueryContext(
                inventory.features,
                inventory.strategy,
                self._expressions,
                self._usage_classes,
                self.budget,
            ),
        )
