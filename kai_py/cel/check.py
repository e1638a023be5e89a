"""The static type check.

Variables and functions must be declared, fields of objects must exist, some overload of each
function must take the arguments. Values of type ``dyn`` are checked at run time: ``1 == 1.0`` is
rejected here, ``dyn(1) == 1.0`` is not.

Source: CEL specification "Gradual Type Checking"; cel-go's checker for the wording of messages,
with Kubernetes' options (homogeneous lists and maps, ordering across number types).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field

from kai_py.cel.functions import Overload
from kai_py.cel.library import find
from kai_py.cel.literal_checks import literal_faults
from kai_py.cel.syntax import (
    Bind,
    Call,
    Comprehension,
    ExpressionError,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
)
from kai_py.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    TYPE_NAMES,
    Bindings,
    Type,
    describe,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from kai_py.cel.values import KINDS


class Environment(Struct, frozen=True, eq=False):
    """The declarations an expression is checked against, beside the function libraries."""

    variables: Mapping[str, Type]
    objects: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """The types of fields, by the name of their object type."""
    hidden_methods: frozenset[str] = frozenset()
    """Registered methods that are not available."""

    def declares(self, name: str, *, method: bool) -> bool:
        """Whether a registered function is available."""
        return not (method and name in self.hidden_methods)


class Checked(Struct, frozen=True):
    """An expression with the type of every node, by the node's ``id``."""

    root: Node
    environment: Environment
    types: dict[int, Type]
    overloads: dict[int, tuple[Overload, ...]] = field(default_factory=dict)

    def type_of(self, node: Node) -> Type:
        """The type of a node."""
        return self.types[id(node)]

    @property
    def type(self) -> Type:
        """The type of the whole expression."""
        return self.types[id(self.root)]


OPAQUE = "kubernetes."
"""Begins the names of types whose fields, if they have any, are declared."""


def check(root: Node, environment: Environment) -> Checked:
    """Infer the type of every node.

    :raises ExpressionError: a name is unknown or types do not fit.
    """
    checker = _Checker(environment)
    checker.visit(root)
    raise_all(checker.errors)
    types = {key: checker.bindings.resolve(found, free=DYN) for key, found in checker.types.items()}
    checked = Checked(root, environment, types, checker.overloads)
    raise_all(literal_faults(root, checked.type_of))
    return checked


def raise_all(errors: Sequence[ExpressionError]) -> None:
    """Raise the first of the errors in the order of the text, with the others; nothing if none."""
    if errors:
        first, *further = sorted(errors, key=lambda error: error.start)
        first.further = tuple(further)
        raise first


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.errors: list[ExpressionError] = []
        self.bindings = Bindings()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[Overload, ...]] = {}
        self._environment = environment
        self._scope: Mapping[str, Type] = environment.variables
        self._visitors: dict[type, Callable[[Any], Type]] = {
            Literal: self._literal,
            Ident: self._ident,
            Select: self._select,
            Logic: self._logic,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            Bind: self._bind,
            Comprehension: self._comprehension,
        }

    def visit(self, node: Node) -> Type:
        try:
            found = self.bindings.resolve(self._visitors[type(node)](node))
        except ExpressionError as error:
            self.errors.append(error)
            found = ERROR
        self.types[id(node)] = found
        return found

    def _literal(self, node: Literal) -> Type:
        return Type(KINDS[type(node.value)])

    def _bind(self, node: Bind) -> Type:
        with self._local({node.name: self.visit(node.value)}):
            return self.visit(node.body)

    @contextmanager
    def _local(self, names: dict[str, Type]) -> Iterator[None]:
        outer = self._scope
        self._scope = {**outer, **names}
        try:
            yield
        finally:
            self._scope = outer

    def _ident(self, node: Ident) -> Type:
        name = node.name
        if name in self._scope:
            return self._scope[name]
        if name in TYPE_NAMES:
            return type_of(TYPE_NAMES[name])
        raise ExpressionError(f"undeclared reference to '{name}' (in container '')", node.start)

    def _select(self, node: Select) -> Type:
        operand = self.visit(node.operand)
        optional = node.optional or operand.name == "optional_type"
        found = self._field(operand.params[0] if operand.name == "optional_type" else operand, node)
        if node.test:
            return BOOL
        return optional_of(found) if optional else found

    def _field(self, operand: Type, node: Select) -> Type:
        operand = self.bindings.resolve(operand)
        if operand.dynamic or operand.variable:
            return DYN
        if operand.name == "map":
            return operand.params[1]
        fields = self._environment.objects.get(operand.name)
        if fields is not None:
            if node.field not in fields:
                raise ExpressionError(f"undefined field '{node.field}'", node.start)
            return fields[node.field]
        message = f"type '{describe(operand)}' does not support field selection"
        if operand.name.startswith(OPAQUE):
            message = f"unexpected failed resolution of '{operand.name}'"
        raise ExpressionError(message, node.start)

    def _logic(self, node: Logic) -> Type:
        for operand in node.operands:
            self._expect(BOOL, operand)
        return BOOL

    def _call(self, node: Call) -> Type:
        nodes = node.args if node.target is None else (node.target, *node.args)
        given = tuple(self.visit(argument) for argument in nodes)
        method = node.target is not None
        function = find(node.function, method=method)
        if function is None or not self._environment.declares(node.function, method=method):
            if find(node.function, method=not method) is not None:
                raise _no_match(node.function, given, node.start, method=method)
            message = f"undeclared reference to '{node.function}' (in container '')"
            raise ExpressionError(message, node.start)
        result: Type | None = None
        fitting = []
        for overload, _ in function.overloads:
            names: dict[str, Type] = {}
            params = tuple(self.bindings.rename(param, names) for param in overload.params)
            if not self.bindings.are_assignable(params, given):
                continue
            fitting.append(overload)
            one = self.bindings.resolve(self.bindings.rename(overload.result, names))
            result = one if result is None or result == one else DYN
        if result is None:
            given = tuple(self.bindings.resolve(each, free=DYN) for each in given)
            raise _no_match(node.function, given, node.start, method=method)
        self.overloads[id(node)] = tuple(fitting)
        return result

    def _list(self, node: ListLiteral) -> Type:
        found = [
            self._element(element, optional=number in node.optional)
            for number, element in enumerate(node.elements)
        ]
        return list_of(self._common(found))

    def _map(self, node: MapLiteral) -> Type:
        keys, values = [], []
        for number, (key, value) in enumerate(node.entries):
            keys.append(self.visit(key))
            values.append(self._element(value, optional=number in node.optional))
        return map_of(self._common(keys), self._common(values))

    def _element(self, node: Node, *, optional: bool) -> Type:
        found = self.visit(node)
        if not optional:
            return found
        inner = self.bindings.fresh()
        if not self.bindings.is_assignable(optional_of(inner), found):
            wanted = describe(optional_of(found))
            message = f"expected type '{wanted}' but found '{describe(found)}'"
            raise ExpressionError(message, node.start)
        return self.bindings.resolve(inner)

    def _common(self, found: Sequence[Type]) -> Type:
        """The type that all elements of a literal are assignable to."""
        common: Type | None = None
        for each in found:
            if common is None:
                common = each
            elif self.bindings.is_assignable(common, each):
                common = self.bindings.most_general(common, each)
            else:
                common = DYN
        return common or self.bindings.fresh()

    def _comprehension(self, node: Comprehension) -> Type:
        over = self.bindings.resolve(self.visit(node.over))
        names = dict(zip(node.variables, self._elements(over, node), strict=True))
        accumulated = self.visit(node.initial)
        names[node.accumulator] = accumulated
        with self._local(names):
            self._expect(BOOL, node.condition)
            self._expect(accumulated, node.step)
        with self._local({node.accumulator: accumulated}):
            return self.visit(node.result)

    def _elements(self, over: Type, node: Comprehension) -> tuple[Type, ...]:
        both = len(node.variables) == 2
        if over.name == "list":
            return (INT, over.params[0]) if both else (over.params[0],)
        if over.name == "map":
            return over.params if both else (over.params[0],)
        # Values of ``Any`` are assignable like dynamic ones, but cannot be iterated over.
        if over in (DYN, ERROR) or over.variable:
            return (DYN, DYN) if both else (DYN,)
        message = (
            f"expression of type '{describe(over)}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        self.errors.append(ExpressionError(message, node.over.start))
        return (ERROR, ERROR) if both else (ERROR,)

    def _expect(self, wanted: Type, node: Node) -> None:
        found = self.visit(node)
        if not self.bindings.is_assignable(wanted, found):
            wanted = self.bindings.resolve(wanted)
            message = f"expected type '{describe(wanted)}' but found '{describe(found)}'"
            self.errors.append(ExpressionError(message, node.start))


def _no_match(name: str, given: tuple[Type, ...], start: int, *, method: bool) -> ExpressionError:
    texts = list(map(describe, given))
    receiver = f"{texts.pop(0)}." if method else ""
    applied = f"{receiver}({', '.join(texts)})"
    return ExpressionError(f"found no matching overload for '{name}' applied to '{applied}'", start)
