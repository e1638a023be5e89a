"""Running gangs, a page at a time, the largest first.

Pending gangs are part of the cluster's state; running gangs may be many, so they are served by
page, filtered by queue and by a part of their name. Complexity: O(gangs), and the page's pods.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.observe.cluster_view import ClusterView
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang

MAX_GANGS = 200


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang of which ``bound`` of the ``pods`` run, on ``nodes``.

    ``gpus`` are those allocated to it; ``created``, ``started`` in seconds since the epoch.
    """

    gang: str
    queue: str
    priority: int
    gpus: float
    pods: int
    bound: int
    nodes: tuple[str, ...]
    created: float
    started: float


@dataclass(frozen=True, slots=True)
class GangPage:
    """The first of the ``total`` gangs that match."""

    cycle: int
    total: int
    gangs: tuple[RunningGang, ...]


def gang_page(
    view: ClusterView,
    *,
    queue: str,
    search: str,
    limit: int,
    sees: Callable[[str], bool] = lambda _gang: True,
) -> GangPage:
    """At most ``limit`` running gangs of ``queue`` ("": of all) with ``search`` in their names.

    ``sees``: whether the gang of a key may be shown.
    """
    found = sorted(
        (
            gang
            for gang in view.snapshot.gangs.values()
            if gang.bound
            and queue in ("", gang.queue)
            and search.lower() in gang.key.lower()
            and sees(gang.key)
        ),
        key=lambda gang: (-gang.allocated.get(GPU, 0.0), gang.key),
    )
    shown = found[: min(limit, MAX_GANGS)]
    return GangPage(view.number, len(found), tuple(map(_running, shown)))


def _running(gang: Gang) -> RunningGang:
    return RunningGang(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        gpus=gang.allocated.get(GPU, 0.0),
        pods=len(gang.members),
        bound=len(gang.bound),
        nodes=tuple(dict.fromkeys(member.node for member in gang.bound)),
        created=gang.created,
        started=gang.started,
    )
