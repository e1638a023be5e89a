"""The maximum cost of one call, and the size of its result, from the sizes of its arguments.

Sizes of strings, lists and maps are ranges, as far as they are known before evaluation.

Source: cel-go ``checker`` cost estimation; k8s.io/apiserver/pkg/cel/library ``CostEstimator``.
"""

import math
from collections.abc import Callable

from msgspec import Struct

from kai_py.cel.actual_cost import NEW_LIST, PATTERN, TEXT
from kai_py.cel.functions import Overload
from kai_py.cel.syntax import Literal, Node
from kai_py.cel.types import Type
from kai_py.cel.values import UINT_MAX

SCALARS = frozenset(
    {"bool", "int", "uint", "double", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
Path = tuple[str, ...]
"""A variable and the path below it: fields, ``@items``, ``@keys``, ``@values``, ``@indices``."""


class Size(Struct, frozen=True):
    """The minimum and the maximum length of a string, list or map."""

    least: int
    most: int

    def __add__(self, other: "Size") -> "Size":
        return Size(capped(self.least + other.least), capped(self.most + other.most))

    def __mul__(self, other: "Size") -> "Size":
        return Size(capped(self.least * other.least), capped(self.most * other.most))

    def __or__(self, other: "Size") -> "Size":
        return Size(min(self.least, other.least), max(self.most, other.most))

    def cost(self, factor: float = TEXT) -> int:
        """The maximum cost of traversing it."""
        return scaled(self.most, factor)


UNKNOWN, ONE = Size(0, UINT_MAX), Size(1, 1)
Limits = Callable[[Path], Size | None]
"""Returns the size of the value at a path, if it is limited."""


def capped(number: int) -> int:
    """``number``, at most 2**64 - 1."""
    return min(number, UINT_MAX)


def scaled(number: int, factor: float) -> int:
    """``number`` times ``factor``, rounded up, at most 2**64 - 1."""
    product = float(number) * factor
    return UINT_MAX if product >= 2.0**64 else math.ceil(product)


def is_scalar(type_: Type) -> bool:
    """Whether values of a type have the size 1."""
    if type_.name == "optional_type":
        return is_scalar(type_.params[0])
    return type_.name in SCALARS


def union(sizes: list[Size]) -> Size:
    """A size that covers all ``sizes``."""
    return Size(min(size.least for size in sizes), max(size.most for size in sizes))


class Request(Struct, frozen=True):
    """One overload of a call to estimate; a method's receiver is argument 0."""

    nodes: tuple[Node, ...]
    types: tuple[Type, ...]
    sizes: tuple[Size, ...]
    overload: Overload
    element_size: Size
    """The size of the elements of argument 0, if it is a list."""

    @property
    def kind(self) -> str:
        """The type name of the overload's first parameter."""
        return self.overload.params[0].name


Estimate = tuple[int, Size | None]
FORMAT_LENGTH = 64
"""The length of the longest name of a format."""
FORMAT_PATTERN = 128
"""The length that is assumed of a format's regular expression."""
_OPAQUE = frozenset({"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"})


def _equality(request: Request) -> Estimate:
    left, right = request.types
    if left == right and left.name in _OPAQUE:
        return 1, None
    if left == right and left.name == "kubernetes.NamedFormat":
        return scaled(FORMAT_LENGTH, TEXT), None
    return _comparison(request)


def _comparison(request: Request) -> Estimate:
    if not request.overload.params[0].variable and request.kind not in {"string", "bytes"}:
        return 1, None
    most = min(size.most for size in request.sizes)
    return scaled(most, TEXT), None


def _sum(request: Request) -> Estimate:
    joined = request.sizes[0] + request.sizes[1]
    if request.kind in {"string", "bytes"}:
        return joined.cost(), joined
    if request.kind != "list":
        return 1, None
    return 1, joined


def _membership(request: Request) -> Estimate:
    is_list = request.overload.params[1].name == "list"
    return (request.sizes[1].cost(1) if is_list else 1), None


def _argument(request: Request) -> Estimate:
    return request.sizes[1].cost(), None


def _part(request: Request) -> Estimate:
    return capped(request.sizes[0].cost() * request.sizes[1].cost()), None


def _pattern(request: Request) -> Estimate:
    text = (request.sizes[0] + ONE).cost()
    pattern = request.sizes[1].cost(PATTERN)
    return capped(text * pattern), Size(0, request.sizes[0].most)


def _text(request: Request) -> Estimate:
    return request.sizes[0].cost(), request.sizes[0]


def _conversion(request: Request) -> Estimate:
    size = request.sizes[0]
    if request.kind == "string" and request.overload.result.name == "bytes":
        return size.cost(), Size(size.least, capped(size.most * 4))
    if request.kind == "bytes" and request.overload.result.name == "string":
        return size.cost(), Size(size.least // 4, size.most)
    return 1, None


def _format(request: Request) -> Estimate:
    return request.sizes[0].cost(), None


def _parsed(request: Request) -> Estimate:
    return (request.sizes[0].cost() if request.kind != "net.CIDR" else 1), None


def _quote(request: Request) -> Estimate:
    """Each character may be escaped; there are always two quotes."""
    size = request.sizes[0]
    return size.cost(), Size(capped(size.least + 2), capped(size.most * 2 + 2))


def _parsed_twice(request: Request) -> Estimate:
    return request.sizes[0].cost(2 * TEXT), None


def _validated(request: Request) -> Estimate:
    return scaled(request.sizes[1].cost(), FORMAT_PATTERN * PATTERN), None


def _replace(request: Request) -> Estimate:
    """The text that stays, and the replacements."""
    size, old, new = request.sizes[:3]
    most, most_kept = _replaced(size.most, old.least, keeps_length=new.most <= old.least)
    least, least_kept = _replaced(size.least, old.most, keeps_length=old.most <= new.least)
    return size.cost(2 * TEXT), Size(least, most) * new + Size(least_kept, most_kept)


def _replaced(length: int, part: int, *, keeps_length: bool) -> tuple[int, int]:
    """How often a part is replaced in a text, and how much of the text stays.

    An empty part is found around each character. ``keeps_length``: no replacement makes the text
    longer, for its greatest length, or shorter, for its least one.
    """
    if part == 0:
        return capped(length + 1), length
    if keeps_length:
        return 0, length
    return capped(math.ceil(length / part)), 0


def _split(request: Request) -> Estimate:
    size = request.sizes[0]
    most = size.most
    if len(request.nodes) > 2 and isinstance(request.nodes[2], Literal):
        limit = request.nodes[2].value
        most = limit if isinstance(limit, int) and limit >= 0 else UINT_MAX
    return size.cost(2 * TEXT), Size(0, most)


def _join(request: Request) -> Estimate:
    size = request.sizes[0] * request.element_size if request.types[0].params else Size(0, 0)
    if len(request.sizes) > 1:
        count = request.sizes[0]
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size + request.sizes[1] * between
    return size.cost(), size


def _each_element(request: Request) -> Estimate:
    target = request.types[0]
    if not target.params:
        return request.sizes[0].cost(), None
    each = 1
    if target.params[0].name in {"string", "bytes"}:
        each += request.element_size.cost()
    return capped(request.sizes[0].most * each), None


def _new_list(size: Size, factor: float = 1.0) -> Estimate:
    return capped(scaled(size.most, factor) + NEW_LIST + 1), size


def _number(node: Node, default: int) -> int:
    """The value of a literal, 0 if it is negative."""
    if isinstance(node, Literal) and isinstance(node.value, int):
        return max(node.value, 0)
    return default


def _slice(request: Request) -> Estimate:
    start = _number(request.nodes[1], 0)
    length = (_number(request.nodes[2], request.sizes[0].most) - start) % (UINT_MAX + 1)
    return _new_list(Size(length, length))


def _range(request: Request) -> Estimate:
    length = _number(request.nodes[0], UINT_MAX)
    return _new_list(Size(length, length))


def _reverse(request: Request) -> Estimate:
    return _new_list(request.sizes[0])


def _flatten(request: Request) -> Estimate:
    depth = _number(request.nodes[1], UINT_MAX) if len(request.nodes) > 1 else 1
    return _new_list(request.sizes[0], depth)


def _distinct(request: Request) -> Estimate:
    return _new_list(request.sizes[0] * request.sizes[0], 2)


def _sort(request: Request) -> Estimate:
    """Each element, or each key, may be compared with each other."""
    declared, found = request.overload.params[-1], request.types[-1]
    key = found if declared.params[0].variable else declared
    is_text = not key.params or key.params[0].dynamic or key.params[0].name in {"string", "bytes"}
    return _new_list(request.sizes[-1] * request.sizes[-1], 2 + TEXT * is_text)


def _includes(request: Request) -> Estimate:
    if not request.types[0].params:
        return request.sizes[0].most, None
    return _each_element(request)


def _pairs(request: Request) -> Estimate:
    return capped(request.sizes[0].most * request.sizes[1].most + 1), None


def _pairs_twice(request: Request) -> Estimate:
    return capped(request.sizes[0].most * request.sizes[1].most * 2 + 1), None


def _contains_ip(request: Request) -> Estimate:
    extra = request.sizes[1].cost() if request.overload.params[1].name == "string" else 0
    return capped(4 + extra), None


def _contains_cidr(request: Request) -> Estimate:
    cost, _ = _contains_ip(request)
    return capped(cost + 3), None


ESTIMATES: dict[str, Callable[[Request], Estimate]] = {
    **dict.fromkeys(("_!=_", "_<_", "_<=_", "_>_", "_>=_"), _comparison),
    "_==_": _equality,
    "_+_": _sum,
    "@in": _membership,
    **dict.fromkeys(("startsWith", "endsWith"), _argument),
    "contains": _part,
    **dict.fromkeys(("matches", "find", "findAll"), _pattern),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "url"), _text),
    **dict.fromkeys(("bytes", "string"), _conversion),
    "format": _format,
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _each_element),
    "includes": _includes,
    **dict.fromkeys(("sets.contains", "sets.intersects"), _pairs),
    "sets.equivalent": _pairs_twice,
    **dict.fromkeys(
        ("quantity", "isQuantity", "semver", "isSemver", "ip", "isIP", "cidr", "isCIDR"), _parsed
    ),
    "strings.quote": _quote,
    "ip.isCanonical": _parsed_twice,
    "validate": _validated,
    "slice": _slice,
    "lists.range": _range,
    "reverse": _reverse,
    "flatten": _flatten,
    "distinct": _distinct,
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), _sort),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
}
