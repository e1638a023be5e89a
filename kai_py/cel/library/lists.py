"""Lists and sets: Kubernetes' list library, cel-go's list and set extensions.

``includes`` also takes a single value, so that a selector stays valid when a driver turns a scalar
attribute into a list.

Source: k8s.io/apiserver/pkg/cel/library "Lists"; cel-go ``ext`` "Lists" version 3 and "Sets".
"""

import itertools
from collections.abc import Callable
from functools import cmp_to_key, reduce

from kai_py.cel import values
from kai_py.cel.functions import choose, declare, find, function
from kai_py.cel.library.operators import MAX_ELEMENTS
from kai_py.cel.values import CELRuntimeError, CostLimitError, Value

COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
SUMMABLE = ("int", "uint", "double", "duration")

List = tuple[Value, ...]


def is_sorted(elements: List) -> bool:
    """Whether no element is smaller than the one before it."""
    _require("isSorted", elements, COMPARABLE)
    return all(_compare(*pair) <= 0 for pair in itertools.pairwise(elements))


def smallest(elements: List) -> Value:
    """The minimum."""
    return _extreme("min", elements, -1)


def largest(elements: List) -> Value:
    """The maximum."""
    return _extreme("max", elements, 1)


def total(elements: List) -> Value:
    """The sum of all elements; 0 for an empty list."""
    _require("sum", elements, SUMMABLE)
    if not elements:
        return 0
    return reduce(_add, elements)


def _extreme(name: str, elements: List, wanted: int) -> Value:
    if not elements:
        raise CELRuntimeError(f"{name} called on empty list")
    _require(name, elements, COMPARABLE)
    found = elements[0]
    for element in elements[1:]:
        if _compare(element, found) == wanted:
            found = element
    return found


def _require(name: str, elements: List, kinds: tuple[str, ...]) -> None:
    """Check the first element of a list whose type is known only now; the others are alike."""
    if elements and not _is_one_of(elements[0], kinds):
        raise CELRuntimeError(f"no such overload: {name}(list)")


def _is_one_of(value: Value, kinds: tuple[str, ...]) -> bool:
    return values.kind_of(value).rpartition(".")[2].lower() in kinds


def _compare(left: Value, right: Value) -> int:
    """Compare two elements; NaN counts as equal to all others, though ``<`` fails."""
    if values.is_nan(left) or values.is_nan(right):
        return 0
    return values.compare(left, right)


def _add(left: Value, right: Value) -> Value:
    addition = find("_+_", method=False)
    assert addition is not None
    implementation = choose(addition, (left, right))
    if implementation is None:
        raise CELRuntimeError("no such overload")
    return implementation(left, right)


@function("list(A).indexOf(A) -> int")
def index_of(elements: List, wanted: Value) -> int:
    """The first index of an equal element, or -1."""
    indexes = (index for index, element in enumerate(elements) if values.equal(element, wanted))
    return next(indexes, -1)


@function("list(A).lastIndexOf(A) -> int")
def last_index_of(elements: List, wanted: Value) -> int:
    """The last index of an equal element, or -1."""
    return max(
        (index for index, element in enumerate(elements) if values.equal(element, wanted)),
        default=-1,
    )


@function("dyn.includes(dyn) -> bool")
def includes(target: Value, wanted: Value) -> bool:
    """Whether a list has an equal element, or whether a single value is equal."""
    if isinstance(target, tuple):
        return any(values.equal(element, wanted) for element in target)
    return values.equal(target, wanted)


@function("list(A).slice(int, int) -> list(A)")
def cut(elements: List, start: int, end: int) -> List:
    """The elements from ``start`` up to ``end``."""
    if start < 0 or end < 0:
        raise CELRuntimeError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CELRuntimeError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(elements):
        raise CELRuntimeError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return tuple(elements[start:end])


@function("list(list(A)).flatten() -> list(A)", "list(dyn).flatten(int) -> list(dyn)")
def flatten(elements: List, depth: int = 1) -> List:
    """Unpack nested lists, ``depth`` levels of them."""
    if depth < 0:
        raise CELRuntimeError("level must be non-negative")
    flat: list[Value] = []
    for element in elements:
        inner = isinstance(element, tuple) and depth > 0
        flat.extend(flatten(element, depth - 1) if inner else (element,))
    return tuple(flat)


@function("list(A).distinct() -> list(A)")
def distinct(elements: List) -> List:
    """The first of each set of equal elements."""
    unique: list[Value] = []
    for element in elements:
        if not any(values.equal(element, other) for other in unique):
            unique.append(element)
    return tuple(unique)


@function("list(A).reverse() -> list(A)")
def reverse(elements: List) -> List:
    """The elements from last to first."""
    return tuple(reversed(elements))


_ORDERED = cmp_to_key(_compare)


def sort(elements: List) -> List:
    """Sort comparable elements of one type."""
    return _sorted(elements, elements)


def sort_by_keys(elements: List, keys: List) -> List:
    """Sort elements by the associated keys."""
    return _sorted(elements, keys)


def _sorted(elements: List, keys: List) -> List:
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CELRuntimeError("list elements must have the same type")
    if keys and not _is_one_of(keys[0], COMPARABLE):
        raise CELRuntimeError("list elements must be comparable")
    order = sorted(range(len(keys)), key=lambda index: _ORDERED(keys[index]))
    return tuple(elements[index] for index in order)


@function("'lists.range'(int) -> list(int)")
def number_range(count: int) -> List:
    """The integers 0, 1 .. count - 1."""
    if count < 0:
        raise CELRuntimeError(f"lists.range: size must be non-negative, got {count}")
    if count > MAX_ELEMENTS:
        raise CostLimitError
    return tuple(range(count))


@function("'sets.contains'(list(A), list(A)) -> bool")
def set_contains(elements: List, wanted: List) -> bool:
    """Whether ``elements`` has all of ``wanted``."""
    return all(includes(elements, element) for element in wanted)


@function("'sets.intersects'(list(A), list(A)) -> bool")
def set_intersects(left: List, right: List) -> bool:
    """Whether any element is in both."""
    return any(includes(right, element) for element in left)


@function("'sets.equivalent'(list(A), list(A)) -> bool")
def set_equivalent(left: List, right: List) -> bool:
    """Whether each contains the other."""
    return set_contains(left, right) and set_contains(right, left)


_TEMPLATES: dict[str, tuple[str, Callable[[List], Value]]] = {
    "isSorted": ("bool", is_sorted),
    "min": ("", smallest),
    "max": ("", largest),
    "sort": ("list", sort),
}


def _register() -> None:
    for name, (result, implementation) in _TEMPLATES.items():
        for kind in COMPARABLE:
            given = {"": kind, "list": f"list({kind})"}.get(result, result)
            declare(f"list({kind}).{name}() -> {given}", implementation)
    for kind in COMPARABLE:
        declare(f"list(A).@sortByAssociatedKeys(list({kind})) -> list(A)", sort_by_keys)
    for kind in SUMMABLE:
        declare(f"list({kind}).sum() -> {kind}", total)


_register()
