"""Parsed devices: what the allocator needs of a ResourceSlice, parsed once per version.

A slice whose quantities can't be parsed carries a ``problem`` in place of devices; its pool is then
invalid, and nothing else is affected.

Node selectors, of slices, devices and allocations, have the semantics of k8s.io/component-helpers
nodeaffinity: terms are OR-ed, requirements AND-ed, an empty term and one that can't be parsed match
nothing, ``Gt`` and ``Lt`` compare integers.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from msgspec import Struct, field
from msgspec.structs import replace

from kai_py.api.numbers import parse_int64
from kai_py.api.quantity import Quantity, QuantityError, parse_quantity
from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.api.records.node import Node
from kai_py.api.records.resource import Device, DeviceAttribute, DeviceTaint, ResourceSlice
from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.api.selectors import can_be_parsed, requirement_matches
from kai_py.dra.capacity import ParsedCapacity, parse_capacity
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.selectors.device import AttributeValue, BadAttribute, CELDevice, attribute_value
from kai_py.dra.taints import rule_taints


def node_selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Whether any term of ``selector`` matches ``node``."""
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    matches = all(
        _requirement_matches(requirement, labels.get(requirement.key))
        for requirement in term.match_expressions
    ) and all(
        _requirement_matches(requirement, node.metadata.name) for requirement in term.match_fields
    )
    return matches and can_be_parsed(term)


def _requirement_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    if requirement.operator in ("Gt", "Lt"):
        return _number_matches(requirement, value)
    return requirement_matches(requirement, value)


def _number_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    number = parse_int64(value or "")
    bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


IDENTIFIERS = ("uuid", "pci")
"""In names of attributes that tell devices of one kind apart."""

CounterID = tuple[str, str]
"""Counter set and counter."""

UNGROUPED = frozenset(("",))
"""The group of devices that name none: they share a counter set with each other only."""


class NodeReach(Struct, frozen=True):
    """The nodes that can use a device; exactly one of the three is set in valid objects."""

    node_name: str = ""
    selector: NodeSelector | None = None
    all_nodes: bool = False

    @property
    def width(self) -> int:
        """How many nodes can use the device, roughly: one, those of a selector, all."""
        return 0 if self.node_name else 1 + self.all_nodes

    def includes(self, node: Node) -> bool:
        """Whether ``node`` can use the device."""
        if self.node_name:
            return self.node_name == node.metadata.name
        if self.all_nodes:
            return True
        return self.selector is not None and node_selector_matches(self.selector, node)


class Consumption(Struct, frozen=True):
    """What a device draws from one counter set while it is allocated, in nano-units."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]
    groups: frozenset[str]


class DeviceRow(Struct, frozen=True, eq=False, dict=True, weakref=True):
    """One device, parsed; compared by identity."""

    id: DeviceID
    device: Device
    reach: NodeReach
    capacities: tuple[ParsedCapacity, ...]
    consumes: tuple[Consumption, ...]
    taints: tuple[DeviceTaint, ...]
    skip_node_operations: tuple[str, ...]

    @property
    def shareable(self) -> bool:
        """Whether the device may be allocated to several claims at once."""
        return self.device.allow_multiple_allocations

    @property
    def pinned_to_node(self) -> bool:
        """Whether a claim with the device can only be used on the node it was placed on."""
        return bool(self.reach.node_name) or self.device.binds_to_node

    def text(self, name: str) -> str:
        """A string attribute of the driver's domain; "" without one."""
        for key in (name, f"{self.id.driver}/{name}"):
            attribute = self.device.attributes.get(key)
            if attribute is not None and attribute.string_value is not None:
                return attribute.string_value
        return ""

    @cached_property
    def kind(self) -> str:
        """What the device has in common with others: all but uuids, PCI addresses and places.

        Counters numbered alike are places in the physical device, of which only the sum counts.
        """
        attributes = (
            f"{name}={value_text(value)}"
            for name, value in sorted(self.device.attributes.items())
            if not names_identifier(name)
        )
        capacities = (f"{each.name}={each.value}" for each in self.capacities)
        drawn: dict[str, int] = {}
        for name, amount in (pair for each in self.consumes for pair in each.counters):
            key = name.rstrip("0123456789")
            drawn[key] = drawn.get(key, 0) + amount
        counters = (f"{name}:{amount}" for name, amount in sorted(drawn.items()))
        shares = ("shares",) if self.shareable else ()
        return "\n".join((self.id.driver, *shares, *attributes, *capacities, *counters))

    @cached_property
    def cel(self) -> CELDevice:
        """The device as CEL expressions see it."""
        attributes = {name: cel_value(value) for name, value in self.device.attributes.items()}
        capacity = {each.name: Quantity(each.value, each.format) for each in self.capacities}
        return CELDevice(
            driver=self.id.driver,
            attributes=attributes,
            capacity=capacity,
            allow_multiple_allocations=self.shareable,
        )


class ParsedSlice(Struct, frozen=True, eq=False):
    """One version of a slice, parsed."""

    slice: ResourceSlice
    rows: tuple[DeviceRow, ...]
    counters: dict[CounterID, int] = field(default_factory=dict)
    """Values of the counters in nano-units."""
    has_groups: bool = False
    has_binding_conditions: bool = False
    problem: str = ""

    @property
    def pool_id(self) -> PoolID:
        """The pool of the slice."""
        return PoolID(self.slice.spec.driver, self.slice.spec.pool.name)

    @property
    def reach(self) -> NodeReach:
        """The nodes that see the slice; meaningless with per-device node selection."""
        spec = self.slice.spec
        return NodeReach(spec.node_name, spec.node_selector, spec.all_nodes)

    def visible_from(self, node: Node) -> bool:
        """Whether any device or counter of the slice matters to ``node``."""
        if self.slice.spec.per_device_node_selection:
            return any(row.reach.includes(node) for row in self.rows)
        return self.reach.includes(node)


def names_identifier(text: str) -> bool:
    """Whether a name, or an expression, names what tells devices of one kind apart."""
    return any(word in text.lower() for word in IDENTIFIERS)


def value_text(attribute: DeviceAttribute) -> str:
    """The value of an attribute with its type, for comparison."""
    if attribute.string_value is not None:
        return attribute.string_value
    return repr(attribute)


def cel_value(attribute: DeviceAttribute) -> AttributeValue | BadAttribute:
    """The CEL value of an attribute."""
    for scalar in (attribute.string_value, attribute.int_value, attribute.bool_value):
        if scalar is not None:
            return scalar
    return _other_value(attribute)


@lru_cache(maxsize=8192)
def _other_value(attribute: DeviceAttribute) -> AttributeValue | BadAttribute:
    return attribute_value(
        version=attribute.version_value,
        ints=attribute.int_values,
        bools=attribute.bool_values,
        strings=attribute.string_values,
        versions=attribute.version_values,
    )


def parse_slice(
    resource_slice: ResourceSlice, rules: Sequence[DeviceTaintRule] = ()
) -> ParsedSlice:
    """Parse ``resource_slice``, adding the taints of ``rules``."""
    try:
        return _parse(resource_slice, rules)
    except QuantityError as error:
        problem = f'ResourceSlice "{resource_slice.metadata.name}": {error}'
        return ParsedSlice(slice=resource_slice, rows=(), problem=problem)


def _parse(resource_slice: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ParsedSlice:
    spec = resource_slice.spec
    return ParsedSlice(
        slice=resource_slice,
        rows=tuple(_device_row(resource_slice, device, rules) for device in spec.devices),
        counters={
            (counters.name, name): parse_quantity(counter.value).nano
            for counters in spec.shared_counters
            for name, counter in counters.counters.items()
        },
        has_groups=any(
            consumption.compatibility_groups
            for device in spec.devices
            for consumption in device.consumes_counters
        ),
        has_binding_conditions=any(device.binding_conditions for device in spec.devices),
    )


def _device_row(
    resource_slice: ResourceSlice, device: Device, rules: Sequence[DeviceTaintRule]
) -> DeviceRow:
    spec = resource_slice.spec
    source = device if spec.per_device_node_selection else spec
    device_id = DeviceID(spec.driver, spec.pool.name, device.name)
    row = DeviceRow(
        id=device_id,
        device=device,
        reach=NodeReach(source.node_name, source.node_selector, source.all_nodes),
        capacities=tuple(parse_capacity(*item) for item in device.capacity.items()),
        consumes=tuple(
            Consumption(
                counter_set=consumption.counter_set,
                counters=tuple(
                    (name, parse_quantity(counter.value).nano)
                    for name, counter in consumption.counters.items()
                ),
                groups=frozenset(consumption.compatibility_groups) or UNGROUPED,
            )
            for consumption in device.consumes_counters
        ),
        taints=device.taints,
        skip_node_operations=spec.skip_node_operations,
    )
    added = rule_taints(rules, device_id, lambda: row.cel)
    return replace(row, taints=row.taints + added) if added else row
