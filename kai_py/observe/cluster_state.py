"""State of the cluster for the API and the dashboard: queues, domains of nodes, pending gangs.

The record is bounded. A node takes about two characters, so that ten thousand nodes are still a
small answer; the devices of nodes are served a page at a time (``node_details``). The rows of
queues are also those of the command line.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.groups import grouped
from kai_py.observe.cluster_view import OTHER_SCHEDULERS, ClusterView, NodeUsage
from kai_py.observe.queue_explanation import uncharged_gangs
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan, Unplaced
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_objects import in_api_units


class QueueRow(Struct, frozen=True):
    """A queue; amounts by resource, CPU in cores.

    None is unlimited, as it is in JSON. Amounts include the queues below;
    pending gangs are those of the queue itself.
    """

    queue: str
    parent: str
    deserved: dict[str, float | None]
    max: dict[str, float | None]
    fair_share: dict[str, float | None]
    allocated: dict[str, float]
    requested: dict[str, float]
    pending_gangs: int
    pending_by_stage: dict[str, int]
    problems: tuple[str, ...]


def queue_rows(snapshot: Snapshot, plan: Plan) -> Iterator[QueueRow]:
    """One row per queue, in the plan's order, then those that are missing under running gangs."""
    stages: dict[str, dict[str, int]] = {}
    for unplaced in plan.unplaced:
        counts = stages.setdefault(unplaced.queue, {})
        counts[unplaced.stage.value] = counts.get(unplaced.stage.value, 0) + 1
    uncharged = dict(uncharged_gangs(snapshot))
    for share in plan.queues:
        row = _row(share, stages.get(share.queue, {}))
        closed = uncharged.pop(share.queue, None)
        problems = () if closed is None else (closed.of_closed(share.queue),)
        yield replace(row, problems=(*row.problems, *problems))
    for queue, gangs in uncharged.items():
        yield _missing_row(snapshot, queue, stages.get(queue, {}), gangs.of_missing(queue))


def _row(share: QueueShare, stages: dict[str, int]) -> QueueRow:
    return QueueRow(
        queue=share.queue,
        parent=share.parent,
        deserved=_or_unlimited(share.deserved),
        max=_or_unlimited(share.maximum),
        fair_share=_or_unlimited(share.fair_share),
        allocated=in_api_units(share.allocated),
        requested=in_api_units(share.requested),
        pending_gangs=sum(stages.values()),
        pending_by_stage=stages,
        problems=tuple(problem.reason for problem in share.problems),
    )


def _missing_row(snapshot: Snapshot, queue: str, stages: dict[str, int], problem: str) -> QueueRow:
    return QueueRow(
        queue=queue,
        parent="",
        deserved={},
        max={},
        fair_share={},
        allocated=in_api_units(snapshot.queue_allocated.get(queue, {})),
        requested=in_api_units(snapshot.queue_requested.get(queue, {})),
        pending_gangs=sum(stages.values()),
        pending_by_stage=stages,
        problems=(problem,),
    )


def _or_unlimited(amounts: Mapping[str, float]) -> dict[str, float | None]:
    return {
        name: None if math.isinf(amount) else amount
        for name, amount in in_api_units(amounts).items()
    }


class QueueOfTree(Protocol):
    """A record about a queue that names the queue and its parent, "" for a root."""

    @property
    def queue(self) -> str:
        """Its name."""

    @property
    def parent(self) -> str:
        """The name of the queue above it."""


Q = TypeVar("Q", bound=QueueOfTree)


def in_tree_order(rows: Iterable[Q]) -> Iterator[tuple[int, Q]]:
    """Every queue after its parent, with its depth; the rows of a plan form a forest."""
    children = grouped(rows, lambda row: row.parent)
    stack = [(0, row) for row in reversed(children.get("", ()))]
    while stack:
        depth, row = stack.pop()
        yield depth, row
        stack += [(depth + 1, child) for child in reversed(children.get(row.queue, ()))]


MAX_PENDING = 500
POD_SIZES = (1, 2, 4, 8, 16)
"""GPUs of a pod, of which the largest gang is shown."""
UNUSABLE, NO_GPUS = "x", "-"
FULL = 9
NO_OWNER = -1


class Domain(Struct, frozen=True):
    """The nodes of one topology domain, in natural order of their names.

    ``fill`` has a character per node: 0 (free) to 9 (all GPUs allocated), ``x`` for one that is
    cordoned or not ready, ``-`` for one without GPUs. ``owners`` has per node the position in
    ``ClusterState.owners`` of the queue with most of its GPUs, -1 if none is allocated.
    """

    name: str
    nodes: int
    gpus: float
    allocated: float
    by_queue: dict[str, float]
    unusable: int
    fill: str
    owners: tuple[int, ...]


class PendingGang(Struct, frozen=True):
    """A pending gang: why it waits, and its position in its queue, counted from 1.

    ``min_members`` is minMember; ``pods`` are those not placed, ``bound`` those that run already;
    ``created`` in seconds since the epoch. ``ageing_points``: points of priority for waiting.
    """

    gang: str
    queue: str
    priority: int
    stage: str
    message: str
    queue_position: int
    queue_length: int
    min_members: int
    pods: int
    bound: int
    gpus: float
    created: float
    ageing_points: int = 0


class LargestGang(Struct, frozen=True):
    """The most pods of ``gpus_per_pod`` whole GPUs that idle capacity takes at once.

    ``in_one_domain``: of these, the most within one domain. Queues and other requests are left out.
    """

    gpus_per_pod: int
    pods: int
    in_one_domain: int


class OtherGangs(Struct, frozen=True):
    """Sums over the gangs that a reader may not see; ``gpus`` are those allocated to them."""

    running: int
    pending: int
    pods: int
    gpus: float


class ClusterState(Struct, frozen=True):
    """The cluster as of cycle ``cycle``, made at ``time`` (seconds since the epoch).

    ``levels`` are the node labels by which domains are formed. ``owners`` are queues; "" stands for
    pods of other schedulers. ``pending`` has the first of the ``pending_gangs``, by position.
    ``others``: the gangs that this reader does not see, None if it sees all.
    """

    cycle: int
    time: float
    nodes: int
    gpus: float
    allocated: float
    running_gangs: int
    pending_gangs: int
    queues: tuple[QueueRow, ...]
    levels: tuple[str, ...]
    owners: tuple[str, ...]
    domains: tuple[Domain, ...]
    pending: tuple[PendingGang, ...]
    productive: float = 0.0
    """GPUs allocated to gangs with all of minMember on nodes, without terminating pods."""
    largest_gangs: tuple[LargestGang, ...] = ()
    others: OtherGangs | None = None


def cluster_state(view: ClusterView) -> ClusterState:
    """The state of a cycle; O(nodes + pods)."""
    rows = tuple(queue_rows(view.snapshot, view.plan))
    owners = (*(row.queue for row in rows), OTHER_SCHEDULERS)
    domains = tuple(_domains(view, owners))
    return ClusterState(
        cycle=view.number,
        time=view.snapshot.now,
        nodes=len(view.snapshot.nodes),
        gpus=sum(domain.gpus for domain in domains),
        allocated=sum(domain.allocated for domain in domains),
        running_gangs=sum(bool(gang.bound) for gang in view.snapshot.gangs.values()),
        pending_gangs=len(view.plan.unplaced),
        queues=rows,
        levels=view.levels,
        owners=owners,
        domains=domains,
        pending=tuple(pending_gangs(view))[:MAX_PENDING],
        productive=sum(map(_productive_gpus, view.snapshot.gangs.values())),
        largest_gangs=tuple(largest_gangs(view)),
    )


def _productive_gpus(gang: Gang) -> float:
    if len(gang.bound) < gang.tree.min_pods():
        return 0.0
    return sum(member.charged_gpus for member in gang.bound)


def largest_gangs(view: ClusterView) -> Iterator[LargestGang]:
    """The largest gang for each usual size of pods; sizes of which no pod fits are left out."""
    idle = [
        [math.floor(usage.gpus - usage.used) for usage in usages if usage.usable]
        for usages in view.domains.values()
    ]
    for size in POD_SIZES:
        pods = [sum(max(gpus, 0) // size for gpus in nodes) for nodes in idle]
        if any(pods):
            yield LargestGang(size, sum(pods), max(pods))


def _domains(view: ClusterView, owners: Sequence[str]) -> Iterator[Domain]:
    positions = {owner: position for position, owner in enumerate(owners)}
    for name, usages in view.domains.items():
        by_queue: dict[str, float] = {}
        for usage in usages:
            for queue, gpus in usage.by_queue.items():
                by_queue[queue] = by_queue.get(queue, 0.0) + gpus
        yield Domain(
            name=name,
            nodes=len(usages),
            gpus=sum(usage.gpus for usage in usages),
            allocated=sum(usage.used for usage in usages),
            by_queue=by_queue,
            unusable=sum(not usage.usable for usage in usages),
            fill="".join(map(fill_of, usages)),
            owners=tuple(_owner(usage, positions) for usage in usages),
        )


def fill_of(usage: NodeUsage) -> str:
    """The character of a node in ``Domain.fill``; a node in part use is neither 0 nor 9."""
    if not usage.usable:
        return UNUSABLE
    if not usage.gpus:
        return NO_GPUS
    if usage.used >= usage.gpus:
        return str(FULL)
    return str(min(max(round(usage.used / usage.gpus * FULL), 1), FULL - 1)) if usage.used else "0"


def _owner(usage: NodeUsage, positions: Mapping[str, int]) -> int:
    if not usage.by_queue:
        return NO_OWNER
    largest = max(sorted(usage.by_queue), key=lambda queue: usage.by_queue[queue])
    return positions.get(largest, NO_OWNER)


def pending_gangs(view: ClusterView) -> Iterator[PendingGang]:
    """The pending gangs, by position in their queues; those without a position come last."""
    unplaced_gangs = [(each, view.snapshot.gangs.get(each.gang)) for each in view.plan.unplaced]
    pending = [_pending(view, each, gang) for each, gang in unplaced_gangs if gang is not None]
    yield from sorted(
        pending,
        key=lambda row: (
            not row.queue_position,
            row.queue_position,
            row.queue,
            row.gang,
        ),
    )


def _pending(view: ClusterView, unplaced: Unplaced, gang: Gang) -> PendingGang:
    position, waiting = view.queue_positions.get(gang.key, (0, 0))
    return PendingGang(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        stage=unplaced.stage.value,
        message=unplaced.message,
        queue_position=position,
        queue_length=waiting,
        min_members=gang.tree.min_pods(),
        pods=len(gang.members) - len(gang.bound),
        bound=len(gang.bound),
        gpus=sum(member.charged_gpus for member in gang.pending),
        created=gang.created,
        ageing_points=unplaced.ageing_points,
    )
