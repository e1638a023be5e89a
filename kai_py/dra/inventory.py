"""The inventory of all devices of a cluster: ResourceSlices in, pools per node out.

A change costs what it touches. Slices are parsed once per version. The pools of a node are cached
until a slice that the node may see, a taint rule or the node itself changes. The caller chooses the
keys of slices: two slices of one name can't exist in a cluster, but can in a test table.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceTaint, ResourceSlice
from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.dra.features import ALL_FEATURES, AllocationStrategy, Features
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.pools import Pool, PoolStatus, gather_pools, pool_fault
from kai_py.dra.published_names import PublishedNames, published_names
from kai_py.dra.rows import DeviceRow, ParsedSlice, parse_slice
from kai_py.dra.taints import NO_EXECUTE, TaintRules

OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
"""The feature that a node declares when it can skip the preparation of a device."""


class NodeDevices(Struct, frozen=True, eq=False, dict=True):
    """What one node can use: all its pools, and the devices of those that are ready."""

    node: Node
    pools: tuple[Pool, ...]
    rows: tuple[DeviceRow, ...]
    pool_of_row: tuple[int, ...]
    """For each device the position of its pool in ``pools``."""

    def faulty(self, status: PoolStatus) -> tuple[Pool, ...]:
        """The pools in ``status``."""
        return tuple(pool for pool in self.pools if pool.status is status)

    @cached_property
    def positions(self) -> tuple[Mapping[str, int], ...]:
        """Per pool, the positions of its devices by name."""
        found: tuple[dict[str, int], ...] = tuple({} for _ in self.pools)
        for position, (row, pool) in enumerate(zip(self.rows, self.pool_of_row, strict=True)):
            found[pool][row.id.device] = position
        return found

    @cached_property
    def signature(self) -> Hashable:
        """What a result can depend on besides the devices of the ready pools themselves."""
        unreachable = tuple(
            position for position, row in enumerate(self.rows) if not row.reach.includes(self.node)
        )
        return (
            self.pool_of_row,
            unreachable,
            OPTIONAL_NODE_OPERATIONS in self.node.status.declared_features,
            tuple((pool.status, tuple(pool.counters.items())) for pool in self.pools),
        )


def node_devices(node: Node, pools: Sequence[Pool]) -> NodeDevices:
    """Collect the devices of the ready pools."""
    ready = [
        (position, row)
        for position, pool in enumerate(pools)
        if pool.status is PoolStatus.READY
        for row in pool.rows
    ]
    return NodeDevices(
        node=node,
        pools=tuple(pools),
        rows=tuple(row for _, row in ready),
        pool_of_row=tuple(position for position, _ in ready),
    )


class Inventory(Struct, eq=False):
    """The devices of a cluster, as watched."""

    features: Features = ALL_FEATURES
    strategy: AllocationStrategy = AllocationStrategy.BEST_FIT
    revision: int = 0
    """Grows with every change."""
    _slices: dict[str, ParsedSlice] = field(default_factory=dict)
    _pools: dict[PoolID, dict[str, ParsedSlice]] = field(default_factory=lambda: defaultdict(dict))
    _local: dict[str, dict[PoolID, None]] = field(default_factory=lambda: defaultdict(dict))
    """By node name, the pools with slices for this node alone."""
    _shared_pools: dict[PoolID, int] = field(default_factory=dict)
    """Counts of the slices that several nodes may see, by pool."""
    _rules: TaintRules = field(default_factory=TaintRules)
    _views: dict[str, NodeDevices] = field(default_factory=dict)
    _devices: dict[PoolID, dict[str, DeviceRow]] = field(default_factory=dict)
    _faults: tuple[int, tuple[tuple[ResourceSlice, str], ...]] | None = None
    _names: tuple[int, PublishedNames] | None = None
    _evicting: tuple[int, Mapping[DeviceID, tuple[DeviceTaint, ...]]] | None = None

    @classmethod
    def of(
        cls,
        slices: Iterable[ResourceSlice],
        *,
        features: Features = ALL_FEATURES,
        strategy: AllocationStrategy = AllocationStrategy.BEST_FIT,
        rules: Sequence[DeviceTaintRule] = (),
    ) -> "Inventory":
        """Build an inventory of slices whose names need not be unique."""
        inventory = cls(features=features, strategy=strategy, _rules=TaintRules(rules))
        for position, resource_slice in enumerate(slices):
            inventory.put(resource_slice, key=f"{resource_slice.metadata.name}/{position}")
        return inventory

    def put(self, resource_slice: ResourceSlice, *, key: str = "") -> None:
        """Add a slice or replace its older version."""
        key = key or resource_slice.metadata.name
        self.discard(key)
        spec = resource_slice.spec
        rules = self._rules.of_pool(PoolID(spec.driver, spec.pool.name))
        rows = parse_slice(resource_slice, rules)
        self._slices[key] = rows
        self._pools[rows.pool_id][key] = rows
        if resource_slice.spec.node_name:
            self._local[resource_slice.spec.node_name][rows.pool_id] = None
        else:
            self._shared_pools[rows.pool_id] = self._shared_pools.get(rows.pool_id, 0) + 1
        self._invalidate(rows, shared=rows.pool_id in self._shared_pools)

    def discard(self, key: str) -> None:
        """Remove a slice; an unknown one is no error."""
        rows = self._slices.pop(key, None)
        if rows is None:
            return
        pool, node_name = rows.pool_id, rows.slice.spec.node_name
        del self._pools[pool][key]
        shared = bool(self._shared_pools.get(pool))
        if not node_name:
            self._shared_pools[pool] -= 1
            if not self._shared_pools[pool]:
                del self._shared_pools[pool]
        elif not self._has_local_slice(pool, node_name):
            del self._local[node_name][pool]
            if not self._local[node_name]:
                del self._local[node_name]
        self._invalidate(rows, shared=shared)
        if not self._pools[pool]:
            del self._pools[pool]

    def set_taint_rules(self, rules: Sequence[DeviceTaintRule]) -> None:
        """Replace the taint rules; slices of pools whose rules changed are parsed again."""
        if tuple(rules) == self._rules.rules:
            return
        before, self._rules = self._rules, TaintRules(rules)
        for key, rows in list(self._slices.items()):
            if before.of_pool(rows.pool_id) != self._rules.of_pool(rows.pool_id):
                self.put(rows.slice, key=key)

    def view(self, node: Node) -> NodeDevices:
        """What ``node`` can use; the same object until something changes."""
        cached = self._views.get(node.metadata.name)
        if cached is not None and _same_node_selection(cached.node, node):
            return cached
        pools = gather_pools(node, self._candidates(node), self.features, self.strategy)
        view = node_devices(node, pools)
        self._views[node.metadata.name] = view
        return view

    def keep_views(self, nodes: Sequence[Node]) -> None:
        """Drop what other nodes could use: they are gone."""
        if len(self._views) > len(nodes):
            names = {node.metadata.name for node in nodes}
            self._views = {name: view for name, view in self._views.items() if name in names}

    def device(self, device: DeviceID) -> DeviceRow | None:
        """The device by name, on any node; None when no slice lists it."""
        return self.devices(device.pool_id).get(device.device)

    def devices(self, pool: PoolID) -> Mapping[str, DeviceRow]:
        """The devices of a pool by name; the same object until a slice of the pool changes."""
        by_name = self._devices.get(pool)
        if by_name is None:
            if pool not in self._pools:
                return {}
            by_name = {
                row.id.device: row for parsed in self.pool_slices(pool) for row in parsed.rows
            }
            self._devices[pool] = by_name
        return by_name

    def pools(self) -> Iterable[PoolID]:
        """The pools of which there are slices."""
        return self._pools

    def pool_slices(self, pool: PoolID) -> list[ParsedSlice]:
        """The slices of a pool, the newest generation last, by name in each.

        Drivers may publish anything, also slices that contradict each other: the order in which
        they came must not decide which of them counts.
        """
        slices = self._pools[pool].values() if pool in self._pools else ()
        return sorted(slices, key=lambda parsed: _oldest_first(parsed.slice))

    def faults(self) -> tuple[tuple[ResourceSlice, str], ...]:
        """Pools that no node can use, each by its first slice, with the fault."""
        if self._faults is None or self._faults[0] != self.revision:
            self._faults = (self.revision, tuple(self._find_faults()))
        return self._faults[1]

    def published_names(self) -> PublishedNames:
        """What all devices publish; collected on first use."""
        if self._names is None or self._names[0] != self.revision:
            slices = (parsed.slice for parsed in self._slices.values())
            self._names = (self.revision, published_names(slices))
        return self._names[1]

    def evicting_taints(self) -> Mapping[DeviceID, tuple[DeviceTaint, ...]]:
        """The devices whose taints end the pods that use them; collected after a change."""
        if self._evicting is None or self._evicting[0] != self.revision:
            found = {
                row.id: taints
                for parsed in self._slices.values()
                for row in parsed.rows
                if (taints := tuple(each for each in row.taints if each.effect == NO_EXECUTE))
            }
            self._evicting = (self.revision, found)
        return self._evicting[1]

    def slices(self) -> Mapping[str, ParsedSlice]:
        """All slices by key."""
        return self._slices

    def _find_faults(self) -> Iterator[tuple[ResourceSlice, str]]:
        for pool in sorted(self._pools):
            slices = self.pool_slices(pool)
            fault = pool_fault(slices, self.features)
            if fault:
                newest = slices[-1].slice.spec.pool.generation
                yield next(p.slice for p in slices if p.slice.spec.pool.generation == newest), fault

    def _candidates(self, node: Node) -> list[tuple[PoolID, list[ParsedSlice]]]:
        pools = dict(self._local.get(node.metadata.name, {}))
        pools.update((pool, None) for pool in self._shared_pools)
        return [(pool, self.pool_slices(pool)) for pool in sorted(pools)]

    def _has_local_slice(self, pool: PoolID, node_name: str) -> bool:
        return any(p.slice.spec.node_name == node_name for p in self._pools[pool].values())

    def _invalidate(self, rows: ParsedSlice, *, shared: bool) -> None:
        """Drop what depends on a slice; ``shared``: several nodes may see its pool."""
        self.revision += 1
        self._devices.pop(rows.pool_id, None)
        if shared or not rows.slice.spec.node_name:
            self._views.clear()
            return
        for parsed in (rows, *self._pools[rows.pool_id].values()):
            self._views.pop(parsed.slice.spec.node_name, None)


def _oldest_first(each: ResourceSlice) -> tuple[int, str]:
    return each.spec.pool.generation, each.metadata.name


def _same_node_selection(known: Node, node: Node) -> bool:
    return known is node or (
        known.metadata.labels == node.metadata.labels
        and known.status.declared_features == node.status.declared_features
    )
