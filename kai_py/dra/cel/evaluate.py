"""How is an expression evaluated? Its syntax tree becomes one Python closure per node.

A closure takes a ``Frame`` (the device, the cost so far, the local variables) and gives a value or
raises. The only absorbers of errors are ``&&`` and ``||``: an operand that decides wins over an
operand that fails, in either order; and the loop of ``all`` and ``exists``, which is the same rule
over a list. A path such as ``device.attributes["d"].x`` is one closure, as it is most of the work.

Cost of an evaluation: a few hundred nanoseconds per node.
Source: CEL specification "Evaluation"; cel-go's interpreter for what is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kai_py.dra.cel import functions, values
from kai_py.dra.cel.charge import CHARGES, LIMIT, NEW_LIST, NEW_MAP
from kai_py.dra.cel.check import TYPE_NAMES
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
from kai_py.dra.cel.values import (
    EMPTY_MAP,
    CELRuntimeError,
    CostLimitError,
    Optional,
    TypeName,
    Value,
)


class Frame:
    """One evaluation in progress."""

    __slots__ = ("device", "slots", "spent")

    def __init__(self, device: Value, slots: int) -> None:
        self.device = device
        self.spent = 0
        self.slots: list[Value] = [_UNSET] * slots

    def spend(self, cost: int) -> None:
        """Count cost.

        :raises CostLimitError: the limit is exceeded.
        """
        self.spent += cost
        if self.spent > LIMIT:
            raise CostLimitError


Closure = Callable[[Frame], Value]
_UNSET = object()


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    closure: Closure
    slots: int

    def run(self, device: Value) -> tuple[Value, int]:
        """Evaluate on the fields of a device: the value and its cost.

        :raises CELRuntimeError: the evaluation failed.
        """
        frame = Frame(device, self.slots)
        value = self.closure(frame)
        frame.spend(0)
        return value, frame.spent


def build(root: Node) -> Program:
    """Compile a checked expression."""
    scope = _Scope({}, [0])
    closure = _compile(root, scope)
    return Program(closure, scope.count[0])


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where each local variable is kept."""

    readers: dict[str, Closure]
    count: list[int]

    def slot(self) -> int:
        self.count[0] += 1
        return self.count[0] - 1

    def with_readers(self, readers: dict[str, Closure]) -> _Scope:
        return replace(self, readers={**self.readers, **readers})


def _compile(node: Node, scope: _Scope) -> Closure:
    path = device_path(node)
    if path is not None and "device" not in scope.readers:
        return _path(path)
    match node:
        case Literal(value):
            return lambda _: value
        case Ident(name):
            return _ident(name, scope)
        case Select():
            return _select(node, scope)
        case Logic():
            return _logic(node, scope)
        case Call():
            return _special_call(node, scope) or _call(node, scope)
        case ListLiteral():
            return _list(node, scope)
        case MapLiteral():
            return _map(node, scope)
        case Bind():
            return _bind(node, scope)
        case Comprehension():
            return _loop(node, scope)


def device_path(node: Node) -> tuple[str, ...] | None:
    """Give the literal keys by which a node reads from ``device``, if it does just that."""
    keys: list[str] = []
    while True:
        match node:
            case Select(operand, field, test=False, optional=False):
                keys.append(field)
                node = operand
            case Call("_[_]", None, (operand, Literal(str() as key))):
                keys.append(key)
                node = operand
            case Ident("device"):
                return tuple(reversed(keys))
            case _:
                return None


def _path(keys: tuple[str, ...]) -> Closure:
    cost = len(keys) + 1
    if len(keys) == 3 and keys[0] in {"attributes", "capacity"}:
        outer, domain, name = keys

        def attribute(frame: Frame) -> Value:
            frame.spent += cost
            try:
                return frame.device[outer].get(domain, EMPTY_MAP)[name]
            except KeyError:
                raise CELRuntimeError(f"no such key: {name}") from None

        return attribute

    def path(frame: Frame) -> Value:
        frame.spent += cost
        value = frame.device
        for key in keys:
            value = values.select(value, key)
        return value

    return path


def _ident(name: str, scope: _Scope) -> Closure:
    if name in scope.readers:
        return scope.readers[name]
    found = TypeName(TYPE_NAMES[name].name)
    return lambda _: found


def _read(slot: int) -> Closure:
    def read(frame: Frame) -> Value:
        frame.spent += 1
        value = frame.slots[slot]
        if isinstance(value, CELRuntimeError):
            raise value
        return value

    return read


def _select(node: Select, scope: _Scope) -> Closure:
    operand, field = _compile(node.operand, scope), node.field
    if node.test:
        return lambda frame: values.has(operand(frame), field)
    choose = values.optional_select if node.optional else values.select

    def select(frame: Frame) -> Value:
        frame.spent += 1
        return choose(operand(frame), field)

    return select


def _logic(node: Logic, scope: _Scope) -> Closure:
    operands = [_compile(operand, scope) for operand in node.operands]
    decisive = not node.conjunction

    def logic(frame: Frame) -> bool:
        fault: CELRuntimeError | None = None
        for operand in operands:
            try:
                value = operand(frame)
            except CostLimitError:
                raise
            except CELRuntimeError as error:
                fault = fault or error
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                fault = fault or CELRuntimeError("no such overload")
        if fault is not None:
            raise fault
        return not decisive

    return logic


def _special_call(node: Call, scope: _Scope) -> Closure | None:
    """Compile the calls whose arguments are not simply evaluated one by one."""
    if node.function == "_?_:_":
        return _conditional(*(_compile(argument, scope) for argument in node.args))
    if node.function == "@not_strictly_false":
        return _not_strictly_false(_compile(node.args[0], scope))
    if node.function in {"or", "orValue"} and node.target is not None:
        alternative = _compile(node.args[0], scope)
        return _alternative(node.function, _compile(node.target, scope), alternative)
    return None


def _conditional(condition: Closure, chosen: Closure, other: Closure) -> Closure:
    def conditional(frame: Frame) -> Value:
        value = condition(frame)
        if type(value) is not bool:
            raise CELRuntimeError("no such overload")
        return chosen(frame) if value else other(frame)

    return conditional


def _not_strictly_false(argument: Closure) -> Closure:
    def not_strictly_false(frame: Frame) -> bool:
        frame.spent += 1
        try:
            return argument(frame) is not False
        except CostLimitError:
            raise
        except CELRuntimeError:
            return True

    return not_strictly_false


def _alternative(name: str, optional: Closure, alternative: Closure) -> Closure:
    def choose(frame: Frame) -> Value:
        frame.spent += 1
        value = optional(frame)
        if type(value) is not Optional:
            raise functions.no_overload(name, (value,))
        if value.present:
            return value if name == "or" else value.value
        return alternative(frame)

    return choose


def _call(node: Call, scope: _Scope) -> Closure:
    nodes = node.args if node.target is None else (node.target, *node.args)
    arguments = [_compile(argument, scope) for argument in nodes]
    name, method = node.function, node.target is not None
    function = functions.find(name, method=method)
    assert function is not None
    charge = CHARGES.get(f".{name}" if method else name)
    operator = not name.replace("@", "_").strip("_").isidentifier()

    def call(frame: Frame) -> Value:
        args = tuple([argument(frame) for argument in arguments])
        implementation = functions.choose(function, args)
        frame.spend(1 if charge is None or implementation is None else charge(args))
        if implementation is None:
            raise CELRuntimeError("no such overload") if operator else functions.no_overload(
                name, args
            )
        return implementation(*args)

    return call


def _constant(nodes: Iterable[Node]) -> bool:
    return all(isinstance(node, Literal) for node in nodes)


def _list(node: ListLiteral, scope: _Scope) -> Closure:
    elements = [_compile(element, scope) for element in node.elements]
    optional = node.optional

    def make(frame: Frame) -> tuple[Value, ...]:
        frame.spend(NEW_LIST)
        made = []
        for number, element in enumerate(elements):
            value = element(frame)
            if number not in optional:
                made.append(value)
            elif _present(value):
                made.append(value.value)
        return tuple(made)

    if optional or not _constant(node.elements):
        return make
    constant = make(Frame(None, 0))
    return lambda _: constant


def _map(node: MapLiteral, scope: _Scope) -> Closure:
    entries = [(_compile(key, scope), _compile(value, scope)) for key, value in node.entries]
    optional = node.optional

    def make(frame: Frame) -> dict[Value, Value]:
        frame.spend(NEW_MAP)
        made: dict[Value, Value] = {}
        for number, (read_key, read_value) in enumerate(entries):
            key, value = read_key(frame), read_value(frame)
            if number in optional:
                if not _present(value):
                    continue
                value = value.value
            if not isinstance(key, bool | int | str):
                raise CELRuntimeError(f"unsupported key type: {values.kind_of(key)}")
            if values.to_key(key) in made:
                raise CELRuntimeError(f"Failed with repeated key: {values.format_key(key)}")
            made[values.to_key(key)] = value
        return made

    return make


def _present(value: Value) -> bool:
    if type(value) is not Optional:
        raise CELRuntimeError(f"cannot initialize optional list element from non-optional value "
                              f"{values.kind_of(value)}")  # fmt: skip
    return value.present


def _bind(node: Bind, scope: _Scope) -> Closure:
    compute, slot = _compile(node.value, scope), scope.slot()

    def read(frame: Frame) -> Value:
        frame.spent += 1
        value = frame.slots[slot]
        if value is _UNSET:
            try:
                value = compute(frame)
            except CostLimitError:
                raise
            except CELRuntimeError as error:
                value = error
            frame.slots[slot] = value
        if isinstance(value, CELRuntimeError):
            raise value
        return value

    body = _compile(node.body, scope.with_readers({node.name: read}))

    def bind(frame: Frame) -> Value:
        frame.slots[slot] = _UNSET
        return body(frame)

    return bind


def _loop(node: Comprehension, scope: _Scope) -> Closure:
    over, initial = _compile(node.over, scope), _compile(node.initial, scope)
    accumulated, *variables = (scope.slot() for _ in range(len(node.variables) + 1))
    names = dict(zip(node.variables, map(_read, variables), strict=True))
    inside = scope.with_readers({**names, node.accumulator: _read(accumulated)})
    condition, step = _compile(node.condition, inside), _compile(node.step, inside)
    result = _compile(node.result, inside)
    absorbs = isinstance(node.step, Logic)

    def loop(frame: Frame) -> Value:
        slots = frame.slots
        elements = _elements(over(frame), len(variables))
        slots[accumulated] = initial(frame)
        for element in elements:
            for slot, value in zip(variables, element, strict=True):
                slots[slot] = value
            if condition(frame) is False:
                break
            try:
                slots[accumulated] = step(frame)
            except CostLimitError:
                raise
            except CELRuntimeError as error:
                if not absorbs:
                    raise
                slots[accumulated] = error
            frame.spend(0)
        return result(frame)

    return loop


def _elements(over: Value, count: int) -> Iterable[tuple[Value, ...]]:
    elements = values.iterate(over)
    if count == 1:
        return ((element,) for element in elements)
    if isinstance(over, tuple):
        return enumerate(over)
    return ((values.from_key(key), value) for key, value in over.items())
