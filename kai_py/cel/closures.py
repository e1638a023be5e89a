"""Evaluation: the closures that nodes are compiled to.

A closure takes a ``Frame`` (the activation, the cost so far, the variables of macros) and returns a
value or raises. Errors are absorbed only by ``&&`` and ``||``, where an operand that decides wins
over an operand that fails, in either order; and by the loop of ``all`` and ``exists``, which is the
same rule over a list.

Cost of an evaluation: a few hundred nanoseconds per node. Source: CEL specification "Evaluation";
cel-go's interpreter for the costs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kai_py.cel import values
from kai_py.cel.actual_cost import (
    LIMIT,
    NEW_LIST,
    NEW_MAP,
    PLAIN_PAIRS,
    SCALAR_PAIRS,
    CallCost,
    Work,
)
from kai_py.cel.functions import Function, choose, no_overload
from kai_py.cel.values import CELRuntimeError, CostLimitError, Optional, Value

Activation = Mapping[str, Value]
"""The value of each declared variable."""


class Frame:
    """One evaluation in progress; ``work``: what its cost does not count (``actual_cost``)."""

    __slots__ = ("activation", "cost", "slots", "work")

    def __init__(self, activation: Activation, slots: int) -> None:
        self.activation = activation
        self.cost = self.work = 0
        self.slots: list[Value] = [_UNSET] * slots

    def add_cost(self, cost: int) -> None:
        """Add to the cost.

        :raises CostLimitError: the limit is exceeded.
        """
        self.cost += cost
        if self.cost > LIMIT:
            raise CostLimitError

    def add_work(self, work: int) -> None:
        """Add to the work that the cost does not count; raises as ``add_cost``."""
        self.work += work
        if self.work > LIMIT:
            self.work = LIMIT
            raise CostLimitError


Closure = Callable[[Frame], Value]
_UNSET = object()


def constant(value: Value) -> Closure:
    """A closure that always returns ``value``, without cost."""
    return lambda _: value


def read_path(variable: str, keys: tuple[str, ...]) -> Closure:
    """A closure that reads a declared variable at literal keys, the most frequent kind of read."""
    cost = len(keys) + 1

    def select_each(frame: Frame) -> Value:
        value = frame.activation[variable]
        for key in keys:
            value = values.select(value, key)
        return value

    def path(frame: Frame) -> Value:
        frame.cost += cost
        try:
            value = frame.activation[variable]
            for key in keys:
                value = value[key]
        except (KeyError, TypeError):
            return select_each(frame)
        return value

    def path_of_three(frame: Frame) -> Value:
        frame.cost += cost
        try:
            return frame.activation[variable][first][second][third]
        except (KeyError, TypeError):
            return select_each(frame)

    if len(keys) == 3:
        first, second, third = keys
        return path_of_three
    return path


def read_element(slot: int) -> Closure:
    """A closure that reads the variable of a loop, which is never an error."""

    def read(frame: Frame) -> Value:
        frame.cost += 1
        return frame.slots[slot]

    return read


def read_slot(slot: int) -> Closure:
    """A closure that reads a local variable; raises the error that it may hold."""

    def read(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.slots[slot]
        if isinstance(value, CELRuntimeError):
            # A copy: the traceback of a raised error refers to this frame, which holds the value.
            raise CELRuntimeError(value.reason)
        return value

    return read


def read_lazily(slot: int, compute: Closure) -> Closure:
    """A closure that reads a variable of ``cel.bind``, computed on first use."""
    read = read_slot(slot)

    def read_or_compute(frame: Frame) -> Value:
        if frame.slots[slot] is _UNSET:
            try:
                frame.slots[slot] = compute(frame)
            except CostLimitError:
                raise
            except CELRuntimeError as error:
                frame.slots[slot] = error.as_value()
        return read(frame)

    return read_or_compute


def bind(slot: int, body: Closure) -> Closure:
    """A closure for the body of ``cel.bind``, with the variable not yet computed."""

    def evaluate(frame: Frame) -> Value:
        frame.slots[slot] = _UNSET
        return body(frame)

    return evaluate


def select(operand: Closure, field: str, *, optional: bool) -> Closure:
    """A closure that reads a field, or an optional of it."""
    choose_field = values.optional_select if optional else values.select

    def evaluate(frame: Frame) -> Value:
        frame.cost += 1
        return choose_field(operand(frame), field)

    return evaluate


def index(
    operand: Closure, key: Closure, choose_element: Callable[[Value, Value], Value]
) -> Closure:
    """A closure that reads an element at a computed place, whatever the operand turns out to be."""

    def evaluate(frame: Frame) -> Value:
        frame.cost += 1
        return choose_element(operand(frame), key(frame))

    return evaluate


def logic(operands: Sequence[Closure], *, conjunction: bool) -> Closure:
    """A closure for ``&&`` or ``||``."""
    decisive = not conjunction

    def evaluate(frame: Frame) -> Value:
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
        if fault is None:
            return conjunction
        try:
            raise fault
        finally:
            # The error has this frame in its traceback: together they would be a cycle.
            del fault

    return evaluate


def conditional(condition: Closure, chosen: Closure, other: Closure) -> Closure:
    """A closure that evaluates one of two branches."""

    def evaluate(frame: Frame) -> Value:
        value = condition(frame)
        if type(value) is not bool:
            raise CELRuntimeError("no such overload")
        return chosen(frame) if value else other(frame)

    return evaluate


def not_strictly_false(argument: Closure) -> Closure:
    """A closure for whether a loop continues: true unless the argument is false."""

    def evaluate(frame: Frame) -> Value:
        frame.cost += 1
        try:
            return argument(frame) is not False
        except CostLimitError:
            raise
        except CELRuntimeError:
            return True

    return evaluate


def alternative(name: str, optional: Closure, other: Closure) -> Closure:
    """A closure for the value of an optional, else of another expression: ``or``, ``orValue``."""

    def evaluate(frame: Frame) -> Value:
        frame.cost += 1
        value = optional(frame)
        if type(value) is not Optional:
            raise no_overload(name, (value,))
        if not value.present:
            return other(frame)
        return value if name == "or" else value.value

    return evaluate


def call(
    name: str, function: Function, arguments: Sequence[Closure], cost: CallCost | None,
    work: Work | None,
) -> Closure:  # fmt: skip
    """A closure that calls a function with all its arguments evaluated."""
    operator = not name.replace(".", "").isidentifier()

    def apply(frame: Frame, args: tuple[Value, ...]) -> Value:
        implementation = function.chosen.get(tuple(map(type, args))) or choose(function, args)
        if implementation is None:
            frame.add_cost(1)
            raise CELRuntimeError("no such overload") if operator else no_overload(name, args)
        frame.add_cost(1 if cost is None else cost(args))
        if work is not None:
            frame.add_work(work(args))
        return implementation(*args)

    if len(arguments) == 1:
        (only,) = arguments
        return lambda frame: apply(frame, (only(frame),))
    if len(arguments) == 2:
        return _call_with_two(function, arguments, cost, work, apply)
    return lambda frame: apply(frame, tuple([argument(frame) for argument in arguments]))


def _call_with_two(
    function: Function, arguments: Sequence[Closure], cost: CallCost | None, work: Work | None,
    apply: Callable[[Frame, tuple[Value, ...]], Value],
) -> Closure:  # fmt: skip
    """The fast path for functions of two arguments, by far the most frequent."""
    chosen = function.chosen
    left, right = arguments

    def evaluate(frame: Frame) -> Value:
        first, second = left(frame), right(frame)
        classes = (type(first), type(second))
        implementation = chosen.get(classes)
        if implementation is None:
            return apply(frame, (first, second))
        frame.cost += 1 if cost is None or classes in SCALAR_PAIRS else cost((first, second))
        if frame.cost > LIMIT:
            raise CostLimitError
        if work is not None and classes not in PLAIN_PAIRS:
            frame.add_work(work((first, second)))
        return implementation(first, second)

    return evaluate


def append(accumulator: int, element: Closure, *, is_constant: bool) -> Closure:
    """A closure that adds an element to the list that a loop makes.

    It costs as much as joining two lists, and is done without copying the first.
    """

    def evaluate(frame: Frame) -> list[Value]:
        frame.add_cost(1 if is_constant else 1 + NEW_LIST)
        value = element(frame)
        frame.add_cost(1)
        grown: list[Value] = frame.slots[accumulator]
        grown.append(value)
        return grown

    return evaluate


def make_list(elements: Sequence[Closure], optional: frozenset[int]) -> Closure:
    """A closure that makes a list; elements at ``optional`` positions may be absent."""

    def evaluate(frame: Frame) -> tuple[Value, ...]:
        frame.add_cost(NEW_LIST)
        result = []
        for position, element in enumerate(elements):
            value = element(frame)
            if position not in optional:
                result.append(value)
            elif _present(value):
                result.append(value.value)
        return tuple(result)

    return evaluate


def make_map(entries: Sequence[tuple[Closure, Closure]], optional: frozenset[int]) -> Closure:
    """A closure that makes a map; entries at ``optional`` positions may be absent."""

    def evaluate(frame: Frame) -> dict[Value, Value]:
        frame.add_cost(NEW_MAP)
        result: dict[Value, Value] = {}
        for position, (read_key, read_value) in enumerate(entries):
            key, value = read_key(frame), read_value(frame)
            if position in optional:
                if not _present(value):
                    continue
                value = value.value
            if type(key) not in values.KEYS:
                raise CELRuntimeError(f"unsupported key type: {values.kind_of(key)}")
            result[values.to_key(key)] = value
        return result

    return evaluate


def _present(value: Value) -> bool:
    if type(value) is not Optional:
        kind = values.kind_of(value)
        raise CELRuntimeError(f"cannot initialize optional element from non-optional value {kind}")
    return value.present


def fold(
    over: Closure, initial: Closure, *, variables: Sequence[int], accumulator: int,
    condition: Closure, step: Closure, result: Closure, absorbs: bool,
) -> Closure:  # fmt: skip
    """A closure that loops over a list or a map.

    ``absorbs``: keep an error until a later round decides.
    """

    first, *others = variables

    def evaluate(frame: Frame) -> Value:
        slots = frame.slots
        elements = _pairs(over(frame)) if others else values.iterate(over(frame))
        slots[accumulator] = initial(frame)
        for element in elements:
            if others:
                slots[first], slots[others[0]] = element
            else:
                slots[first] = element
            if condition(frame) is False:
                break
            try:
                slots[accumulator] = step(frame)
            except CostLimitError:
                raise
            except CELRuntimeError as error:
                if not absorbs:
                    raise
                slots[accumulator] = error.as_value()
            if frame.cost > LIMIT:
                raise CostLimitError
        return result(frame)

    return evaluate


def _pairs(over: Value) -> Iterable[tuple[Value, Value]]:
    """The elements of a list with their positions, or the entries of a map."""
    keys = values.iterate(over)
    return enumerate(over) if isinstance(over, tuple) else zip(keys, over.values(), strict=True)
