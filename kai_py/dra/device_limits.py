"""Quota limits that a device counts towards.

A limit names an attribute, or a capacity, with its domain, and the values that count. Attributes
are compared as text, a list by any of its elements; capacities as quantities. Or it is a CEL
expression: the devices for which it is true count, those on which it fails do not (devices of
another driver have other attributes). An expression that does not compile counts nothing, and its
queue reports it.
"""

from collections.abc import Iterable, Iterator, Set
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kai_py.api.bounded import remember
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import DeviceAttribute
from kai_py.cel.expression import CompileError
from kai_py.dra.device_kinds import DeviceKind
from kai_py.dra.eligibility import ExpressionCompileError, ExpressionRuntimeError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.identity import DeviceID
from kai_py.dra.rows import DeviceRow, names_identifier
from kai_py.dra.selectors.selector import compile_selector
from kai_py.dra.spending import SelectorAllowance, SelectorsTooExpensiveError
from kai_py.snapshot.tables.queues import DeviceLimit, QueueFault, QueueInfo, QueueProblem

COST_OF_LIMITS = 2_000_000
"""What evaluating the selector of a limit, which administrators write, may cost."""
MAX_KNOWN = 65_536


class DeviceLimits(Struct):
    """The limits by which devices are counted.

    What selectors say is kept by kind of device, or by device where they read what is its own.
    """

    limits: tuple[DeviceLimit, ...] = ()
    _expressions: CompiledExpressions = field(
        default_factory=lambda: CompiledExpressions(SelectorAllowance(COST_OF_LIMITS))
    )
    _by_kind: dict[tuple[str, str], bool] = field(default_factory=dict)
    _by_row: "WeakKeyDictionary[DeviceRow, dict[str, bool]]" = field(
        default_factory=WeakKeyDictionary
    )
    """A device that is published again has a new row."""

    def replace(self, limits: Iterable[DeviceLimit]) -> None:
        """Count by these limits."""
        before, self.limits = self.limits, tuple(sorted(set(limits)))
        if before != self.limits:
            self._by_row.clear()

    def start_cycle(self) -> None:
        """What may be spent on selectors is whole again."""
        self._expressions.allowance.start_cycle()

    def resources_of(self, row: DeviceRow) -> tuple[str, ...]:
        """The quota resources towards which an allocated ``row`` counts."""
        return tuple(limit.resource for limit in self.limits if self._counts(row, limit))

    def counted(self, kind: DeviceKind, limit: DeviceLimit, without: Set[str] = frozenset()) -> int:
        """How many of the devices count towards one of the limits; ``without``: nodes of none."""
        if names_identifier(limit.selector or limit.attribute):
            rows = (row for row in kind.rows if row.reach.node_name not in without)
            return sum(self._counts(row, limit) for row in rows)
        return kind.devices_beside(without) if self._counts(kind.row, limit) else 0

    def counted_by_identifier(
        self, kinds: Iterable[DeviceKind]
    ) -> Iterator[tuple[DeviceLimit, DeviceID]]:
        """The devices that count where a limit names what is a device's own."""
        limits = [each for each in self.limits if names_identifier(each.selector or each.attribute)]
        for row in (row for kind in kinds if limits for row in kind.rows):
            yield from ((limit, row.id) for limit in limits if self._counts(row, limit))

    def _counts(self, row: DeviceRow, limit: DeviceLimit) -> bool:
        if not limit.selector:
            return counts_towards(row, limit)
        if names_identifier(limit.selector):
            of_row = self._by_row.setdefault(row, {})
            if limit.selector not in of_row:
                of_row[limit.selector] = self._matches(row, limit.selector)
            return of_row[limit.selector]
        key = limit.selector, row.kind
        known = self._by_kind.get(key)
        if known is None:
            known = self._matches(row, limit.selector)
            remember(self._by_kind, key, known, MAX_KNOWN)
        return known

    def _matches(self, row: DeviceRow, selector: str) -> bool:
        self._expressions.allowance.begin(selector.encode())
        try:
            return self._expressions.matches(selector, row)
        except (ExpressionCompileError, ExpressionRuntimeError, SelectorsTooExpensiveError):
            return False


def selector_problems(queues: Iterable[QueueInfo]) -> Iterator[QueueProblem]:
    """Selectors of limits that do not compile."""
    for queue in queues:
        for limit in queue.device_limits:
            problem = selector_problem(limit.selector) if limit.selector else ""
            if problem:
                reason = (
                    f'queue "{queue.name}": spec.limits: selector {limit.selector} is ignored, '
                    f"correct it: {problem}"
                )
                yield QueueProblem(queue.name, QueueFault.INVALID_SELECTOR, reason)


def selector_problem(selector: str) -> str:
    """What is wrong with the selector of a limit; "" if nothing is."""
    compiled = compile_selector(selector)
    return compiled.message if isinstance(compiled, CompileError) else ""


def counts_towards(row: DeviceRow, limit: DeviceLimit) -> bool:
    """Whether an allocated ``row`` counts towards a ``limit`` by attribute."""
    names = _names(row, limit.attribute)
    for name in names:
        attribute = row.device.attributes.get(name)
        if attribute is not None:
            return any(text in limit.values for text in _value_texts(attribute))
    return any(
        capacity.name in names and capacity.value in (_nano(value) for value in limit.values)
        for capacity in row.capacities
    )


def _names(row: DeviceRow, attribute: str) -> tuple[str, ...]:
    """The names under which the device may have the attribute: bare in its driver's domain."""
    domain, _, bare = attribute.partition("/")
    return (attribute, bare) if domain == row.id.driver else (attribute,)


def _value_texts(attribute: DeviceAttribute) -> Iterator[str]:
    if attribute.bool_value is not None:
        yield str(attribute.bool_value).lower()
    for flag in attribute.bool_values or ():
        yield str(flag).lower()
    for value in (attribute.string_value, attribute.version_value, attribute.int_value):
        if value is not None:
            yield str(value)
    for several in (attribute.string_values, attribute.version_values, attribute.int_values):
        yield from (str(value) for value in several or ())


def _nano(value: str) -> int | None:
    try:
        return parse_quantity(value).nano
    except QuantityError:
        return None
