"""Capacity of a shareable device that a request consumes (KEP-5075).

For every capacity of the device, in nano-units:

    not requested             the policy's default, or the whole value without one
    requested, no policy      as requested
    requested, valid range    at least min; with a step: min + ceil((requested - min) / step) * step
    requested, valid values   the smallest valid value that is enough, else as requested

A device that is not shareable has to satisfy the same, but consumes nothing. The device is
rejected when it lacks a requested capacity (names are compared as written), when the
result breaks the policy (above max, off step, no valid value; the default itself is always valid)
or when it exceeds what is left. Kubernetes computes ranges in int64 of thousandths where the whole
range can be written in them, else of whole units; a request that does not fit is an error, not a
rejection.
"""

from collections.abc import Mapping

from msgspec import Struct

from kai_py.api.quantity import NANO, Quantity, QuantityFormat, parse_quantity
from kai_py.api.records.record import QuantityText
from kai_py.api.records.resource import CapacityRequestPolicy, DeviceCapacity
from kai_py.dra.identity import AllocationError

MAX_INT64 = 2**63 - 1
MILLI = NANO // 1000

ConsumedCapacity = tuple[tuple[str, int], ...]
"""Capacity names with nano-units, in the order of the device's capacities."""


class ValidRange(Struct, frozen=True):
    """A policy's range in nano-units."""

    min: int
    max: int | None
    step: int | None


class ParsedCapacity(Struct, frozen=True):
    """One capacity of a device with its policy, parsed; amounts in nano-units."""

    name: str
    value: int
    format: QuantityFormat
    default: int | None = None
    range: ValidRange | None = None
    valid_values: tuple[int, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether a request that names no amount may be rejected."""
        return self.default is not None or self.range is not None or bool(self.valid_values)


def parse_capacity(name: str, capacity: DeviceCapacity) -> ParsedCapacity:
    """Parse the quantities of a capacity.

    :raises QuantityError: one of them is no quantity.
    """
    value = parse_quantity(capacity.value)
    policy = capacity.request_policy or CapacityRequestPolicy()
    return ParsedCapacity(
        name=name,
        value=value.nano,
        format=value.format,
        default=None if policy.default is None else parse_quantity(policy.default).nano,
        range=_parse_range(policy),
        valid_values=tuple(parse_quantity(valid).nano for valid in policy.valid_values),
    )


def consumed_capacity(
    capacities: tuple[ParsedCapacity, ...], requested: Mapping[str, int], *, fractional: bool
) -> ConsumedCapacity | None:
    """What a request consumes of each capacity of a device, or None where it is rejected.

    :raises AllocationError: an amount is negative or too large for the range's arithmetic.
    """
    if any(name not in {capacity.name for capacity in capacities} for name in requested):
        return None
    amounts = [
        _consumed(capacity, requested.get(capacity.name), fractional=fractional)
        for capacity in capacities
    ]
    for capacity, amount in zip(capacities, amounts, strict=True):
        if _breaks_policy(amount, capacity, fractional=fractional) or amount > capacity.value:
            return None
    names = (capacity.name for capacity in capacities)
    return tuple(zip(names, amounts, strict=True))


def format_amount(published: DeviceCapacity, requested: QuantityText | None, amount: int) -> str:
    """Format a consumed amount in the suffix family of what it was taken from.

    That is what was requested, or the default, the value or the part of the policy that replaced
    it.
    """
    source = _source(published, requested, amount)
    return str(Quantity(amount, parse_quantity(source).format))


def _source(published: DeviceCapacity, requested: QuantityText | None, amount: int) -> QuantityText:
    policy = published.request_policy or CapacityRequestPolicy()
    if requested is None:
        return published.value if policy.default is None else policy.default
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        if parse_quantity(requested) < parse_quantity(valid.min):
            return valid.min
        return requested if valid.step is None else valid.step
    matching = (each for each in policy.valid_values if parse_quantity(each).nano == amount)
    return next(matching, requested)


def _parse_range(policy: CapacityRequestPolicy) -> ValidRange | None:
    if policy.valid_range is None or policy.valid_range.min is None:
        return None
    valid = policy.valid_range
    step = 0 if valid.step is None else parse_quantity(valid.step).nano
    return ValidRange(
        min=parse_quantity(valid.min or 0).nano,
        max=None if valid.max is None else parse_quantity(valid.max).nano,
        step=step if step > 0 else None,
    )


def _consumed(capacity: ParsedCapacity, requested: int | None, *, fractional: bool) -> int:
    amount = _adjusted(capacity, requested, fractional=fractional)
    if amount < 0:
        raise AllocationError(f'capacity "{capacity.name}": capacity value is negative')
    return amount


def _adjusted(capacity: ParsedCapacity, requested: int | None, *, fractional: bool) -> int:
    if requested is None:
        return capacity.value if capacity.default is None else capacity.default
    if capacity.range is not None:
        return _round_up(capacity.name, requested, capacity.range, fractional=fractional)
    return min((valid for valid in capacity.valid_values if valid >= requested), default=requested)


def _round_up(name: str, requested: int, valid: ValidRange, *, fractional: bool) -> int:
    if requested < valid.min:
        return valid.min
    if valid.step is None:
        return requested
    unit = _range_unit(valid, fractional=fractional)
    request, in_milli = f"request {Quantity(requested)}", unit == MILLI
    if not _is_representable(requested, unit):
        reason = "is not a representable milli value" if in_milli else "exceeds MaxInt64"
        raise _out_of_range(name, f"{request} {reason}")
    amount, least, step = (_to_units(nano, unit) for nano in (requested, valid.min, valid.step))
    rounded = least + -(-(amount - least) // step) * step
    if rounded > MAX_INT64:
        limit = "the milli-value range" if in_milli else "MaxInt64"
        raise _out_of_range(name, f"rounding {request} up to the next step passes {limit}")
    return rounded * unit


def _out_of_range(name: str, detail: str) -> AllocationError:
    return AllocationError(
        f'capacity "{name}": capacity request cannot be represented in the device\'s range '
        f"arithmetic: {detail}"
    )


def _breaks_policy(amount: int, capacity: ParsedCapacity, *, fractional: bool) -> bool:
    if capacity.default is not None and amount == capacity.default:
        return False
    if capacity.range is not None:
        return _breaks_range(amount, capacity.range, fractional=fractional)
    return bool(capacity.valid_values) and amount not in capacity.valid_values


def _breaks_range(amount: int, valid: ValidRange, *, fractional: bool) -> bool:
    if valid.max is not None and amount > valid.max:
        return True
    if valid.step is None:
        return False
    unit = _range_unit(valid, fractional=fractional)
    if not _is_representable(amount, unit):
        return True
    return (_to_units(amount, unit) - _to_units(valid.min, unit)) % _to_units(valid.step, unit) != 0


def _range_unit(valid: ValidRange, *, fractional: bool) -> int:
    """The unit of range arithmetic, in nano-units."""
    amounts = (valid.min, valid.max or 0, valid.step or NANO)
    in_milli = fractional and all(_is_representable(nano, MILLI) for nano in amounts)
    return MILLI if in_milli else NANO


def _is_representable(nano: int, unit: int) -> bool:
    """Whether the amount fits in 64 bits of the unit; it is only rounded to whole units."""
    return nano <= MAX_INT64 * unit and (unit == NANO or nano % unit == 0)


def _to_units(nano: int, unit: int) -> int:
    return -(-nano // unit)
