"""What does the cluster look like? Queues, domains of nodes, waiting gangs: one bounded record.

Nodes are given as two characters' worth each, so that ten thousand are still a small answer; who
holds which device of a node is asked for a page of nodes at a time (``node_state``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kai_py.observe.cluster_view import OTHER_SCHEDULERS, ClusterView, NodeUsage
from kai_py.observe.queue_rows import QueueRow, queue_rows
from kai_py.plan.plan import Unplaced
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang

MAX_PENDING = 500
UNUSABLE, NO_GPUS = "x", "-"
FULL = 9
NO_OWNER = -1


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes of one topology domain, in natural order of their names.

    ``fill`` has a character per node: 0 (free) to 9 (all GPUs held), ``x`` for one that is cordoned
    or not ready, ``-`` for one without GPUs. ``owners`` has per node the position in
    ``ClusterState.owners`` of who holds most of it, -1 for nobody.
    """

    name: str
    nodes: int
    gpus: float
    used: float
    by_queue: dict[str, float]
    unusable: int
    fill: str
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PendingGang:
    """A gang that waits: why, and where in the line of its queue, counted from 1.

    ``pods`` are those not placed, ``bound`` those that run already; ``created`` in seconds since
    the epoch. ``gained``: points of priority for waiting.
    """

    gang: str
    queue: str
    priority: int
    stage: str
    message: str
    position: int
    waiting: int
    floor: int
    pods: int
    bound: int
    gpus: float
    created: float
    gained: int = 0


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster as of cycle ``cycle``, made at ``time`` (seconds since the epoch).

    ``levels`` are the node labels that domains stand for. ``owners`` are queues; "" stands for pods
    of other schedulers. ``pending`` has the first of the ``pending_gangs``, by position.
    """

    cycle: int
    time: float
    nodes: int
    gpus: float
    used: float
    running_gangs: int
    pending_gangs: int
    queues: tuple[QueueRow, ...]
    levels: tuple[str, ...]
    owners: tuple[str, ...]
    domains: tuple[Domain, ...]
    pending: tuple[PendingGang, ...]


def cluster_state(view: ClusterView) -> ClusterState:
    """The state of a cycle; O(nodes + pods)."""
    rows = tuple(queue_rows(view.plan))
    owners = (*(row.queue for row in rows), OTHER_SCHEDULERS)
    domains = tuple(_domains(view, owners))
    return ClusterState(
        cycle=view.number,
        time=view.snapshot.now,
        nodes=len(view.snapshot.nodes),
        gpus=sum(domain.gpus for domain in domains),
        used=sum(domain.used for domain in domains),
        running_gangs=sum(bool(gang.bound) for gang in view.snapshot.gangs.values()),
        pending_gangs=len(view.plan.unplaced),
        queues=rows,
        levels=view.levels,
        owners=owners,
        domains=domains,
        pending=tuple(pending_gangs(view))[:MAX_PENDING],
    )


def _domains(view: ClusterView, owners: Sequence[str]) -> Iterator[Domain]:
    positions = {owner: position for position, owner in enumerate(owners)}
    for name, uses in view.domains.items():
        by_queue: dict[str, float] = {}
        for use in uses:
            for queue, gpus in use.by_queue.items():
                by_queue[queue] = by_queue.get(queue, 0.0) + gpus
        yield Domain(
            name=name,
            nodes=len(uses),
            gpus=sum(use.gpus for use in uses),
            used=sum(use.used for use in uses),
            by_queue=by_queue,
            unusable=sum(not use.usable for use in uses),
            fill="".join(map(fill_of, uses)),
            owners=tuple(_owner(use, positions) for use in uses),
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
    most = max(sorted(usage.by_queue), key=lambda queue: usage.by_queue[queue])
    return positions.get(most, NO_OWNER)


def pending_gangs(view: ClusterView) -> Iterator[PendingGang]:
    """The gangs that wait, the first of every line first; those that stand in no line come last."""
    waiting = [(each, view.snapshot.gangs.get(each.gang)) for each in view.plan.unplaced]
    found = [_pending(view, each, gang) for each, gang in waiting if gang is not None]
    yield from sorted(found, key=lambda it: (not it.position, it.position, it.queue, it.gang))


def _pending(view: ClusterView, unplaced: Unplaced, gang: Gang) -> PendingGang:
    position, waiting = view.queue_positions.get(gang.key, (0, 0))
    return PendingGang(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        stage=unplaced.stage.value,
        message=unplaced.message,
        position=position,
        waiting=waiting,
        floor=gang.tree.min_pods(),
        pods=len(gang.members) - len(gang.bound),
        bound=len(gang.bound),
        gpus=sum(member.charge.get(GPU, 0.0) for member in gang.pending),
        created=gang.created,
        gained=unplaced.ageing_points,
    )
