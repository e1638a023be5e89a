"""Queues of all APIs, as they were written."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kai_py.api.queue import API_VERSION, QUEUE_NAME_KEY
from kai_py.api.records.core import LabelSelector
from kai_py.api.spot import SpotFallback, SpotUse

Value = TypeVar("Value")

DEVICE_ATTRIBUTE = "deviceattribute/"
DEVICE_SELECTOR = "deviceselector/"


class UsageRecord(Struct, frozen=True):
    """Past use of one queue by resource, decayed up to ``at``, as its status records it.

    ``used``: amount-seconds of the queue; ``capacity``: of the cluster in the same time. Both decay
    with the ``half_life`` in seconds; 0 where nothing decays.
    """

    at: float
    used: Mapping[str, float]
    capacity: Mapping[str, float]
    half_life: float = 0.0


class EvictionRecord(Struct, frozen=True):
    """``pods`` of the gang called ``gang`` were evicted for others, ``at`` whole unix seconds.

    ``within_queue``: by preemption, for a gang of the same queue.
    """

    gang: str
    at: float
    pods: int
    within_queue: bool = False


class DeviceLimit(Struct, frozen=True, order=True):
    """Devices one of whose attributes, or capacities, has any of these values.

    Or those for which a CEL expression, ``selector``, is true.
    """

    attribute: str = ""
    values: tuple[str, ...] = ()
    selector: str = ""

    @property
    def resource(self) -> str:
        """The quota resource that counts them."""
        if self.selector:
            return f"{DEVICE_SELECTOR}{self.selector}"
        return f"{DEVICE_ATTRIBUTE}{self.attribute}={'|'.join(self.values)}"


class NamespaceRule(Struct, frozen=True):
    """The namespaces whose workloads a queue takes: those named, and those selected by label."""

    names: tuple[str, ...] = ()
    selector: LabelSelector | None = None


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A queue as it was written, in the units of the resource rows; times are in seconds.

    None is inherited, except for ``usage``, ``namespaces`` and ``spares``.
    """

    name: str
    parent: str = ""
    deserved: Mapping[str, float] = field(default_factory=dict)
    """Nothing is guaranteed of a resource that is missing, except for cpu, memory and the other
    base resources: a queue that does not name them is guaranteed all of them."""
    max: Mapping[str, float] = field(default_factory=dict)
    """A resource that is missing is unlimited."""
    weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    """By resource, in place of ``weight``."""
    priority: int = 100
    created: float = 0.0
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    reserve_after: float | None = None
    ageing: float | None = None
    ageing_limit: float | None = None
    max_evictions_per_hour: float | None = None
    api_version: str = ""
    """The API that it was written in."""
    problems: "tuple[QueueProblem, ...]" = ()
    """Faults already found there."""
    usage: UsageRecord | None = None
    """Past usage as recorded in its status."""
    evictions: tuple[EvictionRecord, ...] = ()
    """Past evictions as recorded in its status."""
    device_limits: tuple[DeviceLimit, ...] = ()
    """The devices that its rows by attribute count."""
    namespaces: NamespaceRule | None = None
    """Whose workloads it takes; None: all."""
    unlimited: bool = False
    """Every resource that it does not name is guaranteed without limit."""
    spot: SpotUse | None = None
    spot_fallback: SpotFallback | None = None
    ready_timeout: float | None = None
    ready_attempts: int | None = None
    spares: LabelSelector | None = None
    """Nodes that only gangs use which repair a loss (``kai_py.policy.spares``)."""


def with_ancestors(queues: Iterable[str], specs: Iterable[QueueInfo]) -> frozenset[str]:
    """The queues and all above them; a cycle of parents ends where it closes."""
    parents = {spec.name: spec.parent for spec in specs}
    found: set[str] = set()
    for queue in queues:
        at = queue
        while at and at not in found:
            found.add(at)
            at = parents.get(at, "")
    return frozenset(found)


def inherited(
    queues: Iterable[QueueInfo], own: Callable[[QueueInfo], Value | None]
) -> dict[str, Value]:
    """The value of each queue, or else of its nearest ancestor with one; others are left out."""
    specs = {spec.name: spec for spec in queues}
    if not [spec for spec in specs.values() if own(spec) is not None]:
        return {}
    found: dict[str, Value | None] = {}
    for name in specs:
        at, walk = name, dict[str, None]()
        value: Value | None = None
        while at in specs and at not in walk and value is None:
            walk[at] = None
            if at in found:
                value = found[at]
                break
            value = own(specs[at])
            at = specs[at].parent
        found.update(dict.fromkeys(walk, value))
    return {name: value for name, value in found.items() if value is not None}


class QueueFault(StrEnum):
    """The problem of a queue."""

    MISSING_PARENT = "MissingParent"
    CYCLE = "Cycle"
    DUPLICATE = "Duplicate"
    INVALID_AMOUNT = "InvalidAmount"
    INVALID_SELECTOR = "InvalidSelector"
    TOO_DEEP = "TooDeep"


class QueueProblem(Struct, frozen=True):
    """A fault of one queue; ``reason`` is a sentence that says what to change."""

    queue: str
    fault: QueueFault
    reason: str


def closed_by_default(specs: Sequence[QueueInfo]) -> tuple[QueueInfo, ...]:
    """``specs`` with a rule for each of our queues that takes pods and is under no rule.

    It takes the namespaces that name it in their label: only those who may edit namespaces can set
    it, which tenants may not. KAI's Queues have no rules and stay open.
    """
    parents = {spec.name: spec.parent for spec in specs}
    ruled = {spec.name for spec in specs if spec.namespaces is not None}
    inner = set(parents.values())

    def is_under_a_rule(name: str) -> bool:
        seen: dict[str, None] = {}
        while name in parents and name not in seen:
            if name in ruled:
                return True
            seen[name] = None
            name = parents[name]
        return False

    return tuple(
        replace(spec, namespaces=_named_by_label(spec.name))
        if spec.api_version == API_VERSION
        and spec.name not in inner
        and not is_under_a_rule(spec.name)
        else spec
        for spec in specs
    )


def _named_by_label(name: str) -> NamespaceRule:
    return NamespaceRule(selector=LabelSelector(match_labels={QUEUE_NAME_KEY: name}))


class QueueInfos:
    """Queues by name and the collection in which they were found."""

    kinds: ClassVar[tuple[str, ...]] = ("queues",)

    def __init__(
        self,
        queue_info: Callable[[object], QueueInfo],
        default_queue: QueueInfo | None,
        set_limits: Callable[[Iterable[DeviceLimit]], None],
        *,
        open_queues: bool = True,
    ) -> None:
        """Start empty; ``open_queues`` as in the settings.

        ``queue_info`` reads a watched Queue of any API. ``default_queue`` counts as long as there
        is no object of its name. ``set_limits`` is called with the device limits of all queues.
        """
        self._queue_info = queue_info
        self._default_queue = default_queue
        self._set_limits = set_limits
        self._open_queues = open_queues
        self._queues: dict[tuple[str, str], QueueInfo] = {}

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a Queue of the collection ``kind``."""
        before = after = None
        if old is not None:
            before = self._queues.pop((self._queue_info(old).name, kind), None)
        if new is not None:
            after = self._queue_info(new)
            before = self._queues.get((after.name, kind), before)
            self._queues[after.name, kind] = after
        if (before.device_limits if before else ()) != (after.device_limits if after else ()):
            self._set_limits(self.device_limits())

    def specs(self) -> tuple[QueueInfo, ...]:
        """All queues, in an order that does not depend on when they were read."""
        found = tuple(self._queues[key] for key in sorted(self._queues))
        if not self._open_queues:
            found = closed_by_default(found)
        default = self._default_queue
        if default is None or any(spec.name == default.name for spec in found):
            return found
        return (*found, default)

    def device_limits(self) -> Iterator[DeviceLimit]:
        """The devices that are counted by their attributes."""
        return (limit for spec in self._queues.values() for limit in spec.device_limits)
