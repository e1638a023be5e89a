"""What a cycle reports besides its decisions: queues, held capacity, gangs and nodes in trouble."""

from dataclasses import dataclass, field

from msgspec import Struct

from kai_py.api.references import PodRef
from kai_py.grouping.gang import Owner
from kai_py.snapshot.tables.queues import EvictionRecord, QueueProblem, UsageRecord


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue in this cycle with its subtree; amounts by quota resource, in quota units.

    ``non_preemptible`` is the part of ``allocated`` that can't be reclaimed. ``pending_gangs``
    counts gangs of the queue itself. ``infeasible``: the part of ``requested`` that the cluster can
    never serve, so that it does not count as demand. ``scaled_deserved`` has, for each deserved
    amount that the cluster is too small for, the amount that it is scaled to. A ``parent`` of ""
    means root; a queue whose written parent is unusable counts as a root, too, and has a problem
    that says so.
    ``owed`` counts against ``maximum``, ``owed_non_preemptible`` against ``deserved``, beside what
    is allocated: shared claims that other queues are charged with (``plan.state.shared_claims``).
    ``is_open``: every namespace may use it.
    """

    queue: str
    deserved: dict[str, float]
    maximum: dict[str, float]
    fair_share: dict[str, float]
    allocated: dict[str, float]
    requested: dict[str, float]
    pending_gangs: int
    problems: tuple[QueueProblem, ...] = ()
    parent: str = ""
    scaled_deserved: dict[str, float] = field(default_factory=dict)
    infeasible: dict[str, float] = field(default_factory=dict)
    non_preemptible: dict[str, float] = field(default_factory=dict)
    owed: dict[str, float] = field(default_factory=dict)
    owed_non_preemptible: dict[str, float] = field(default_factory=dict)
    priority: int = 100
    is_open: bool = False
    spares: tuple[str, ...] = ()
    """Nodes that the queue keeps for repairs."""
    absent_classes: tuple[str, ...] = ()
    """DeviceClasses that the queue names and that do not exist."""
    api_version: str = ""
    """The API that the queue was written in."""
    past_usage: UsageRecord | None = field(default=None, compare=False)
    """Past usage up to this cycle, where a history of it is kept."""
    evictions: tuple[EvictionRecord, ...] = ()
    """Past evictions, this cycle's included, where a limit or the cooldown counts them."""


class ObjectProblem(Struct, frozen=True):
    """An object of the cluster that can't be used; ``message`` names the field and the defect."""

    object: Owner
    message: str


class CapacityHold(Struct, frozen=True):
    """Capacity that is held for pods of a gang that its framework has not created yet.

    ``is_over``: it was held and no longer is, as they were not created in time.
    """

    gang: str
    owner: Owner
    message: str
    is_over: bool = False


class CheckpointRequest(Struct, frozen=True):
    """Pods of a gang that are asked to save their work until ``by`` (seconds since the epoch)."""

    gang: str
    owner: Owner
    pods: tuple[PodRef, ...]
    by: float
    message: str


class GangAtRisk(Struct, frozen=True):
    """A gang with pods on a node that is about to go, and how it is treated."""

    gang: str
    owner: Owner
    message: str


class GangStarting(Struct, frozen=True):
    """A gang on nodes whose pods have not become ready, and why."""

    gang: str
    owner: Owner
    message: str


class AvoidedNode(Struct, frozen=True):
    """A node that comes last for a while, and why."""

    node: str
    message: str


class AvoidedDevice(Struct, frozen=True):
    """A device of ``node`` that is not allocated for ``seconds``, and why.

    ``key``: its driver, pool and name.
    """

    key: tuple[str, str, str]
    node: str
    seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """A gang that gets no turn for a while, and why; ``error``: the traceback, if one was raised.

    ``gang``: its key; for a score or action of an installed package, what that is and its name.
    """

    gang: str
    message: str
    error: str = field(default="", compare=False)
