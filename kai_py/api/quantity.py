"""Kubernetes quantities as exact integers.

A quantity is a signed decimal number with a suffix: binary (``Ki`` .. ``Ei``, powers of 1024),
decimal (``n u m k M G T P E``) or an exponent (``1e3``). It is an integer count of nano-units, so
comparisons and sums are exact; what is finer than a nano-unit is rounded away from zero. As in
Kubernetes, a number with a binary suffix is capped at 2**63 - 1, any other is not.

Parsing is memoised: a cluster has the same few hundred texts over and over. Source:
k8s.io/apimachinery/pkg/api/resource, documentation of ``Quantity``.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

NANO = 10**9
MAX_CAPPED = (2**63 - 1) * NANO
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_EXPONENT = 400
"""Larger exponents count as this one: no real amount is that large, and 1e1000000000 must not cost
a gigabyte."""
MAX_DIGITS = 4000
"""Digits of the largest number that is read. Sums of such numbers in nano-units can still be
written: Python converts integers of at most 4,300 digits to text."""
MAX_NANO = 10**MAX_DIGITS
"""Products of amounts count as this at most."""

_PATTERN = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*)([+-]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)


class QuantityError(ValueError):
    """A text is not a Kubernetes quantity; the message names the text."""


class QuantityFormat(enum.Enum):
    """The family of suffixes a quantity was written in, and is printed in."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; equal, ordered and hashed by its value, not by its spelling."""

    nano: int
    """The amount in units of 1e-9."""
    format: QuantityFormat = field(default=QuantityFormat.DECIMAL_SI, compare=False)
    scale: int | None = field(default=0, compare=False)
    """The power of ten at which Kubernetes keeps the amount in 64 bits; None where it does not."""

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nano, NANO)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nano, NANO // 1000)

    def as_float(self) -> float:
        """The nearest float, infinite where it exceeds the range of floats."""
        return ratio(self.nano, NANO)

    def is_integer(self) -> bool:
        """Whether the amount is a whole number of units."""
        return self.nano % NANO == 0

    def as_int64(self) -> int | None:
        """The whole units, None where Kubernetes does not find them: in ``1000m`` or ``1.5Gi``."""
        units = self.nano // NANO
        if self.scale is None or self.scale < 0 or not INT64_MIN <= units <= INT64_MAX:
            return None
        return units

    def __add__(self, other: Quantity) -> Quantity:
        first = self if self.nano else other
        return Quantity(self.nano + other.nano, first.format, _scale_of_sum(self, other))

    def __sub__(self, other: Quantity) -> Quantity:
        return self + -other

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format, self.scale)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        """The canonical form: the largest suffix that needs no fraction.

        A fraction has no binary suffix: it is printed in thousandths or finer.
        """
        if self.nano == 0:
            return "0"
        binary = self.format is QuantityFormat.BINARY_SI and self.is_integer()
        if binary and abs(self.nano) >= 1024 * NANO:
            return _canonical_binary(self.value())
        return _canonical_decimal(
            self.nano, exponent_form=self.format is QuantityFormat.DECIMAL_EXPONENT
        )


def ratio(amount: int, total: int) -> float:
    """``amount`` in terms of ``total``, above 0; infinite where it exceeds the range of floats."""
    try:
        return amount / total
    except OverflowError:
        return math.inf if amount > 0 else -math.inf


@lru_cache(maxsize=8192, typed=True)
def parse_quantity(value: str | int | float) -> Quantity:
    """Parse a quantity as in JSON: a text, or a bare number.

    :raises QuantityError: the value is not a quantity; the message quotes it.
    """
    if isinstance(value, bool):
        raise QuantityError(f"quantity {value!r}: is a boolean, want a number with a unit suffix")
    if isinstance(value, int):
        return Quantity(value * NANO)
    text = value.strip() if isinstance(value, str) else repr(value)
    match = _PATTERN.fullmatch(text)
    if match is None or not text:
        raise QuantityError(
            f"quantity {value!r}: quantities must match the regular expression "
            r"'^([+-]?[0-9.]+)([eEinumkKMGTP]*([-+]?[0-9]+)?)$'"
        )
    sign, whole, fraction, letters, exponent = match.groups(default="")
    # Without digits it is 0, except that Go has no fast path for the largest unit.
    is_empty = letters == "Ei" and not (whole or fraction)
    whole = whole.lstrip("0")
    if is_empty or len(whole) + len(fraction) > MAX_DIGITS:
        raise QuantityError(f"quantity {value!r}: unable to parse numeric part of quantity")
    magnitude, form = _magnitude(value, whole, fraction, letters, exponent)
    power = _DECIMAL.get(letters, 0) if not exponent else int(exponent[:12])
    scale = _scale(len(whole) or 1, len(fraction), power, _BINARY.get(letters))
    return Quantity(-magnitude if sign == "-" else magnitude, form, scale)


def _scale(digits: int, decimals: int, power: int, binary: int | None) -> int | None:
    """The scale at which Kubernetes keeps a parsed number in 64 bits, None if it does not."""
    if binary is None:
        scale = power - decimals
        return scale if digits + decimals <= 18 and scale >= -9 else None
    return 0 if not decimals and digits + binary * 3 // 10 <= 14 else None


def _scale_of_sum(left: Quantity, right: Quantity) -> int | None:
    if left.scale is None or right.scale is None:
        return None
    if not (left.nano and right.nano):
        return left.scale if left.nano or not right.nano else right.scale
    scale = min(left.scale, right.scale)
    unit = 10 ** (scale + 9)
    amounts = (left.nano // unit, right.nano // unit, (left.nano + right.nano) // unit)
    return scale if all(INT64_MIN <= amount <= INT64_MAX for amount in amounts) else None


def _magnitude(
    value: str | float, whole: str, fraction: str, letters: str, exponent: str
) -> tuple[int, QuantityFormat]:
    """Scale the digits by the suffix: nano-units, never negative, and the suffix family."""
    digits = int(whole + fraction or "0")
    if letters in _BINARY and not exponent:
        scaled = digits * NANO << _BINARY[letters]
        nano = -(-scaled // 10 ** len(fraction))
        # A fraction of one, like 0.5m, has no binary suffix to be printed with.
        small = 0 < nano < NANO
        return min(nano, MAX_CAPPED), (
            QuantityFormat.DECIMAL_SI if small else QuantityFormat.BINARY_SI
        )
    form = QuantityFormat.DECIMAL_SI
    if letters in ("e", "E") and exponent not in ("", "+", "-"):
        most = min(MAX_EXPONENT, MAX_DIGITS - len(whole))
        power = max(-4500, min(most, int(exponent[:12])))
        form = QuantityFormat.DECIMAL_EXPONENT
    elif letters in _DECIMAL and not exponent:
        power = _DECIMAL[letters]
    else:
        raise QuantityError(f"quantity {value!r}: unable to parse quantity's suffix")
    shift = power - len(fraction) + 9
    return digits * 10**shift if shift >= 0 else -(-digits // 10**-shift), form


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


def _canonical_binary(units: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIX) - 1 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _canonical_decimal(nano: int, *, exponent_form: bool) -> str:
    number, exponent = nano, -9
    while number % 1000 == 0 and (exponent_form or exponent < 18):
        number //= 1000
        exponent += 3
    if not exponent_form:
        return f"{number}{_DECIMAL_SUFFIX[exponent]}"
    return f"{number}e{exponent}" if exponent else str(number)
