"""Kubernetes' quantity functions for cel-python, as far as rules of CRDs compare quantities.

Source: k8s.io/apiserver pkg/cel/library/quantity.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celpy.celtypes import BoolType, DoubleType, IntType
from celpy.evaluation import CELEvalError

from kai_py.api.quantity import Quantity, QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable


def _quantity(text: str) -> Quantity | CELEvalError:
    try:
        return parse_quantity(str(text))
    except QuantityError as error:
        return CELEvalError(str(error), ValueError, (str(error),))


def _is_quantity(text: str) -> BoolType:
    return BoolType(isinstance(_quantity(text), Quantity))


def _compare(left: Quantity, right: Quantity) -> IntType:
    return IntType((left.nano > right.nano) - (left.nano < right.nano))


QUANTITY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "compareTo": _compare,
    "isLessThan": lambda left, right: BoolType(left.nano < right.nano),
    "isGreaterThan": lambda left, right: BoolType(left.nano > right.nano),
    "sign": lambda quantity: IntType((quantity.nano > 0) - (quantity.nano < 0)),
    "isInteger": lambda quantity: BoolType(quantity.is_integer()),
    "asInteger": lambda quantity: IntType(quantity.value()),
    "asApproximateFloat": lambda quantity: DoubleType(quantity.number()),
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
}
"""Functions and methods by name; a method gets its receiver first."""
