"""What can an expression cost at worst? The static estimate the API server makes at admission.

The cost of a node is what its parts cost plus its own; of a loop, the cost of one round times the
largest possible number of elements. Sizes come from literals, from the limits of a device's fields
(``_LIMITS``) and from the functions that make texts and lists out of others; a size nobody knows is
2**64 - 1. Above ``LIMIT`` Kubernetes refuses a selector.

Source: cel-go ``checker`` cost estimation; k8s.io/apiserver/pkg/cel/library ``CostEstimator``;
limits of resource.k8s.io/v1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kai_py.dra.cel.charge import NEW_LIST, NEW_MAP, PATTERN, TEXT
from kai_py.dra.cel.check import Checked
from kai_py.dra.cel.functions import Overload
from kai_py.dra.cel.syntax import (
    Bind,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
)
from kai_py.dra.cel.types import Type
from kai_py.dra.cel.values import UINT_MAX

DRIVER_LENGTH, DOMAIN_LENGTH, NAME_LENGTH, VALUE_LENGTH, MAP_SIZE = 63, 63, 32, 64, 32
SCALARS = frozenset(
    {"bool", "int", "uint", "double", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """The least and the greatest length of a text, list or map."""

    least: int
    most: int

    def __add__(self, other: Size) -> Size:
        return Size(_capped(self.least + other.least), _capped(self.most + other.most))

    def __mul__(self, other: Size) -> Size:
        return Size(_capped(self.least * other.least), _capped(self.most * other.most))

    def __or__(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def charge(self, factor: float = TEXT) -> int:
        """Charge for going through it at worst."""
        return _scaled(self.most, factor)


UNKNOWN, ONE = Size(0, UINT_MAX), Size(1, 1)


def estimate(checked: Checked) -> int:
    """Give the greatest cost of evaluating an expression on any device."""
    return _Estimator(checked).cost(checked.root)


def _capped(number: int) -> int:
    return min(number, UINT_MAX)


def _scaled(number: int, factor: float) -> int:
    scaled = float(number) * factor
    return UINT_MAX if scaled >= 2.0**64 else math.ceil(scaled)


def _limit(path: Path) -> Size | None:
    """Give the length of what a path under ``device`` leads to."""
    match path:
        case ("device", "driver"):
            return Size(0, DRIVER_LENGTH)
        case ("device", "attributes" | "capacity") | ("device", "attributes" | "capacity", "@values"):
            return Size(0, MAP_SIZE)
        case ("device", "attributes" | "capacity", "@keys"):
            return Size(0, DOMAIN_LENGTH)
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return Size(0, NAME_LENGTH)
        case ("device", "attributes", "@values", _):
            return Size(0, VALUE_LENGTH)
        case _:
            return None


@dataclass(slots=True)
class _Local:
    """What is known of a local variable."""

    path: Path
    size: Size | None = None
    entries: Size | None = None


@dataclass(slots=True)
class _Estimator:
    checked: Checked
    paths: dict[int, Path] = field(default_factory=dict)
    sizes: dict[int, Size] = field(default_factory=dict)
    entries: dict[int, Size] = field(default_factory=dict)
    locals: dict[str, _Local] = field(default_factory=dict)

    def cost(self, node: Node) -> int:
        match node:
            case Literal():
                return 0
            case Ident(name):
                self.paths[id(node)] = self.locals[name].path if name in self.locals else (name,)
                return 1
            case Select():
                return self._select(node)
            case Logic(operands):
                return _capped(sum(map(self.cost, operands)))
            case Call():
                return self._call(node)
            case ListLiteral(elements):
                return self._list(node, elements)
            case MapLiteral(entries):
                return self._map(node, entries)
            case Bind():
                return self._bind(node)
            case Comprehension():
                return self._loop(node)

    def size(self, node: Node) -> Size | None:
        if id(node) in self.sizes:
            return self.sizes[id(node)]
        match node:
            case Literal(str() | bytes() as value):
                return Size(len(value), len(value))
            case Literal():
                return ONE
            case ListLiteral(elements):
                return Size(len(elements), len(elements))
            case MapLiteral(entries):
                return Size(len(entries), len(entries))
        known = _limit(self.path(node))
        if known is not None:
            return known
        if _scalar(self.checked.type_of(node)):
            return ONE
        if isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].size
        return None

    def known_size(self, node: Node) -> Size:
        return self.size(node) or UNKNOWN

    def path(self, node: Node) -> Path:
        if isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].path
        return self.paths.get(id(node), ())

    def entry_size(self, node: Node) -> Size | None:
        if id(node) in self.entries:
            return self.entries[id(node)]
        if isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].entries
        return None

    def _select(self, node: Select) -> int:
        cost = self.cost(node.operand)
        if node.test:
            return cost
        path = self.path(node.operand)
        operand = self.checked.type_of(node.operand)
        self.paths[id(node)] = (*path, node.field) if path else ()
        selects = operand.name in {"map", "kubernetes.DRADevice"} or node.optional
        return _capped(cost + selects)

    def _list(self, node: Node, elements: tuple[Node, ...]) -> int:
        cost = sum(map(self.cost, elements)) + NEW_LIST
        sizes = [self.known_size(element) for element in elements] or [Size(0, 0)]
        self.entries[id(node)] = _union(sizes)
        return _capped(cost)

    def _map(self, node: Node, entries: tuple[tuple[Node, Node], ...]) -> int:
        cost = sum(self.cost(key) + self.cost(value) for key, value in entries) + NEW_MAP
        values = [self.known_size(value) for _, value in entries] or [Size(0, 0)]
        self.entries[id(node)] = _union(values)
        return _capped(cost)

    def _bind(self, node: Bind) -> int:
        cost = NEW_LIST + self.cost(node.value)
        local = _Local(self.path(node.value), self.size(node.value), self.entry_size(node.value))
        cost += self._inside({node.name: local}, [node.body])[0]
        self._copy(node, node.body)
        return _capped(cost)

    def _copy(self, target: Node, source: Node) -> None:
        size, entries = self.size(source), self.entry_size(source)
        if size is not None:
            self.sizes[id(target)] = size
        if entries is not None:
            self.entries[id(target)] = entries

    def _inside(self, names: dict[str, _Local], nodes: list[Node]) -> list[int]:
        outer = self.locals
        self.locals = {**outer, **names}
        costs = [self.cost(node) for node in nodes]
        self.locals = outer
        return costs

    def _loop(self, node: Comprehension) -> int:
        cost = self.cost(node.over) + self.cost(node.initial)
        accumulator = _Local(self.path(node.initial), self.size(node.initial))
        names = {**self._variables(node), node.accumulator: accumulator}
        rounds = self._inside(names, [node.condition, node.step])
        cost += self._inside({node.accumulator: accumulator}, [node.result])[0]
        count = self.known_size(node.over)
        if isinstance(node.initial, Literal):
            self.sizes[id(node)] = ONE
        else:
            self.sizes[id(node)] = count
            made = self.entry_size(node.step)
            if made is not None:
                self.entries[id(node)] = made
        return _capped(cost + count.most * sum(rounds))

    def _variables(self, node: Comprehension) -> dict[str, _Local]:
        path, entries = self.path(node.over), self.entry_size(node.over)
        is_list = self.checked.type_of(node.over).name == "list"
        below: Callable[[str], Path] = lambda part: (*path, part) if path else ()  # noqa: E731
        key = _Local(below("@indices" if is_list else "@keys"), ONE if is_list else None)
        value = _Local(below("@items" if is_list else "@values"), entries)
        if len(node.variables) == 2:
            return dict(zip(node.variables, (key, value), strict=True))
        return {node.variables[0]: value if is_list else key}

    def _call(self, node: Call) -> int:
        parts = [self.cost(argument) for argument in node.args]
        if node.function == "dyn":
            self._copy(node, node.args[0])
            return parts[0] + 1
        if node.function == "_?_:_":
            branches = [self.known_size(branch) for branch in node.args[1:]]
            self.sizes[id(node)] = branches[0] | branches[1]
            return _capped(parts[0] + max(parts[1:]))
        if node.target is not None:
            parts.append(self.cost(node.target))
        own, size = 0, None
        for overload in self.checked.overloads[id(node)]:
            charge, made = self._overload(node, overload)
            own = max(own, charge)
            if made is not None:
                size = made if size is None else size | made
        if node.function in {"_[_]", "_[?_]"}:
            path = self.path(node.args[0])
            is_list = self.checked.type_of(node.args[0]).name == "list"
            self.paths[id(node)] = (*path, "@items" if is_list else "@values") if path else ()
            size = self.entry_size(node.args[0])
        size = size or self.size(node)
        if size is not None:
            self.sizes[id(node)] = size
        return _capped(sum(parts) + own)

    def _overload(self, node: Call, overload: Overload) -> tuple[int, Size | None]:
        """Give what one overload charges, and the size of what it makes."""
        estimator = _ESTIMATES.get(node.function)
        if estimator is None:
            return 1, None
        nodes = node.args if node.target is None else (node.target, *node.args)
        types = tuple(map(self.checked.type_of, nodes))
        sizes = tuple(map(self.known_size, nodes))
        return estimator(_Request(self, nodes, types, sizes, overload))


def _scalar(type_: Type) -> bool:
    if type_.name == "optional_type":
        return _scalar(type_.params[0])
    return type_.name in SCALARS


def _union(sizes: list[Size]) -> Size:
    return Size(min(size.least for size in sizes), max(size.most for size in sizes))


@dataclass(frozen=True, slots=True)
class _Request:
    """One overload of a call to estimate; a method's receiver is argument 0."""

    estimator: _Estimator
    nodes: tuple[Node, ...]
    types: tuple[Type, ...]
    sizes: tuple[Size, ...]
    overload: Overload

    @property
    def kind(self) -> str:
        """Name the type of the overload's first parameter."""
        return self.overload.params[0].name

    def element_size(self) -> Size:
        """Give the size of the elements of the list in argument 0."""
        path = self.estimator.path(self.nodes[0])
        return _limit((*path, "@items")) or UNKNOWN


Estimate = tuple[int, Size | None]
_OPAQUE = frozenset({"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"})


def _equality(request: _Request) -> Estimate:
    left, right = request.types
    if left == right and left.name in _OPAQUE:
        return 1, None
    return _comparison(request)


def _comparison(request: _Request) -> Estimate:
    if not request.overload.params[0].variable and request.kind not in {"string", "bytes"}:
        return 1, None
    most = min(size.most for size in request.sizes)
    return _scaled(most, TEXT), None


def _sum(request: _Request) -> Estimate:
    joined = request.sizes[0] + request.sizes[1]
    if request.kind in {"string", "bytes"}:
        return joined.charge(), joined
    if request.kind != "list":
        return 1, None
    return 1, joined


def _membership(request: _Request) -> Estimate:
    is_list = request.overload.params[1].name == "list"
    return (request.sizes[1].charge(1) if is_list else 1), None


def _argument(request: _Request) -> Estimate:
    return request.sizes[1].charge(), None


def _part(request: _Request) -> Estimate:
    return _capped(request.sizes[0].charge() * request.sizes[1].charge()), None


def _pattern(request: _Request) -> Estimate:
    text = (request.sizes[0] + ONE).charge()
    pattern = request.sizes[1].charge(PATTERN)
    return _capped(text * pattern), Size(0, request.sizes[0].most)


def _text(request: _Request) -> Estimate:
    return request.sizes[0].charge(), request.sizes[0]


def _conversion(request: _Request) -> Estimate:
    size = request.sizes[0]
    if request.kind == "string" and request.overload.result.name == "bytes":
        return size.charge(), Size(size.least, _capped(size.most * 4))
    if request.kind == "bytes" and request.overload.result.name == "string":
        return size.charge(), Size(size.least // 4, size.most)
    return 1, None


def _format(request: _Request) -> Estimate:
    return request.sizes[0].charge(), request.sizes[0] + request.sizes[1]


def _replace(request: _Request) -> Estimate:
    size, old, new = request.sizes[:3]
    if old.least == 0:
        most = _capped((size.most + 1) * new.most + size.most)
    elif new.most <= old.least:
        most = size.most
    else:
        most = _capped(math.ceil(size.most / old.least) * new.most)
    return size.charge(2 * TEXT), Size(0, most)


def _split(request: _Request) -> Estimate:
    size = request.sizes[0]
    most = size.most
    if len(request.nodes) > 2 and isinstance(request.nodes[2], Literal):
        limit = request.nodes[2].value
        most = limit if isinstance(limit, int) and limit >= 0 else UINT_MAX
    return size.charge(2 * TEXT), Size(0, most)


def _join(request: _Request) -> Estimate:
    size = request.sizes[0] * request.element_size()
    if len(request.sizes) > 1:
        count = request.sizes[0]
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size + request.sizes[1] * between
    return size.charge(), size


def _each_element(request: _Request) -> Estimate:
    target = request.types[0]
    if not target.params:
        return request.sizes[0].charge(), None
    each = 1
    if target.params[0].name in {"string", "bytes"}:
        each += request.element_size().charge()
    return _capped(request.sizes[0].most * each), None


def _includes(request: _Request) -> Estimate:
    if request.types[0].dynamic:
        return request.sizes[0].most, None
    return _each_element(request)


def _pairs(request: _Request) -> Estimate:
    return _capped(request.sizes[0].most * request.sizes[1].most + 1), None


def _pairs_twice(request: _Request) -> Estimate:
    return _capped(request.sizes[0].most * request.sizes[1].most * 2 + 1), None


def _contains_ip(request: _Request) -> Estimate:
    extra = request.sizes[1].charge() if request.overload.params[1].name == "string" else 0
    return _capped(4 + extra), None


def _contains_cidr(request: _Request) -> Estimate:
    charge, _ = _contains_ip(request)
    return _capped(charge + 3), None


_ESTIMATES: dict[str, Callable[[_Request], Estimate]] = {
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
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _each_element
    ),
    "includes": _includes,
    **dict.fromkeys(("sets.contains", "sets.intersects"), _pairs),
    "sets.equivalent": _pairs_twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
}
