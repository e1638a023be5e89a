"""Queue limits: whether a gang that is about to start stays within its queue's bounds.

A queue and all its ancestors limit the gang by two rules, each only for resources that it requests:

- what the queue has allocated and owes plus the request stays within ``max``;
- what non-preemptible pods have allocated and owe plus a non-preemptible request stays within
  ``deserved``, because capacity that can't be reclaimed must not be borrowed.

A refusal is a value: the refusing queue nearest to the gang, and the numbers compared. O(resources
x depth).
"""

import numpy as np
from msgspec import Struct

from kai_py.api.texts import count_of
from kai_py.policy.queue_usage import QueueUsage, QuotaBound, exceeds
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR


class QuotaExceeded(Struct, frozen=True):
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
        _, per_unit = display_unit(resource_name)
        what = "max" if self.bound is QuotaBound.MAX else "deserved"
        return (
            f"it requests {display_amount(self.requested, resource_name)} at once; {what} of queue "
            f"{self.queue} is {self.limit / per_unit:g}"
        )


def check_limits(
    usage: QueueUsage, queue: int, request: Floats, *, preemptible: bool
) -> QuotaExceeded | None:
    """How ``request`` (resources,) exceeds ``max`` or deserved of ``queue``; else None."""
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
    """As ``check_limits``, for ``max`` alone; ``request``: (resources,)."""
    return _first_exceeded(usage, queue, request, QuotaBound.MAX)


def check_deserved(usage: QueueUsage, queue: int, request: Floats) -> QuotaExceeded | None:
    """The ``deserved`` rule alone, for a non-preemptible ``request`` (resources,)."""
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


def display_amount(amount: float, resource_name: str) -> str:
    """A row amount of a resource as messages give it: ``1 GPU``, ``2 CPU cores``."""
    noun, per_unit = display_unit(resource_name)
    shown = amount / per_unit
    return count_of(shown, "GPU") if noun == "GPUs" else f"{shown:g} {noun}"


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
