"""Allocation of devices on any node of a large cluster; equal nodes with equal usage share results.

A query over all nodes is one look-up per distinct pair of node class and usage class; the exact
allocator runs once per new pair. Results are positions of devices; they become allocations of a
node's own devices when requested. Allocation states are never changed.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct, field

from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.dra.allocation_query import AllocationQuery, Alternatives, QueryContext
from kai_py.dra.allocator import Allocation, AllocationOutcome, allocate
from kai_py.dra.cluster_layout import ClusterLayout, Ints, LayoutCache, lay_out_cluster
from kai_py.dra.device_state import DeviceState
from kai_py.dra.expressions import MaskedExpressions
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_classes import LOCALITY_ATTRIBUTES, NodeClasses
from kai_py.dra.parsed_claims import parse_claims
from kai_py.dra.search import DEFAULT_BUDGET
from kai_py.dra.spending import Spending
from kai_py.dra.usage_classes import UsageClasses

QUERY_CACHE_SIZE = 256
"""Sets of claims whose queries are cached, the most recently used ones."""

MAX_CACHED = 200_000
"""Numbers, codes and results that are kept from cycle to cycle, in each of two places."""


class ClusterAllocator(Struct, eq=False):
    """Allocator for all nodes; inventory and classes may change between calls."""

    inventory: Inventory
    classes: Mapping[str, DeviceClass]
    budget: int = DEFAULT_BUDGET
    spending: Spending = field(default_factory=Spending)
    _layout_cache: LayoutCache = field(default_factory=LayoutCache)
    _usage_classes: UsageClasses = field(default_factory=UsageClasses)
    _expressions: MaskedExpressions = field(default_factory=MaskedExpressions)
    _layout: ClusterLayout | None = None
    _queries: "OrderedDict[bytes, AllocationQuery]" = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._share_allowance()

    def _share_allowance(self) -> None:
        allowance = self.spending.selectors
        self._expressions.single.allowance = self._layout_cache.encoding.allowance = allowance

    def start_cycle(self) -> None:
        """Drop results of the least recent queries where there are too many, if need be all.

        States of usage, values of devices and texts of selectors come without end. They are
        numbered for as long as the results that were computed with the numbers, so those go too.
        """
        self.spending.start_cycle()
        if self._layout_cache.size + self._usage_classes.size > MAX_CACHED:
            self._layout_cache, self._usage_classes = LayoutCache(), UsageClasses()
            self._share_allowance()
            self._layout = self._expressions.layout = None
            self._queries.clear()
        kept = sum(query.size for query in self._queries.values())
        while kept > MAX_CACHED:
            kept -= self._queries.popitem(last=False)[1].size

    def count_fits(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        state: DeviceState,
        *,
        limit: int,
        node_rows: Ints | None = None,
    ) -> Ints:
        """(nodes,) int64: how many pods with such claims fit on each node, one after the other.

        ``limit``: the most pods to count per node; ``node_rows`` restricts the count to some rows
        of ``nodes``, the others get 0. Claims that can't be evaluated fit nowhere. Where nodes
        share a pool the counts are valid for each node alone.
        """
        counts = np.zeros(len(nodes), dtype=np.int64)
        rows = np.arange(len(nodes), dtype=np.int64) if node_rows is None else node_rows
        if not claims:
            counts[rows] = limit
            return counts
        try:
            query, usage = self.query(claims, nodes, state)
        except AllocationError:
            return counts
        counts[rows] = query.counts(rows, usage, state, limit)
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
        """The alternatives of ``firstAvailable`` that pods get on ``node_rows``, (n,) of ``nodes``.

        None where the claims have no such requests. To be called after ``count_fits``.
        """
        requests = (request for claim in claims for request in claim.spec.devices.requests)
        if not any(request.first_available for request in requests):
            return None
        try:
            query, usage = self.query(claims, nodes, state)
        except AllocationError:
            return None
        return query.alternatives(node_rows, usage, limit)

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
            query, usage = self.query(claims, nodes, state)
            step = query.step(row, int(usage[row]), state)
            if step.failure is None:
                return Allocation(query.allocations_for(claims, row, step.picks))
        except AllocationError as error:
            return error.as_outcome()
        if isinstance(step.failure, AllocationError):
            # A cached error names the claims and node of another pod: find it again for this one.
            return self.allocate_uncached(claims, nodes[row], state)
        return step.failure

    def query(
        self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...], state: DeviceState
    ) -> tuple[AllocationQuery, Ints]:
        """The query for ``claims``, and (nodes,) the usage number of each node.

        :raises AllocationError: the claims are faulty, whatever the node.
        """
        query = self._cached_query(claims, nodes)
        return query, self._usage_classes.of_nodes(self._current_layout(nodes), state)

    def allocate_uncached(
        self, claims: Sequence[ResourceClaim], node: Node, state: DeviceState
    ) -> AllocationOutcome:
        """Allocate without caches, so that an error names this node and these claims."""
        budget = min(self.budget, self.spending.steps.left)
        allowance = self.spending.selectors
        return allocate(
            claims,
            node,
            self.inventory,
            state,
            self.classes,
            budget=budget,
            allowance=allowance,
        )

    def _current_layout(self, nodes: tuple[Node, ...]) -> ClusterLayout:
        layout = self._layout
        if (
            layout is None
            or layout.nodes is not nodes
            or layout.revision != self.inventory.revision
        ):
            layout = self._layout = lay_out_cluster(self.inventory, nodes, self._layout_cache)
            self._expressions.layout = layout
            for query in self._queries.values():
                query.leave_layout()
        return layout

    def _cached_query(
        self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...]
    ) -> AllocationQuery:
        key = msgspec.msgpack.encode([claim.spec for claim in claims])
        self.spending.selectors.begin(key)
        query = self._queries.get(key)
        if query is None or any(
            self.classes.get(device_class.metadata.name) is not device_class
            for device_class in query.device_classes
        ):
            query = self._queries[key] = self._new_query(claims)
            if len(self._queries) > QUERY_CACHE_SIZE:
                self._queries.popitem(last=False)
        self._queries.move_to_end(key)
        query.set_layout(self._current_layout(nodes))
        return query

    def _new_query(self, claims: Sequence[ResourceClaim]) -> AllocationQuery:
        inventory = self.inventory
        parsed = parse_claims(claims, self.classes, inventory.features)
        locality_attributes = (
            LOCALITY_ATTRIBUTES if inventory.strategy is AllocationStrategy.BEST_FIT else ()
        )
        return AllocationQuery(
            claims=parsed,
            sample_claims=tuple(claims),
            device_classes=tuple(option.device_class for option in parsed.options),
            node_classes=NodeClasses(parsed, locality_attributes),
            context=QueryContext(
                inventory.strategy,
                self._expressions,
                self._usage_classes,
                self.budget,
                self.spending,
            ),
        )
