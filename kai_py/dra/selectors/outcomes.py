"""Outcomes of expressions on single devices; costly ones are evaluated once per distinct values.

The cost that is returned is always that of an evaluation, so what others may spend does not depend
on what was evaluated before. Cheap expressions are evaluated each time: that takes less than
looking at the values.
"""

from weakref import WeakKeyDictionary

from kai_py.api.bounded import remember
from kai_py.cel.expression import Expression
from kai_py.cel.values import CELRuntimeError, Value
from kai_py.dra.selectors.columns import Column, column_keys, columns_of
from kai_py.dra.selectors.device import CELDevice

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
