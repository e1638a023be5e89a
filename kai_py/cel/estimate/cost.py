"""The maximum cost of an expression, as the API server estimates it at admission.

The cost of a node is that of its parts plus its own; of a loop, the cost of one round times the
largest possible number of elements. Sizes come from literals, from the limits of the variables'
fields and from the functions that make strings and lists of others; an unknown size is 2**64 - 1.

Source: cel-go ``checker`` cost estimation; k8s.io/apiserver/pkg/cel/library ``CostEstimator``.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from kai_py.cel.actual_cost import NEW_LIST, NEW_MAP
from kai_py.cel.check import Checked
from kai_py.cel.estimate.calls import (
    ESTIMATES,
    ONE,
    UNKNOWN,
    Limits,
    Path,
    Request,
    Size,
    capped,
    is_scalar,
    union,
)
from kai_py.cel.functions import Overload
from kai_py.cel.macros import TARGET
from kai_py.cel.syntax import (
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


def estimate(checked: Checked, limit_of: Limits) -> int:
    """The maximum cost of evaluating an expression on any values within the limits."""
    return capped(_Estimator(checked, limit_of).cost(checked.root))


class _Local(Struct):
    """The path and the sizes of a local variable."""

    path: Path
    size: Size | None = None
    entries: Size | None = None
    cost: int = 1
    """The cost of each use."""


class _Estimator(Struct):
    checked: Checked
    limit_of: Limits
    paths: dict[int, Path] = field(default_factory=dict)
    sizes: dict[int, Size] = field(default_factory=dict)
    entries: dict[int, Size] = field(default_factory=dict)
    locals: dict[str, _Local] = field(default_factory=dict)

    @property
    def objects(self) -> Mapping[str, object]:
        return self.checked.environment.objects

    def cost(self, node: Node) -> int:
        found = 0
        match node:
            case Literal():
                pass
            case Ident(name):
                local = self.locals.get(name)
                self.paths[id(node)] = local.path if local else (name,)
                found = local.cost if local else 1
            case Select():
                found = self._select(node)
            case Logic(operands):
                found = capped(sum(map(self.cost, operands)))
            case Call():
                found = self._call(node)
            case ListLiteral(elements):
                found = self._list(node, elements)
            case MapLiteral(entries):
                found = self._map(node, entries)
            case Bind():
                found = self._bind(node)
            case Comprehension():
                found = self._loop(node)
        return found

    def size(self, node: Node) -> Size | None:
        found = self.sizes.get(id(node)) or _literal_size(node) or self.limit_of(self.path(node))
        if found is not None:
            return found
        if is_scalar(self.checked.type_of(node)):
            return ONE
        local = self.locals.get(node.name) if isinstance(node, Ident) else None
        return local.size if local else None

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
        self.paths[id(node)] = _below(path, node.field)
        selects = operand.name == "map" or operand.name in self.objects or node.optional
        return capped(cost + selects)

    def _list(self, node: Node, elements: tuple[Node, ...]) -> int:
        cost = sum(map(self.cost, elements)) + NEW_LIST
        sizes = [self.known_size(element) for element in elements] or [Size(0, 0)]
        self.entries[id(node)] = union(sizes)
        return capped(cost)

    def _map(self, node: Node, entries: tuple[tuple[Node, Node], ...]) -> int:
        cost = sum(self.cost(key) + self.cost(value) for key, value in entries) + NEW_MAP
        values = [self.known_size(value) for _, value in entries] or [Size(0, 0)]
        self.entries[id(node)] = union(values)
        return capped(cost)

    def _bind(self, node: Bind) -> int:
        cost = self.cost(node.value)
        local = _Local(self.path(node.value), self.size(node.value), self.entry_size(node.value))
        if node.name == TARGET:
            local.cost, cost = cost, 0
        else:
            cost += NEW_LIST
        cost += self._inside({node.name: local}, [node.body])[0]
        self._copy(node, node.body)
        return capped(cost)

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
        initial = node.initial
        accumulator = _Local(self.path(initial), self.size(initial), self.entry_size(initial))
        names = {**self._variables(node), node.accumulator: accumulator}
        rounds = self._inside(names, [node.condition, node.step])
        cost += self._inside({node.accumulator: accumulator}, [node.result])[0]
        count = self.known_size(node.over)
        if isinstance(node.initial, Literal):
            self.sizes[id(node)] = ONE
        else:
            self.sizes[id(node)] = count
            result_entries = self.entry_size(node.step)
            if result_entries is not None:
                self.entries[id(node)] = result_entries
        return capped(cost + count.most * sum(rounds))

    def _variables(self, node: Comprehension) -> dict[str, _Local]:
        path, entries = self.path(node.over), self.entry_size(node.over)
        is_list = self.checked.type_of(node.over).name == "list"
        key = _Local(_below(path, "@indices" if is_list else "@keys"), ONE if is_list else None)
        value = _Local(_below(path, "@items" if is_list else "@values"), entries)
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
            self._join_entries(node, *node.args[1:])
            return capped(parts[0] + max(parts[1:]))
        if node.target is not None:
            parts.append(self.cost(node.target))
        if node.function == "_+_":
            self._join_entries(node, *node.args)
        own, size = 0, None
        for overload in self.checked.overloads[id(node)]:
            most, result_size = self._overload(node, overload)
            own = max(own, most)
            if result_size is not None:
                size = result_size if size is None else size | result_size
        if node.function in {"_[_]", "_[?_]"}:
            path = self.path(node.args[0])
            is_list = self.checked.type_of(node.args[0]).name == "list"
            self.paths[id(node)] = _below(path, "@items" if is_list else "@values")
            size = self.entry_size(node.args[0])
        size = size or self.size(node)
        if size is not None:
            self.sizes[id(node)] = size
        return capped(sum(parts) + own)

    def _join_entries(self, node: Node, left: Node, right: Node) -> None:
        """Elements of ``node`` come from either of two lists."""
        sizes = self.entry_size(left), self.entry_size(right)
        if sizes[0] is not None and sizes[1] is not None:
            self.entries[id(node)] = sizes[0] | sizes[1]

    def _overload(self, node: Call, overload: Overload) -> tuple[int, Size | None]:
        """The cost of one overload, and the size of its result."""
        estimator = ESTIMATES.get(node.function)
        if estimator is None:
            return 1, None
        nodes = node.args if node.target is None else (node.target, *node.args)
        types = tuple(map(self.checked.type_of, nodes))
        sizes = tuple(map(self.known_size, nodes))
        items = self.limit_of((*self.path(nodes[0]), "@items")) or UNKNOWN
        return estimator(Request(nodes, types, sizes, overload, items))


def _below(path: Path, part: str) -> Path:
    return (*path, part) if path else ()


def _literal_size(node: Node) -> Size | None:
    match node:
        case Literal(str() | bytes() as value):
            return Size(len(value), len(value))
        case Literal():
            return ONE
        case ListLiteral(elements=parts) | MapLiteral(entries=parts):
            return Size(len(parts), len(parts))
        case _:
            return None
