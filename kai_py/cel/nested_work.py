"""The work of calls that Kubernetes' cost leaves out: what is nested in lists, and their copies.

A list may hold the same list many times, so thirty of them, each with the former twice, have 2**30
elements. Comparing or printing these costs 1, and so does joining two lists of any length. Such
work is counted beside the cost, in the same unit, as the API server does not count it. An
evaluation with more of it than the cost limit fails as one that costs too much.
"""

from collections.abc import Callable

from kai_py.cel.values import Optional, Uint, Value

Args = tuple[Value, ...]
Work = Callable[[Args], int]

COPIES_PER_UNIT = 16
"""Elements of lists that are copied: for their memory, too, which is eight bytes each."""
SCALARS = frozenset((bool, int, Uint, float, type(None)))
COMPARED_TEXT, PRINTED_TEXT = 1024, 8
"""Characters of a text that take as long as an element, which is a unit."""


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
    """The weight of a value but for what its length says."""
    if isinstance(value, tuple | dict):
        return max(0, weight(value) - len(value) - 1)
    return weight(value.value) if type(value) is Optional else 0


def _comparison(args: Args) -> int:
    return min(map(_nested, args))


def _search(args: Args) -> int:
    return _nested(args[0])


def _membership(args: Args) -> int:
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
    "@in": _membership,
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
"""By the key of the function in the registry."""
