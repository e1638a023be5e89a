"""CEL for the allocator: selectors and derived attributes of devices, with errors as exceptions.

``MaskedExpressions`` looks single devices up in masks that were computed for the whole cluster.

A costly expression is evaluated once per distinct values of a device. The cost that is returned is
always that of an evaluation, so what others may spend does not depend on what was evaluated before.
Cheap expressions are evaluated each time: that takes less than looking at the values.
"""

from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kai_py.api.bounded import remember
from kai_py.api.records.resource import DeviceAttribute
from kai_py.cel.expression import CompileError, Expression
from kai_py.cel.library.versions import Semver
from kai_py.cel.values import CELRuntimeError, Value
from kai_py.dra.cluster_layout import ClusterLayout
from kai_py.dra.eligibility import ExpressionCompileError, ExpressionRuntimeError, Expressions
from kai_py.dra.rows import DeviceRow
from kai_py.dra.selectors.columns import Column, column_keys, columns_of
from kai_py.dra.selectors.device import AttributeList, AttributeValue, CELDevice
from kai_py.dra.selectors.masks import mask
from kai_py.dra.selectors.selector import (
    as_bool,
    attribute_value,
    compile_attribute,
    compile_selector,
    explain,
)
from kai_py.dra.spending import SelectorAllowance

COSTLY = 500
"""Cost units from which an outcome is kept: about half a millisecond."""

OUTCOMES_KEPT = 1024
"""Per expression."""

Outcome = tuple[Value | CELRuntimeError, int]


class KnownOutcomes:
    """The outcomes of one costly expression, by the values of its columns."""

    __slots__ = ("_by_values", "_columns")

    def __init__(self, expression: Expression) -> None:
        self._columns: tuple[Column, ...] = columns_of(expression.checked.root)
        self._by_values: dict[tuple[Value, ...], Outcome] = {}

    def attempt(self, expression: Expression, device: CELDevice) -> Outcome:
        """The outcome on a device, evaluated unless one with the same values was met."""
        key = tuple(column_keys([device], column)[0] for column in self._columns)
        known = self._by_values.get(key)
        if known is None:
            value, cost = expression.program.attempt(device.activation)
            if isinstance(value, CELRuntimeError):
                value = value.as_value()
            known = remember(self._by_values, key, (value, cost), OUTCOMES_KEPT)
        return known


_COSTLY: WeakKeyDictionary[Expression, KnownOutcomes] = WeakKeyDictionary()
"""They go with the compiled expression."""


def attempt(expression: Expression, device: CELDevice) -> Outcome:
    """The value of an expression on a device or the error, and what an evaluation costs."""
    known = _COSTLY.get(expression)
    if known is None:
        value, cost = expression.program.attempt(device.activation)
        if cost < COSTLY:
            return value, cost
        known = _COSTLY[expression] = KnownOutcomes(expression)
    value, cost = known.attempt(expression, device)
    if isinstance(value, CELRuntimeError):
        # A copy: the traceback of a raised error keeps frames alive, with all that they hold.
        return CELRuntimeError(value.reason), cost
    return value, cost


class CachedExpressions(Struct, eq=False):
    """Evaluates each selector once per device: equal requests of a pod share the result."""

    expressions: Expressions
    _cached: dict[tuple[str, DeviceRow], bool] = field(default_factory=dict)

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Whether a selector matches; raises as ``CompiledExpressions.matches`` does."""
        key = (expression, row)
        cached = self._cached.get(key)
        if cached is None:
            cached = self._cached[key] = self.expressions.matches(expression, row)
        return cached

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``CompiledExpressions.derive`` does."""
        return self.expressions.derive(expression, row)


class CompiledExpressions(Struct, eq=False):
    """Evaluates device by device; compiled texts are shared by the whole process."""

    allowance: SelectorAllowance = field(default_factory=SelectorAllowance)

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Whether a selector matches.

        :raises ExpressionCompileError: it does not compile. :raises ExpressionRuntimeError: it
        fails on this device. :raises SelectorsTooExpensiveError: the allowance is used up.
        """
        self.allowance.read(expression)
        selector = compile_selector(expression)
        if isinstance(selector, CompileError):
            raise ExpressionCompileError(selector.message)
        try:
            return as_bool(self._evaluate(selector.expression, row))
        except CELRuntimeError as error:
            raise ExpressionRuntimeError(explain(error)) from error

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``matches`` does."""
        self.allowance.read(expression)
        derived = compile_attribute(expression)
        if isinstance(derived, CompileError):
            raise ExpressionCompileError(derived.message)
        try:
            return _attribute(attribute_value(self._evaluate(derived.expression, row)))
        except CELRuntimeError as error:
            raise ExpressionRuntimeError(error.reason) from error

    def _evaluate(self, expression: Expression, row: DeviceRow) -> Value:
        """The value of an expression on a device; an error costs what was evaluated before it."""
        row.cel.require_sound()
        self.allowance.require()
        value, cost = attempt(expression, row.cel)
        self.allowance.spend(cost)
        if not isinstance(value, CELRuntimeError):
            return value
        try:
            raise value
        finally:
            # The error has this frame in its traceback: together they would be a cycle.
            del value


def _attribute(value: AttributeValue) -> DeviceAttribute:
    if isinstance(value, AttributeList):
        return _list(value)
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    if isinstance(value, Semver):
        return DeviceAttribute(version_value=str(value))
    return DeviceAttribute(string_value=value)


def _list(values: AttributeList) -> DeviceAttribute:
    match values.kind:
        case "ints":
            return DeviceAttribute(int_values=tuple(values))
        case "bools":
            return DeviceAttribute(bool_values=tuple(values))
        case "strings":
            return DeviceAttribute(string_values=tuple(values))
    return DeviceAttribute(version_values=tuple(map(str, values)))


class MaskedExpressions(Struct, eq=False):
    """Looks selectors up in masks; faults and derived attributes are evaluated one by one."""

    layout: ClusterLayout | None = None
    single: CompiledExpressions = field(default_factory=CompiledExpressions)

    def matches(self, expression: str, row: DeviceRow) -> bool:
        """Whether a selector matches; raises as ``CompiledExpressions.matches`` does."""
        layout = self.layout
        self.single.allowance.read(expression)
        selector = compile_selector(expression)
        position = None if layout is None else layout.row_of.get(id(row))
        if layout is None or position is None or isinstance(selector, CompileError):
            return self.single.matches(expression, row)
        result = mask(selector, layout.table)
        if result.error[position]:
            return self.single.matches(expression, row)
        return bool(result.value[position])

    def derive(self, expression: str, row: DeviceRow) -> DeviceAttribute:
        """Compute a derived attribute; raises as ``CompiledExpressions.derive`` does."""
        return self.single.derive(expression, row)
