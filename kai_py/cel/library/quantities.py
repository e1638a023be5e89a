"""Quantities: exact amounts such as ``80Gi``.

Source: k8s.io/apiserver/pkg/cel/library, documentation of ``Quantity``.
"""

from kai_py.api.quantity import Quantity, QuantityError, parse_quantity, ratio
from kai_py.cel.functions import function
from kai_py.cel.values import CELRuntimeError

_REASONS = ("unable to parse quantity's suffix", "unable to parse numeric part of quantity")
_FORMAT_FAULT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@function("quantity(string) -> Quantity")
def quantity(text: str) -> Quantity:
    """Parse a quantity."""
    try:
        return parse_quantity(_exact(text))
    except QuantityError as fault:
        reasons = (reason for reason in _REASONS if str(fault).endswith(reason))
        raise CELRuntimeError(next(reasons, _FORMAT_FAULT)) from None


@function("isQuantity(string) -> bool")
def is_quantity(text: str) -> bool:
    """Whether a text is a quantity."""
    try:
        parse_quantity(_exact(text))
    except QuantityError:
        return False
    return True


def _exact(text: str) -> str:
    """Reject the white space that JSON decoding would strip."""
    if text != text.strip():
        raise QuantityError(text)
    return text


@function("Quantity.isInteger() -> bool")
def is_integer(value: Quantity) -> bool:
    """Whether an amount is kept as a whole number of 64 bits; ``1.5Gi`` and ``1000m`` are not."""
    return value.as_int64() is not None


@function("Quantity.asInteger() -> int")
def as_integer(value: Quantity) -> int:
    """The whole number."""
    found = value.as_int64()
    if found is None:
        raise CELRuntimeError("cannot convert value to integer")
    return found


@function("Quantity.asApproximateFloat() -> double")
def as_float(value: Quantity) -> float:
    """A double near the amount: Kubernetes rounds its digits, and again the product with 10**n."""
    scale = -9 if value.scale is None else value.scale
    # Exponents above that of the greatest amount leave no digits.
    digits = value.nano // 10 ** (scale + 9) or value.nano
    return ratio(digits, 1) * float(f"1e{scale}")


@function("sign(Quantity) -> int")
def sign(value: Quantity) -> int:
    """-1, 0 or 1."""
    return (value.nano > 0) - (value.nano < 0)


@function("Quantity.add(Quantity) -> Quantity", "Quantity.add(int) -> Quantity")
def add(left: Quantity, right: Quantity | int) -> Quantity:
    """Add an amount or a number of units."""
    return left + _amount(right)


@function("Quantity.sub(Quantity) -> Quantity", "Quantity.sub(int) -> Quantity")
def sub(left: Quantity, right: Quantity | int) -> Quantity:
    """Subtract an amount or a number of units."""
    return left - _amount(right)


def _amount(value: Quantity | int) -> Quantity:
    return value if isinstance(value, Quantity) else parse_quantity(int(value))


@function("Quantity.isGreaterThan(Quantity) -> bool")
def is_greater(left: Quantity, right: Quantity) -> bool:
    """Whether ``left`` is greater than ``right``."""
    return left.nano > right.nano


@function("Quantity.isLessThan(Quantity) -> bool")
def is_less(left: Quantity, right: Quantity) -> bool:
    """Whether ``left`` is less than ``right``."""
    return left.nano < right.nano


@function("Quantity.compareTo(Quantity) -> int")
def compare_to(left: Quantity, right: Quantity) -> int:
    """-1, 0 or 1."""
    return (left.nano > right.nano) - (left.nano < right.nano)
