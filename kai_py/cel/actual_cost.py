"""The actual cost of calls, counted during evaluation, and the work that this cost leaves out.

Cost is counted in the API server's units: 1 for reading a variable, a field or calling a plain
function; by the size of the arguments where the work grows with them. The limit stops expressions
that would take too long; below it the count has no effect.

Kubernetes' cost leaves out what is nested in lists, and their copies. A list may hold the same list
many times, so thirty of them, each with the former twice, have 2**30 elements. Comparing or
printing these costs 1, and so does joining two lists of any length. Such work is counted beside the
cost, in the same unit, as the API server does not count it. An evaluation with more of it than the
cost limit fails as one that costs too much.

Source: cel-go ``interpreter`` cost tracking; k8s.io/apiserver/pkg/cel/library ``CostEstimator``.
"""

import math
from collections.abc import Callable
from itertools import product

from kai_py.cel.values import Optional, Uint, Value, size_of

LIMIT = 1_000_000
TEXT, PATTERN = 0.1, 0.25
NEW_LIST, NEW_MAP = 10, 30
SCALAR_PAIRS = frozenset(product((bool, int, Uint, float), repeat=2))
"""Classes of two arguments without a size: a call with them costs 1, whatever it calls."""
PLAIN_PAIRS = SCALAR_PAIRS | {(str, str)}
"""Classes of two arguments in which nothing is nested."""
COPIES_PER_UNIT = 16
"""Copied elements of lists that count as a unit, for their memory too: eight bytes each."""
SCALARS = frozenset((bool, int, Uint, float, type(None)))
COMPARED_TEXT, PRINTED_TEXT = 1024, 8
"""Characters of a text that take as long as an element, which counts as a unit."""

Args = tuple[Value, ...]
CallCost = Callable[[Args], int]
Work = Callable[[Args], int]


def text_cost(size: float) -> int:
    """The cost of reading ``size`` characters."""
    return math.ceil(size * TEXT)


def smaller_size(args: Args) -> int:
    """The cost of a comparison, by the smaller of both sizes."""
    return text_cost(min(size_of(args[0]), size_of(args[1])))


def traversal(value: Value) -> int:
    """The cost of visiting everything inside a value; O(distinct lists and maps in it)."""
    return _traversal(value, {})


def _traversal(value: Value, known: dict[int, int]) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * TEXT)
    if isinstance(value, bytes):
        return int(len(value) * TEXT)
    if not isinstance(value, tuple | dict):
        return 1
    found = known.get(id(value))
    if found is None:
        parts = value if isinstance(value, tuple) else (*value, *value.values())
        found = known[id(value)] = sum(_traversal(part, known) for part in parts)
    return found


def _first(args: Args) -> int:
    return text_cost(size_of(args[0])) if isinstance(args[0], str | bytes) else 1


def _second(args: Args) -> int:
    return text_cost(size_of(args[1]))


def _first_twice(args: Args) -> int:
    return text_cost(size_of(args[0]) * 2)


def _everything(args: Args) -> int:
    return traversal(args[0])


def _pattern(args: Args) -> int:
    return text_cost(1 + size_of(args[0])) * math.ceil(size_of(args[1]) * PATTERN)


def _format(args: Args) -> int:
    return int(text_cost(1 + size_of(args[1])) * args[0].cost)


def _sum(args: Args) -> int:
    if isinstance(args[0], str | bytes):
        return text_cost(size_of(args[0]) + size_of(args[1]))
    return 1


def _part(args: Args) -> int:
    return text_cost(size_of(args[0])) * text_cost(size_of(args[1]))


def _membership(args: Args) -> int:
    return size_of(args[1]) if isinstance(args[1], tuple) else 1


def _join(args: Args) -> int:
    separator = size_of(args[1]) if len(args) > 1 else 0
    parts = args[0]
    return text_cost((sum(map(size_of, parts)) + separator * max(len(parts) - 1, 0)) * 2)


def _pairs(args: Args) -> int:
    return size_of(args[0]) * size_of(args[1]) + 1


def _new_list(size: float) -> int:
    return int(size) + 1 + NEW_LIST


def _compared(elements: Value) -> int:
    """The cost of comparing all elements with each other."""
    is_text = bool(elements) and isinstance(elements[0], str | bytes)
    return _new_list(len(elements) ** 2 * (2 + TEXT * is_text))


def _prefix_bytes(value: Value) -> int:
    return math.ceil(getattr(value, "length", 0) / 8)


def _contains_ip(args: Args) -> int:
    extra = text_cost(len(args[1])) if isinstance(args[1], str) else 0
    return text_cost(2 * _prefix_bytes(args[0])) + extra


def _contains_cidr(args: Args) -> int:
    return _contains_ip(args) + text_cost(_prefix_bytes(args[0])) + 1


CALL_COSTS: dict[str, CallCost] = {
    "_+_": _sum,
    "_==_": smaller_size,
    "_!=_": smaller_size,
    "_<_": smaller_size,
    "_<=_": smaller_size,
    "_>_": smaller_size,
    "_>=_": smaller_size,
    "@in": _membership,
    ".contains": _part,
    ".startsWith": _second,
    ".endsWith": _second,
    ".matches": _pattern,
    "matches": _pattern,
    ".find": _pattern,
    ".findAll": _pattern,
    ".validate": _format,
    ".replace": _first_twice,
    ".split": _first_twice,
    ".join": _join,
    "ip.isCanonical": _first_twice,
    "sets.contains": _pairs,
    "sets.intersects": _pairs,
    "sets.equivalent": lambda args: _pairs(args) * 2 - 1,
    ".containsIP": _contains_ip,
    ".containsCIDR": _contains_cidr,
    ".distinct": lambda args: _compared(args[0]),
    ".sort": lambda args: _compared(args[0]),
    ".@sortByAssociatedKeys": lambda args: _compared(args[1]),
    "lists.range": lambda args: _new_list(max(args[0], 0)),
    ".slice": lambda args: _new_list(min(max(args[2] - args[1], 0), len(args[0]))),
    ".reverse": lambda args: _new_list(len(args[0])),
    ".flatten": lambda args: _new_list(len(args[0]) * (max(args[1], 0) if len(args) > 1 else 1)),
    **dict.fromkeys(
        (".lowerAscii", ".upperAscii", ".substring", ".trim",
         ".format", "quantity", "isQuantity", "semver", "isSemver", "url", "cidr", "isIP",
         "isCIDR", "ip", "bytes", "string", "strings.quote"),
        _first,
    ),
    **dict.fromkeys(
        (".isSorted", ".sum", ".min", ".max", ".indexOf", ".lastIndexOf", ".includes"),
        _everything,
    ),
}  # fmt: skip
"""Costs other than 1, by the key of the function in the registry."""

BY_OVERLOAD = frozenset(
    {"_+_", "_<_", "_<=_", "_>_", "_>=_", "@in", "startsWith", "endsWith", "contains", "matches",
     "bytes", "string", "sort", "@sortByAssociatedKeys"}
)  # fmt: skip
"""Functions whose cost depends on the overload: 1 where the checker left several possible."""


def weight(value: Value, text: int = COMPARED_TEXT) -> int:
    """The elements of a value, those of the lists and maps in it included, and the value itself.

    ``text``: characters that count as an element. O(distinct lists and maps in it).
    """
    return _weight(value, text, {})


def _weight(value: Value, text: int, known: dict[int, int]) -> int:
    if isinstance(value, str | bytes):
        return 1 + len(value) // text
    if type(value) is Optional:
        return 1 + _weight(value.value, text, known)
    if not isinstance(value, tuple | dict):
        return 1
    found = known.get(id(value))
    if found is None:
        parts = value if isinstance(value, tuple) else (*value, *value.values())
        found = known[id(value)] = 1 + _weight_of_parts(parts, text, known)
    return found


def _weight_of_parts(parts: tuple[Value, ...], text: int, known: dict[int, int]) -> int:
    kinds = set(map(type, parts))
    if kinds <= SCALARS:
        return len(parts)
    if kinds == {str}:
        return len(parts) + sum(map(len, parts)) // text
    return sum(_weight(part, text, known) for part in parts)


def _nested(value: Value) -> int:
    """The weight of a value without its own elements, which its length counts."""
    if isinstance(value, tuple | dict):
        return max(0, weight(value) - len(value) - 1)
    return weight(value.value) if type(value) is Optional else 0


def _comparison(args: Args) -> int:
    return min(map(_nested, args))


def _search(args: Args) -> int:
    return _nested(args[0])


def _nested_membership(args: Args) -> int:
    return _nested(args[1]) if isinstance(args[1], tuple) else 0


def _all_pairs(args: Args) -> int:
    return len(args[0]) * _nested(args[-1])


def _unpacking(args: Args) -> int:
    return weight(args[0])


def _printing(args: Args) -> int:
    return weight(args[1], PRINTED_TEXT)


def _joining(args: Args) -> int:
    if not isinstance(args[0], tuple):
        return 0
    return (len(args[0]) + len(args[1])) // COPIES_PER_UNIT


NESTED_WORK: dict[str, Work] = {
    "_+_": _joining,
    "_==_": _comparison,
    "_!=_": _comparison,
    "@in": _nested_membership,
    ".indexOf": _search,
    ".lastIndexOf": _search,
    ".includes": _search,
    ".distinct": _all_pairs,
    "sets.contains": _all_pairs,
    "sets.intersects": _all_pairs,
    "sets.equivalent": _all_pairs,
    ".flatten": _unpacking,
    ".format": _printing,
}
"""Work that the cost leaves out, by the key of the function in the registry."""
