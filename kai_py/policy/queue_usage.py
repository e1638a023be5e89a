"""Queue usage: what each queue has allocated against what it is entitled to, and its limits.

One value that order, limits and reclaim read. The arrays may be the working state of a cycle:
``allocated`` changes while the cycle places gangs, entitlements do not.

``ExternalUsage`` is the past usage of queues as measured by another source, such as Prometheus, in
place of our own ``usage_history``: averages over a window, as a fraction of what the cluster has
now. Measurements older than ``stale_after`` count as none.

A queue and all its ancestors limit a gang that is about to start by two rules, each only for
resources that the gang requests:

- what the queue has allocated and owes plus the request stays within ``max``;
- what non-preemptible pods have allocated and owe plus a non-preemptible request stays within
  ``deserved``, because capacity that can't be reclaimed must not be borrowed.

A refusal is a value: the refusing queue nearest to the gang, and the numbers compared. O(resources
x depth).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index, QueueTable
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR


@dataclass(frozen=True)
class QueueUsage:
    """Amounts (resources, queues), each with the queue's subtree; ``total`` (resources,).

    ``allocated`` counts pods on nodes (of those that terminate the lingering ones),
    ``non_preemptible`` those of them that may not be evicted. ``owed``: the claims of these pods
    that other queues are charged with, and that fall to them when the pods there have ended;
    ``owed_non_preemptible`` those of the pods that may not be evicted. They count against bounds
    only.
    """

    queues: QueueTable
    total: Floats
    allocated: Floats
    non_preemptible: Floats
    fair: Floats
    owed: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    owed_non_preemptible: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        """Without amounts owed, these are 0."""
        for name in ("owed", "owed_non_preemptible"):
            if getattr(self, name).shape != self.allocated.shape:
                object.__setattr__(self, name, np.zeros_like(self.allocated))

    @cached_property
    def allocatable(self) -> Floats:
        """(resources, queues) the most a queue may have undisturbed; inf where unbounded."""
        entitled = np.maximum(self.queues.deserved, self.fair)
        return np.minimum(self.queues.max, entitled)

    @cached_property
    def bounds_by_queue(self) -> list[list[list[float]]]:
        """By queue and resource, what the order of queues compares amounts with.

        The most that counts as within the fair share, and as within what is deserved; allocatable;
        and the same with the cluster's total in place of inf.
        """
        fair, deserved = self.fair, self.queues.deserved
        within = fair + tolerance(fair), deserved + tolerance(deserved)
        finite = np.where(np.isinf(self.allocatable), self.total[:, None], self.allocatable)
        columns = np.stack((*within, self.allocatable, finite), axis=-1)
        by_queue: list[list[list[float]]] = columns.transpose(1, 0, 2).tolist()
        return by_queue

    def with_owed(self, owed: Floats, owed_non_preemptible: Floats) -> "QueueUsage":
        """The same usage with other amounts owed, (resources, queues) each."""
        return replace(self, owed=owed, owed_non_preemptible=owed_non_preemptible)

    def counted(self, bound: "QuotaBound", at: Index | int) -> Floats:
        """(resources, n) what counts against a bound of the queues ``at`` (n,), or of one."""
        own, owed = self.allocated, self.owed
        if bound is QuotaBound.DESERVED:
            own, owed = self.non_preemptible, self.owed_non_preemptible
        counted: Floats = own[:, at] + owed[:, at]
        return counted


def copy_usage(usage: QueueUsage) -> QueueUsage:
    """A copy of ``usage`` that later placements and evictions do not change."""
    return replace(
        usage,
        allocated=usage.allocated.copy(),
        non_preemptible=usage.non_preemptible.copy(),
        owed=usage.owed.copy(),
        owed_non_preemptible=usage.owed_non_preemptible.copy(),
    )


def exceeds(amount: Floats, bound: Floats) -> Bools:
    """Whether amounts are above bounds by more than the rounding errors of sums of fractions."""
    return np.greater(amount, bound + tolerance(bound))


def is_above(amount: float, bound: float) -> bool:
    """``exceeds`` for one amount."""
    return amount > bound + (1e-9 + 1e-12 * abs(bound))


def exceeds_any(amount: Floats, bound: Floats) -> Bools:
    """(n,) whether amounts (resources, n) are above their bounds in any resource."""
    return np.asarray(exceeds(amount, bound).any(axis=0))


def tolerance(bound: Floats) -> Floats:
    """How far above each bound an amount still counts as equal."""
    slack: Floats = 1e-9 + 1e-12 * np.abs(bound)
    return slack


def shared_depth(queues: QueueTable, queue: int) -> Index:
    """(queues,) how many ancestors, itself included, each queue shares with ``queue``."""
    cached = queues.shared_depths.get(queue)
    if cached is None:
        same = (queues.path == queues.path[queue]) & (queues.path >= 0)
        cached = np.cumprod(same, axis=1, dtype=np.int32).sum(axis=1, dtype=np.int32)
        queues.shared_depths[queue] = cached
    return cached


def diverging_siblings(queues: QueueTable, queue: int) -> tuple[Index, Index]:
    """(queues,) twice: the siblings at which the paths of ``queue`` and of each queue diverge.

    They are on the first level at which the paths differ, the first on the side of ``queue``. Where
    one queue is an ancestor of the other, both are that ancestor.
    """
    cached = queues.divergence.get(queue)
    if cached is None:
        max_level = np.minimum(queues.depth, queues.depth[queue])
        level = np.minimum(shared_depth(queues, queue), max_level)
        ours = queues.path[queue, level]
        theirs = np.take_along_axis(queues.path, level[:, None].astype(np.intp), axis=1)[:, 0]
        cached = queues.divergence[queue] = (ours, theirs)
    return cached


UsageByQueue = Mapping[str, Mapping[str, float]]
"""Amounts by queue and resource, in quota units."""


@dataclass
class ExternalUsage:
    """The last measurement; it is valid for ``stale_after`` seconds."""

    stale_after: float
    _amounts: UsageByQueue = field(default_factory=dict, init=False)
    _measured_at: float = field(default=-np.inf, init=False)

    def record(self, amounts: UsageByQueue, at: float) -> None:
        """Store ``amounts`` measured ``at`` (seconds since the epoch)."""
        self._amounts, self._measured_at = amounts, at

    def fractions(
        self, now: float, queues: Sequence[str], resources: Sequence[str], total: Floats
    ) -> Floats:
        """(resources, queues) past usage as a fraction of ``total`` (resources,)."""
        used = np.zeros((len(resources), len(queues)))
        if now > self._measured_at + self.stale_after:
            return used
        for column, queue in enumerate(queues):
            amounts = self._amounts.get(queue)
            if amounts:
                used[:, column] = [amounts.get(name, 0.0) for name in resources]
        offered = np.broadcast_to(total[:, None], used.shape)
        return np.divide(used, offered, out=np.zeros_like(used), where=offered > 0)


class QuotaBound(StrEnum):
    """The bound of a queue that is exceeded."""

    MAX = "OverLimit"
    DESERVED = "NonPreemptibleOverQuota"


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """``allocated`` + ``requested`` > ``limit`` of row ``resource`` in ``queue``.

    ``allocated``: with what is owed.

    For ``QuotaBound.DESERVED`` only non-preemptible pods count as allocated.
    """

    bound: QuotaBound
    queue: str
    resource: int
    limit: float
    allocated: float
    requested: float

    def message(self, resource_name: str) -> str:
        """One sentence for people, in the wording that KAI users search for."""
        noun, per_unit = display_unit(resource_name)
        limit, allocated, requested = (
            f"{amount / per_unit:g} {noun}"
            for amount in (self.limit, self.allocated, self.requested)
        )
        if self.bound is QuotaBound.MAX:
            return (
                f"{self.queue} quota has reached the allowable limit of {noun}. Limit is {limit}, "
                f"currently {allocated} allocated and workload requested {requested}"
            )
        return (
            f"Non-preemptible workload is over quota. Workload requested {requested}, but "
            f"{self.queue} quota is {limit}, while {allocated} are already allocated for "
            "non-preemptible pods. "
            "Use a preemptible workload to go over quota."
        )

    def infeasible(self, resource_name: str) -> str:
        """One clause for people: the request alone is above the limit."""
        noun, per_unit = display_unit(resource_name)
        what = "max" if self.bound is QuotaBound.MAX else "deserved"
        return (
            f"it requests {self.requested / per_unit:g} {noun} at once; {what} of queue "
            f"{self.queue} is {self.limit / per_unit:g}"
        )


def check_limits(
    usage: QueueUsage, queue: int, request: Floats, *, preemptible: bool
) -> QuotaExceeded | None:
    """That ``request`` (resources,) exceeds ``max`` or deserved of ``queue``; None if neither."""
    if preemptible and not usage.queues.has_max[queue]:
        return None
    exceeded = check_max(usage, queue, request)
    if exceeded is not None or preemptible:
        return exceeded
    return check_deserved(usage, queue, request)


def check_usage(
    usage: QueueUsage, queue: int, counted: Floats, *, preemptible: bool
) -> QuotaExceeded | None:
    """As ``check_limits``, for what is allocated, where ``counted`` (resources,) is above 0."""
    none = np.zeros_like(counted)
    exceeded = _first_exceeded(usage, queue, none, QuotaBound.MAX, counted > 0)
    if exceeded is not None or preemptible:
        return exceeded
    return _first_exceeded(usage, queue, none, QuotaBound.DESERVED, counted > 0)


def check_max(usage: QueueUsage, queue: int, request: Floats) -> QuotaExceeded | None:
    """As ``check_limits``, for ``max`` alone."""
    return _first_exceeded(usage, queue, request, QuotaBound.MAX)


def check_deserved(usage: QueueUsage, queue: int, request: Floats) -> QuotaExceeded | None:
    """The ``deserved`` rule alone, for a non-preemptible request."""
    return _first_exceeded(usage, queue, request, QuotaBound.DESERVED)


def _first_exceeded(
    usage: QueueUsage,
    queue: int,
    request: Floats,
    bound: QuotaBound,
    counted: Bools | None = None,
) -> QuotaExceeded | None:
    path = usage.queues.ancestors(queue)[::-1]
    every = usage.queues.max if bound is QuotaBound.MAX else usage.queues.deserved
    limit, allocated = every[:, path], usage.counted(bound, path)
    refused = exceeds(allocated + request[:, None], limit)
    refused &= (request > 0 if counted is None else counted)[:, None]
    if not refused.any():
        return None
    # Transposed, so that the nearest queue comes before the first resource.
    step, row = divmod(int(refused.T.argmax()), len(request))
    name = usage.queues.names[path[step]]
    at = (row, step)
    return QuotaExceeded(
        bound, name, row, float(limit[at]), float(allocated[at]), float(request[row])
    )


def display_unit(resource_name: str) -> tuple[str, float]:
    """The name of a resource in messages, and the row amount of one unit of it."""
    if resource_name == "cpu":
        return "CPU cores", 1e3
    if resource_name == "memory":
        return "GB memory", 1e9
    if resource_name.startswith("deviceclass/"):
        return f"devices of class {resource_name.removeprefix('deviceclass/')}", 1.0
    if resource_name.startswith(DEVICE_ATTRIBUTE):
        attribute, _, values = resource_name.removeprefix(DEVICE_ATTRIBUTE).partition("=")
        return f"devices with {attribute} {values.replace('|', ' or ')}", 1.0
    if resource_name.startswith(DEVICE_SELECTOR):
        return f"devices with {resource_name.removeprefix(DEVICE_SELECTOR)}", 1.0
    return ("GPUs" if resource_name in ("gpu", "nvidia.com/gpu") else resource_name), 1.0
