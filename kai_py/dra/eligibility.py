"""Eligibility of devices for a request, whatever is allocated: class, selectors, reach, taints.

Checks run in the order of Kubernetes: binding conditions, selectors of the class and the request,
reach, capacity, optional node operations, counters, taints. A result depends on the device and the
request only, so it is computed once per node view and claim set. A selector that fails on a device
at run time stops the pod with ``AllocationStrategy.FIRST_FIT`` and only rejects the device
otherwise.
"""

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from kai_py.api.records.node import taint_text, untolerated
from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.capacity import ConsumedCapacity, consumed_capacity
from kai_py.dra.constraints import AttributeElement, attribute_elements, find_attribute
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import OPTIONAL_NODE_OPERATIONS, NodeDevices
from kai_py.dra.parsed_claims import DerivedExpression, Option, ParsedClaims, RequestSelector
from kai_py.dra.rows import DeviceRow


class ExpressionRuntimeError(Exception):
    """An expression failed on one device."""


class ExpressionCompileError(Exception):
    """An expression does not compile."""


class Expressions(Protocol):
    """Evaluates CEL expressions on devices."""

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Whether a selector matches.

        :raises ExpressionCompileError: it does not compile. :raises ExpressionRuntimeError: it
        fails on this device.
        """

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``matches`` does."""


class DeviceCheck(enum.Enum):
    """The check that a device does not pass, in the order of the checks."""

    BINDING = "has binding conditions, which are disabled"
    CLASS = "does not match a selector of its class"
    SELECTOR = "does not match a selector"
    NODE_SELECTION = "is not accessible from the node"
    CAPACITY = "has too small a capacity"
    NODE_OPERATIONS = "needs node operations that the node cannot skip"
    PARTITIONS = "is a partition; partitions are disabled"
    TAINT = "is tainted"
    QUOTA = "exceeds the quota"
    IN_USE = "in use"
    CAPACITY_LEFT = "has insufficient capacity"
    GROUPS = "belongs to another compatibility group than those in use"
    COUNTERS = "has insufficient counters"
    CONSTRAINT = "violates a constraint"


SELECTION_CHECKS = frozenset(
    (
        DeviceCheck.BINDING,
        DeviceCheck.CLASS,
        DeviceCheck.SELECTOR,
        DeviceCheck.NODE_SELECTION,
        DeviceCheck.CAPACITY,
    )
)
"""Checks that exclude a device from what allocation mode All selects."""


class DeviceRejection(Struct, frozen=True):
    """Why a device is not eligible; ``detail`` names selector, taint or error."""

    check: DeviceCheck
    detail: str = ""


class Eligible(Struct, frozen=True):
    """A device is eligible; ``consumed_capacity`` of a share, empty for whole devices."""

    consumed_capacity: ConsumedCapacity = ()


CheckResult = Eligible | DeviceRejection

ELIGIBLE_WHOLE = Eligible()

_Reading = tuple[int, tuple[DerivedExpression, ...], int]
"""What a constraint reads from devices: claim, derived attributes, constraint."""


def _kind(option: Option) -> Hashable:
    """Equal for options that every check judges alike, and with the same words."""
    return (
        option.claim,
        option.selectors,
        option.tolerations,
        tuple(sorted(option.capacity.items())),
        option.derived,
        option.constraints,
        option.excluded,
    )


@dataclass(slots=True, eq=False)
class Eligibility:
    """Results for one claim set on one node view, computed on demand."""

    claims: ParsedClaims
    view: NodeDevices
    strategy: AllocationStrategy
    expressions: Expressions
    distinct: tuple[Option, ...] = field(init=False)
    """The first options of those for which the same devices are eligible."""
    alike: tuple[int, ...] = field(init=False)
    """By position of the option that of the first one for which the same devices are eligible."""
    _results: list[dict[int, CheckResult]] = field(init=False)
    _eligible: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _elements: dict[_Reading, dict[int, frozenset[AttributeElement] | None]] = field(
        default_factory=dict
    )
    _selected: dict[RequestSelector, dict[int, DeviceRejection | None]] = field(
        default_factory=dict
    )
    _unmatched: dict[RequestSelector, DeviceRejection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds: dict[Hashable, Option] = {}
        options = self.claims.options
        self.alike = tuple(kinds.setdefault(_kind(each), each).position for each in options)
        self.distinct = tuple(kinds.values())
        results: dict[int, dict[int, CheckResult]] = {each.position: {} for each in self.distinct}
        self._results = [results[position] for position in self.alike]

    def check(self, option: Option, device: int) -> CheckResult:
        """Check the device at position ``device`` of the view for ``option``.

        :raises AllocationError: the check can't be evaluated; the pod can't be allocated.
        """
        results = self._results[option.position]
        result = results.get(device)
        if result is None:
            result = self._check_device(option, device)
            results[device] = result
        return result

    def eligible_devices(self, option: Option) -> tuple[int, ...]:
        """The devices eligible for ``option``, in the order of the view.

        :raises AllocationError: as ``check`` does.
        """
        cached = self._eligible.get(option.position)
        if cached is None:
            cached = self._eligible[option.position] = tuple(
                device
                for device in range(len(self.view.rows))
                if isinstance(self.check(option, device), Eligible)
            )
        return cached

    def elements(
        self, option: Option, constraint: int, device: int
    ) -> frozenset[AttributeElement] | None:
        """The values that a constraint of the option's claim reads from a device.

        :raises AllocationError: a derived attribute fails on the device.
        """
        found = self._elements.setdefault((option.claim, option.derived, constraint), {})
        if device not in found:
            name = self.claims.claims[option.claim].constraints[constraint].attribute
            found[device] = self._find_elements(option, name, self.view.rows[device])
        return found[device]

    def _check_device(self, option: Option, device: int) -> CheckResult:
        row = self.view.rows[device]
        if row.device.binding_conditions and not self.claims.features.device_binding_and_status:
            return DeviceRejection(DeviceCheck.BINDING)
        for selector in option.selectors:
            judged = self._selected.setdefault(selector, {})
            if device not in judged:
                judged[device] = self._check_selector(selector, row)
            rejection = judged[device]
            if rejection is not None:
                return rejection
        if not row.reach.includes(self.view.node):
            return DeviceRejection(DeviceCheck.NODE_SELECTION)
        capacity = self._check_capacity(option, row)
        if isinstance(capacity, DeviceRejection):
            return capacity
        return self._check_other(option, row) or capacity

    def _check_selector(self, selector: RequestSelector, row: DeviceRow) -> DeviceRejection | None:
        check = DeviceCheck.CLASS if selector.is_of_class else DeviceCheck.SELECTOR
        try:
            if self.expressions.matches(selector.expression, row):
                return None
        except ExpressionCompileError as error:
            raise AllocationError(f"{selector}: CEL compile error: {error}") from error
        except ExpressionRuntimeError as error:
            text = f"{selector} on device {row.id}: CEL runtime error: {error}"
            if self.strategy is AllocationStrategy.FIRST_FIT:
                raise AllocationError(text) from error
            return DeviceRejection(check, f"{selector.place} ({selector.expression}): {error}")
        unmatched = self._unmatched.get(selector)
        if unmatched is None:
            unmatched = DeviceRejection(check, f"{selector.place} ({selector.expression})")
            self._unmatched[selector] = unmatched
        return unmatched

    def _check_capacity(self, option: Option, row: DeviceRow) -> CheckResult:
        if not self.claims.features.consumable_capacity:
            return ELIGIBLE_WHOLE
        if not (row.shareable or option.capacity or any(each.restricts for each in row.capacities)):
            return ELIGIBLE_WHOLE
        try:
            consumed = consumed_capacity(
                row.capacities,
                option.capacity,
                fractional=self.claims.features.fractional_capacity_range,
            )
        except AllocationError as error:
            raise AllocationError(
                f"{option.location}: checking capacity for device {row.id}: {error}"
            ) from error
        if consumed is None:
            return DeviceRejection(DeviceCheck.CAPACITY)
        return Eligible(consumed) if row.shareable else ELIGIBLE_WHOLE

    def _check_other(self, option: Option, row: DeviceRow) -> DeviceRejection | None:
        if row.skip_node_operations and not self._node_operations_may_be_skipped():
            return DeviceRejection(DeviceCheck.NODE_OPERATIONS)
        if row.consumes and not self.claims.features.partitionable_devices:
            return DeviceRejection(DeviceCheck.PARTITIONS)
        if self.claims.features.device_taints:
            taint = untolerated(row.taints, option.tolerations)
            if taint is not None:
                return DeviceRejection(DeviceCheck.TAINT, taint_text(taint))
        if option.excluded and row.kind in option.excluded:
            return DeviceRejection(DeviceCheck.QUOTA)
        return None

    def _node_operations_may_be_skipped(self) -> bool:
        declared = self.view.node.status.declared_features
        return (
            self.claims.features.optional_node_operations and OPTIONAL_NODE_OPERATIONS in declared
        )

    def _find_elements(
        self, option: Option, name: str, row: DeviceRow
    ) -> frozenset[AttributeElement] | None:
        attribute = self._derived(option, name, row) or find_attribute(row, name)
        return attribute_elements(attribute, lists=self.claims.features.list_type_attributes)

    def _derived(self, option: Option, name: str, row: DeviceRow) -> DeviceAttribute | None:
        for derived in option.derived:
            if derived.name == name:
                return self._derive(derived.name, derived.expression, row)
        return None

    def _derive(self, name: str, expression: str, row: DeviceRow) -> DeviceAttribute:
        try:
            return self.expressions.derive(expression, row)
        except ExpressionCompileError as error:
            raise AllocationError(f"compile derived attribute {name} failed: {error}") from error
        except ExpressionRuntimeError as error:
            if self.strategy is AllocationStrategy.BEST_FIT:
                return DeviceAttribute()
            raise AllocationError(
                f"evaluate derived attribute {name} on device {row.id} failed: {error}"
            ) from error
