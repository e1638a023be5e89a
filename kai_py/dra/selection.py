"""Which devices suit a request, whoever holds what? Class, selectors, reach, size, taints.

Checks run in the order of Kubernetes: binding conditions, selectors of the class and the request,
reach, capacity, optional node operations, counters, taints. An outcome depends on the device and
the request only, so it is computed once per node view and claim set. A device that breaks a
selector at run time stops the pod with ``Choice.FIRST_FIT`` and is merely refused otherwise.
"""

import enum
from dataclasses import dataclass, field
from typing import Protocol

from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.capacity import Amounts, consumption
from kai_py.dra.claims import ClaimSet, Option, Selector
from kai_py.dra.constraints import Element, attribute_elements, find_attribute
from kai_py.dra.errors import AllocationError
from kai_py.dra.features import Choice, Features
from kai_py.dra.inventory import OPTIONAL_NODE_OPERATIONS, NodeView
from kai_py.dra.rows import DeviceRow
from kai_py.dra.taints import untolerated


class ExpressionFaultError(Exception):
    """An expression failed on one device."""


class ExpressionTextError(Exception):
    """An expression does not compile."""


class Expressions(Protocol):
    """Evaluates CEL on devices."""

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Tell whether a selector matches.

        :raises ExpressionTextError: it does not compile.
        :raises ExpressionFaultError: it fails on this device.
        """

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``matches`` does."""


class Step(enum.Enum):
    """The check that a device does not pass, in the order of the checks."""

    BINDING = "has binding conditions, which are switched off"
    CLASS = "fails a class selector"
    SELECTOR = "fails a selector"
    REACH = "cannot be reached from the node"
    CAPACITY = "is too small"
    NODE_OPERATIONS = "needs node operations that the node cannot skip"
    PARTITIONS = "is a partition, which are switched off"
    TAINT = "is tainted"
    IN_USE = "in use"
    CAPACITY_LEFT = "has too little capacity left"
    GROUPS = "belongs to another compatibility group than those in use"
    COUNTERS = "finds its counters used up"
    CONSTRAINT = "breaks a constraint"


UNSELECTABLE = frozenset((Step.BINDING, Step.CLASS, Step.SELECTOR, Step.REACH, Step.CAPACITY))
"""Refusals that keep a device out of what an ``All`` request means."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a device does not suit a request; ``detail`` names selector, taint or error."""

    step: Step
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """A device suits; ``consumed`` is what a share of it takes, empty for whole devices."""

    consumed: Amounts = ()


Outcome = Fit | Refusal

WHOLE = Fit()


@dataclass(slots=True, eq=False)
class Eligibility:
    """Outcomes for one claim set on one node view, computed when first asked for."""

    claims: ClaimSet
    view: NodeView
    features: Features
    choice: Choice
    expressions: Expressions
    _outcomes: list[dict[int, Outcome]] = field(init=False)
    _suitable: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _elements: dict[tuple[int, int, int], frozenset[Element] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._outcomes = [{} for _ in self.claims.options]

    def judge(self, option: Option, device: int) -> Outcome:
        """Tell whether the device at position ``device`` of the view suits ``option``.

        :raises AllocationError: the question has no answer; the pod cannot be allocated.
        """
        known = self._outcomes[option.position]
        outcome = known.get(device)
        if outcome is None:
            outcome = self._judge(option, self.view.rows[device])
            known[device] = outcome
        return outcome

    def suitable(self, option: Option) -> tuple[int, ...]:
        """Return the devices that suit ``option``, in the order of the view.

        :raises AllocationError: as ``judge`` does.
        """
        known = self._suitable.get(option.position)
        if known is None:
            known = self._suitable[option.position] = tuple(
                device
                for device in range(len(self.view.rows))
                if isinstance(self.judge(option, device), Fit)
            )
        return known

    def elements(self, option: Option, constraint: int, device: int) -> frozenset[Element] | None:
        """Return the values that a constraint of the option's claim sees of a device.

        :raises AllocationError: a derived attribute fails on the device.
        """
        key = (option.position, constraint, device)
        if key not in self._elements:
            name = self.claims.claims[option.claim].constraints[constraint].attribute
            self._elements[key] = self._find_elements(option, name, self.view.rows[device])
        return self._elements[key]

    def _judge(self, option: Option, row: DeviceRow) -> Outcome:
        if row.device.binding_conditions and not self.features.device_binding_and_status:
            return Refusal(Step.BINDING)
        for selector in option.selectors:
            refusal = self._select(selector, row)
            if refusal is not None:
                return refusal
        if not row.reach.includes(self.view.node):
            return Refusal(Step.REACH)
        fit = self._size(option, row)
        if isinstance(fit, Refusal):
            return fit
        return self._admit(option, row) or fit

    def _select(self, selector: Selector, row: DeviceRow) -> Refusal | None:
        step = Step.CLASS if selector.owner.startswith("class ") else Step.SELECTOR
        try:
            if self.expressions.matches(selector.expression, row):
                return None
        except ExpressionTextError as error:
            raise AllocationError(f"{selector}: CEL compile error: {error}") from error
        except ExpressionFaultError as error:
            text = f"{selector} on device {row.id}: CEL runtime error: {error}"
            if self.choice is Choice.FIRST_FIT:
                raise AllocationError(text) from error
            return Refusal(step, f"{selector} ({selector.expression}): {error}")
        return Refusal(step, f"{selector} ({selector.expression})")

    def _size(self, option: Option, row: DeviceRow) -> Outcome:
        if not self.features.consumable_capacity:
            return WHOLE
        if not row.shareable and not option.capacity:
            return WHOLE
        try:
            amounts = consumption(
                row.capacities,
                option.capacity,
                fractional=self.features.fractional_capacity_range,
            )
        except AllocationError as error:
            raise AllocationError(
                f"{option.where}: checking capacity for device {row.id}: {error}"
            ) from error
        if amounts is None:
            return Refusal(Step.CAPACITY)
        return Fit(amounts) if row.shareable else WHOLE

    def _admit(self, option: Option, row: DeviceRow) -> Refusal | None:
        if row.skip_node_operations and not self._node_operations_may_be_skipped():
            return Refusal(Step.NODE_OPERATIONS)
        if row.consumes and not self.features.partitionable_devices:
            return Refusal(Step.PARTITIONS)
        if self.features.device_taints:
            taint = untolerated(row.taints, option.tolerations)
            if taint is not None:
                value = f"={taint.value}" if taint.value else ""
                return Refusal(Step.TAINT, f"{taint.key}{value}:{taint.effect}")
        return None

    def _node_operations_may_be_skipped(self) -> bool:
        declared = self.view.node.status.declared_features
        return self.features.optional_node_operations and OPTIONAL_NODE_OPERATIONS in declared

    def _find_elements(
        self, option: Option, name: str, row: DeviceRow
    ) -> frozenset[Element] | None:
        attribute = self._derived(option, name, row) or find_attribute(row, name)
        return attribute_elements(attribute, lists=self.features.list_type_attributes)

    def _derived(self, option: Option, name: str, row: DeviceRow) -> DeviceAttribute | None:
        for derived in option.derived:
            if derived.name == name:
                return self._derive(derived.name, derived.expression, row)
        return None

    def _derive(self, name: str, expression: str, row: DeviceRow) -> DeviceAttribute:
        try:
            return self.expressions.derive(expression, row)
        except ExpressionTextError as error:
            raise AllocationError(f"compile derived attribute {name} failed: {error}") from error
        except ExpressionFaultError as error:
            if self.choice is Choice.BEST_FIT:
                return DeviceAttribute()
            raise AllocationError(
                f"evaluate derived attribute {name} on device {row.id} failed: {error}"
            ) from error
