"""Queues of all APIs as written, and their faults: parents, cycles, duplicates, amounts.

A fault is a value that names the queue, the field and what to do. Nothing is dropped: a queue
without a usable parent becomes a root (``orphans``), an impossible number counts as none, and of
two queues of one name the older counts.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from kai_py.api.queue import API_VERSION, QUEUE_NAME_KEY
from kai_py.api.records.core import LabelSelector
from kai_py.api.spot import SpotFallback, SpotUse

DEVICE_ATTRIBUTE = "deviceattribute/"
DEVICE_SELECTOR = "deviceselector/"
MAX_DEPTH = 32
"""Most levels of queues below a root: a cycle does work for every level."""
MAX_WEIGHT = 1e15
"""Weights of memory may be in bytes, as in queues of KAI."""
MAX_PRIORITY = 2**31 - 1
MAX_LISTED = 8
"""Most queues that a message about a cycle lists."""


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Past use of one queue by resource, decayed up to ``at``, as its status records it.

    ``held``: amount-seconds of the queue; ``offered``: of the cluster in the same time. Both with
    the ``half_life`` in seconds; 0 where nothing decays.
    """

    at: float
    used: Mapping[str, float]
    capacity: Mapping[str, float]
    half_life: float = 0.0


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """``pods`` of the gang called ``gang`` were evicted for others, ``at`` whole unix seconds."""

    gang: str
    at: float
    pods: int


@dataclass(frozen=True, slots=True, order=True)
class DeviceLimit:
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


@dataclass(frozen=True, slots=True)
class NamespaceRule:
    """The namespaces whose workloads a queue takes: those named, and those selected by label."""

    names: tuple[str, ...] = ()
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue as it was written, in the units of the resource rows.

    Of a resource missing in ``deserved`` nothing is guaranteed, except for cpu, memory and the
    other base resources: these are not rationed by a queue that does not name them. A resource
    missing in ``max`` is unlimited, in ``weights`` it has ``weight``. ``created``, min runtimes,
    ``reserve_after`` and ``ageing`` are in seconds; None is inherited, also for ``ageing_limit``
    and ``max_evictions_per_hour``.
    ``api_version``: the API it was written in; ``problems``: faults already found there;
    ``device_limits``: what its rows by attribute count; ``usage`` and ``evictions``: as recorded in
    its status; ``namespaces`` whose workloads it takes (None: all). To an ``unlimited`` queue
    every resource that it does not name is guaranteed without limit. ``spot``, ``spot_fallback``:
    ``ready_timeout`` (seconds), ``ready_attempts``: None is inherited. ``spares``: nodes that only
    gangs use which repair a loss (``kai_py.policy.spares``).
    """

    name: str
    parent: str = ""
    deserved: Mapping[str, float] = field(default_factory=dict)
    max: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    priority: int = 100
    created: float = 0.0
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    reserve_after: float | None = None
    ageing: float | None = None
    ageing_limit: float | None = None
    max_evictions_per_hour: float | None = None
    api_version: str = ""
    problems: "tuple[QueueProblem, ...]" = ()
    usage: UsageRecord | None = None
    evictions: tuple[EvictionRecord, ...] = ()
    device_limits: tuple[DeviceLimit, ...] = ()
    namespaces: NamespaceRule | None = None
    unlimited: bool = False
    spot: SpotUse | None = None
    spot_fallback: SpotFallback | None = None
    ready_timeout: float | None = None
    ready_attempts: int | None = None
    spares: LabelSelector | None = None


def inherited(
    queues: Iterable[QueueInfo], own: Callable[[QueueInfo], float | None]
) -> dict[str, float]:
    """The value of each queue, or else of its nearest ancestor with one; others are left out."""
    specs = {spec.name: spec for spec in queues}
    if all(own(spec) is None for spec in specs.values()):
        return {}
    found: dict[str, float | None] = {}
    for name in specs:
        at, walk = name, dict[str, None]()
        value: float | None = None
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
    """What is wrong with a queue."""

    MISSING_PARENT = "MissingParent"
    CYCLE = "Cycle"
    DUPLICATE = "Duplicate"
    INVALID_AMOUNT = "InvalidAmount"
    INVALID_SELECTOR = "InvalidSelector"
    TOO_DEEP = "TooDeep"


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """A fault of one queue; ``reason`` is a sentence that says what to change."""

    queue: str
    fault: QueueFault
    reason: str


@dataclass(frozen=True, slots=True)
class CheckedQueues:
    """Queues by age with unique names and usable numbers; a parent of "" means root."""

    queues: tuple[QueueInfo, ...]
    parents: Mapping[str, str]
    orphans: frozenset[str]
    problems: tuple[QueueProblem, ...]


def check_queues(specs: Iterable[QueueInfo], resources: Sequence[str]) -> CheckedQueues:
    """Usable queues, oldest first, and every fault, in an order that listing does not change."""
    problems: list[QueueProblem] = []
    unique: dict[str, QueueInfo] = {}
    for spec in _oldest_first(specs):
        if spec.name in unique:
            problems.append(_duplicate(unique[spec.name], spec))
            continue
        problems.extend(spec.problems)
        unique[spec.name] = _with_usable_amounts(spec, resources, problems)
    parents = {name: spec.parent for name, spec in unique.items()}
    broken = _broken_parents(parents)
    broken.update(_too_deep(parents, broken))
    return CheckedQueues(
        queues=tuple(unique.values()),
        parents={name: "" if name in broken else parent for name, parent in parents.items()},
        orphans=frozenset(broken),
        problems=(*problems, *broken.values()),
    )


def _oldest_first(specs: Iterable[QueueInfo]) -> list[QueueInfo]:
    """By age, then name; only duplicates by their text, which is slow to make."""
    listed = sorted(specs, key=lambda spec: (spec.created, spec.name))
    if len({spec.name for spec in listed}) < len(listed):
        listed.sort(key=lambda spec: (spec.created, spec.name, repr(spec)))
    return listed


def _duplicate(first: QueueInfo, other: QueueInfo) -> QueueProblem:
    reason = (
        f"queue {first.name!r} is declared more than once; the oldest declaration takes precedence"
    )
    if first.api_version != other.api_version:
        reason += f", here that of {first.api_version}; delete that of {other.api_version}"
    return QueueProblem(first.name, QueueFault.DUPLICATE, reason)


def _with_usable_amounts(
    spec: QueueInfo, resources: Sequence[str], problems: list[QueueProblem]
) -> QueueInfo:
    """The queue with every negative or undefined amount replaced by 0; itself if there is none."""
    known = len(problems)

    def report(where: str, amount: float, wanted: str, treated_as: float) -> float:
        reason = (
            f"queue {spec.name!r}: {where} is {amount}, must be {wanted}; "
            f"it is treated as {treated_as:g}"
        )
        problems.append(QueueProblem(spec.name, QueueFault.INVALID_AMOUNT, reason))
        return treated_as

    def usable(where: str, amount: float, *, unlimited: bool) -> float:
        if not amount >= 0 or (not unlimited and math.isinf(amount)):
            wanted = "a number of at least 0" + ("" if unlimited else ", and finite")
            return report(where, amount, wanted, 0.0)
        if not unlimited and amount > MAX_WEIGHT:
            return report(where, amount, f"at most {MAX_WEIGHT:g}", MAX_WEIGHT)
        return amount

    def row(where: str, amounts: Mapping[str, float], *, unlimited: bool) -> dict[str, float]:
        return {
            name: usable(f"{where}[{name}]", amounts[name], unlimited=unlimited)
            for name in resources
            if name in amounts
        }

    deserved = row("deserved", spec.deserved, unlimited=True)
    most = row("max", spec.max, unlimited=True)
    weight = usable("weight", spec.weight, unlimited=False)
    weights = row("weights", spec.weights, unlimited=False)
    priority = max(-MAX_PRIORITY, min(spec.priority, MAX_PRIORITY))
    if priority != spec.priority:
        report("priority", priority, f"within {MAX_PRIORITY} of 0", priority)
    if len(problems) == known:
        return spec
    return replace(
        spec, deserved=deserved, max=most, weight=weight, weights=weights, priority=priority
    )


def _broken_parents(parents: Mapping[str, str]) -> dict[str, QueueProblem]:
    """Queues whose parent cannot be used: it does not exist, or they are their own ancestor."""
    broken = {
        name: _missing_parent(name, parent)
        for name, parent in parents.items()
        if parent and parent not in parents
    }
    settled = {"", *broken}
    for start in parents:
        walk: dict[str, None] = {}
        name = start
        while name not in settled and name not in walk:
            walk[name] = None
            name = parents[name]
        if name in walk:
            cycle = list(walk)[list(walk).index(name) :]
            broken.update({member: _cycle(member, cycle) for member in cycle})
        settled.update(walk)
    return broken


def _too_deep(
    parents: Mapping[str, str], broken: Mapping[str, QueueProblem]
) -> dict[str, QueueProblem]:
    """The queues at which a tree is cut, so that no queue is more than ``MAX_DEPTH`` below one."""
    depth: dict[str, int] = {}
    cut: dict[str, QueueProblem] = {}
    for start in parents:
        walk: list[str] = []
        name = start
        while name not in depth:
            walk.append(name)
            if name in broken or not parents[name]:
                break
            name = parents[name]
        for each in reversed(walk):
            is_root = each in broken or not parents[each]
            below = 0 if is_root else depth[parents[each]] + 1
            if below > MAX_DEPTH:
                cut[each] = _cut(each, parents[each])
                below = 0
            depth[each] = below
    return cut


def _cut(name: str, parent: str) -> QueueProblem:
    reason = (
        f"queue {name!r}: parent {parent!r} is {MAX_DEPTH} levels deep, the most that queues may "
        "be nested; give it a parent nearer to the root"
    )
    return QueueProblem(name, QueueFault.TOO_DEEP, reason)


def _missing_parent(name: str, parent: str) -> QueueProblem:
    reason = f"queue {name!r}: parent {parent!r} does not exist; create it or correct parent"
    return QueueProblem(name, QueueFault.MISSING_PARENT, reason)


def _cycle(name: str, cycle: Sequence[str]) -> QueueProblem:
    at = cycle.index(name)
    others = (*cycle[at + 1 :], *cycle[:at])
    listed = (*others[:MAX_LISTED], "…") if len(others) > MAX_LISTED else others
    ring = " > ".join((name, *listed, name))
    reason = f"queue {name!r} is its own ancestor ({ring}); give one of them another parent"
    return QueueProblem(name, QueueFault.CYCLE, reason)


def closed_by_default(specs: Sequence[QueueInfo]) -> tuple[QueueInfo, ...]:
    """``specs`` with a rule for each of our queues that takes pods and is under no rule.

    It takes the namespaces that name it in their label: that is for who may edit namespaces, which
    tenants may not. KAI's Queues have no rules and stay open.
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
        if old is not None:
            self._queues.pop((self._queue_info(old).name, kind), None)
        if new is not None:
            spec = self._queue_info(new)
            self._queues[spec.name, kind] = spec
        self._set_limits(self.device_limits())

    def specs(self) -> tuple[QueueInfo, ...]:
        """All of them, in an order that arrival does not change."""
        found = tuple(self._queues[key] for key in sorted(self._queues))
        if not self._open_queues:
            found = closed_by_default(found)
        default = self._default_queue
        if default is None or any(spec.name == default.name for spec in found):
            return found
        return (*found, default)

    def device_limits(self) -> Iterator[DeviceLimit]:
        """What is counted by attributes of devices."""
        return (limit for spec in self._queues.values() for limit in spec.device_limits)
