"""Optional values: ``a.?b``, ``orValue``, ``hasValue``.

Source: cel-go "OptionalTypes"; Kubernetes enables version 2 (``first`` and ``last`` in ``lists``).
"""

from kai_py.cel import values
from kai_py.cel.functions import function
from kai_py.cel.library.operators import MIN_TIMESTAMP
from kai_py.cel.values import NONE, CELRuntimeError, Duration, Optional, Timestamp, Value


@function("'optional.of'(A) -> optional(A)")
def of(value: Value) -> Optional:
    """Wrap a value."""
    return Optional(present=True, value=value)


@function("'optional.none'() -> optional(A)")
def none() -> Optional:
    """The absent value."""
    return NONE


@function("'optional.ofNonZeroValue'(A) -> optional(A)")
def of_non_zero(value: Value) -> Optional:
    """Wrap a value unless it is null, empty, false or zero, as the year 1 is of timestamps."""
    is_zero = value in (None, Duration(0), Timestamp(MIN_TIMESTAMP)) or (
        isinstance(value, bool | int | float | str | bytes | tuple | dict) and not value
    )
    return NONE if is_zero else of(value)


@function("optional(A).hasValue() -> bool")
def has_value(optional: Optional) -> bool:
    """Whether there is a value."""
    return optional.present


@function("optional(A).value() -> A")
def value(optional: Optional) -> Value:
    """The value."""
    if not optional.present:
        raise CELRuntimeError("optional.none() dereference")
    return optional.value


@function("'optional.unwrap'(list(optional(A))) -> list(A)",
          "list(optional(A)).unwrapOpt() -> list(A)")  # fmt: skip
def unwrap(optionals: tuple[Optional, ...]) -> tuple[Value, ...]:
    """The values that are present."""
    if not all(isinstance(element, Optional) for element in optionals):
        raise CELRuntimeError("no such overload")
    return tuple(element.value for element in optionals if element.present)


@function("list(A).first() -> optional(A)")
def first(elements: tuple[Value, ...]) -> Optional:
    """The first element, if any."""
    return values.optional_index(elements, 0)


@function("list(A).last() -> optional(A)")
def last(elements: tuple[Value, ...]) -> Optional:
    """The last element, if any."""
    return values.optional_index(elements, len(elements) - 1)


@function("optional(A).or(optional(A)) -> optional(A)")
def either(optional: Optional, other: Optional) -> Optional:
    """The first that has a value; the evaluator computes the other only if needed."""
    return optional if optional.present else other


@function("optional(A).orValue(A) -> A")
def or_value(optional: Optional, other: Value) -> Value:
    """The value, or the other one, which the evaluator computes only if needed."""
    return optional.value if optional.present else other
