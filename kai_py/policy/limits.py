"""May a gang start under the limits of its queue and of every queue above it?

Two rules, each only for resources that the gang asks for:

- what the queue holds plus the request stays within ``max``;
- what non-preemptible pods hold plus a non-preemptible request stays within ``deserved``, for what
  cannot be taken back may not be lent.

A refusal is a value: the queue nearest to the gang that refuses, and the numbers compared.
O(resources x depth).
"""

from dataclasses import dataclass
from enum import StrEnum

from kai_py.policy.queue_usage import Standing, exceeds
from kai_py.snapshot.queue_specs import DEVICE_ATTRIBUTE
from kai_py.snapshot.resources import Floats


class Bound(StrEnum):
    """Which bound of a queue was met."""

    MAX = "OverLimit"
    DESERVED = "NonPreemptibleOverQuota"


@dataclass(frozen=True, slots=True)
class BoundExceeded:
    """``allocated`` + ``requested`` > ``limit`` of row ``resource`` in ``queue``.

    For ``Bound.DESERVED`` only non-preemptible pods count as allocated.
    """

    bound: Bound
    queue: str
    resource: int
    limit: float
    allocated: float
    requested: float

    def message(self, resource_name: str) -> str:
        """One sentence for people, in the wording that KAI users search for."""
        noun, per_unit = units_of(resource_name)
        limit, held, asked = (
            f"{amount / per_unit:g} {noun}"
            for amount in (self.limit, self.allocated, self.requested)
        )
        if self.bound is Bound.MAX:
            return (
                f"{self.queue} quota has reached the allowable limit of {noun}. Limit is {limit}, "
                f"currently {held} allocated and workload requested {asked}"
            )
        return (
            f"Non-preemptible workload is over quota. Workload requested {asked}, but {self.queue} "
            f"quota is {limit}, while {held} are already allocated for non-preemptible pods. "
            "Use a preemptible workload to go over quota."
        )


def check_limits(
    standing: Standing, queue: int, request: Floats, *, preemptible: bool
) -> BoundExceeded | None:
    """Both rules for ``request`` (resources,) in ``queue``; None means it may start."""
    if preemptible and not standing.queues.has_max[queue]:
        return None
    over = check_max(standing, queue, request)
    if over is not None or preemptible:
        return over
    return check_deserved(standing, queue, request)


def check_max(standing: Standing, queue: int, request: Floats) -> BoundExceeded | None:
    """The first rule alone."""
    return _first_exceeded(standing, queue, request, Bound.MAX)


def check_deserved(standing: Standing, queue: int, request: Floats) -> BoundExceeded | None:
    """The second rule alone, for a non-preemptible request."""
    return _first_exceeded(standing, queue, request, Bound.DESERVED)


def _compared(standing: Standing, bound: Bound) -> tuple[Floats, Floats]:
    """The bound of every queue and what counts against it."""
    if bound is Bound.MAX:
        return standing.queues.max, standing.allocated
    return standing.queues.deserved, standing.non_preemptible


def _first_exceeded(
    standing: Standing, queue: int, request: Floats, bound: Bound
) -> BoundExceeded | None:
    limit, held = _compared(standing, bound)
    line = standing.queues.ancestors(queue)[::-1]
    asked = request[:, None]
    refused = exceeds(held[:, line] + asked, limit[:, line]) & (asked > 0)
    if not refused.any():
        return None
    step, row = divmod(int(refused.T.argmax()), len(request))
    name = standing.queues.names[line[step]]
    at = (row, line[step])
    return BoundExceeded(bound, name, row, float(limit[at]), float(held[at]), float(request[row]))


def units_of(resource_name: str) -> tuple[str, float]:
    """What a resource is called, and how much of its row is one of it."""
    if resource_name == "cpu":
        return "CPU cores", 1e3
    if resource_name == "memory":
        return "GB memory", 1e9
    if resource_name.startswith("deviceclass/"):
        return f"devices of class {resource_name.removeprefix('deviceclass/')}", 1.0
    if resource_name.startswith(DEVICE_ATTRIBUTE):
        attribute, _, values = resource_name.removeprefix(DEVICE_ATTRIBUTE).partition("=")
        return f"devices with {attribute} {values.replace('|', ' or ')}", 1.0
    return ("GPUs" if resource_name in ("gpu", "nvidia.com/gpu") else resource_name), 1.0
