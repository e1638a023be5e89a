"""Gangs as people see them: their states, and their rows for the command line, API and dashboard.

Pending gangs are part of the cluster's state; running gangs may be many, so the dashboard gets them
by page, the largest first, filtered by queue and by a part of their name.

A bound pod is starting until its kubelet reports it ready; one that was ready for long has started,
whatever becomes of it. Snapshots keep that, but not the phases of pods. A gang is starting while
fewer than minMember of its pods have started, and in the cycle that places pods of it. It is
terminating once all of its pods have been deleted or evicted, until the last one is gone or others
replace them. It is below minMember while no pods replace those that it lost; after its grace period
the rest of it is evicted (``plan.actions.stale``).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.observe.cluster_view import ClusterView
from kai_py.plan.plan import Plan, Stage, Unplaced
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.snapshot import Snapshot

RUNNING = "Running"
STARTING = "Starting"
TERMINATING = "Terminating"
NOT_PENDING = frozenset({RUNNING, STARTING, TERMINATING})
"""The states of gangs that nothing stops."""


def starting_pods(snapshot: Snapshot, gang: Gang) -> int:
    """The number of pods of a gang that are bound but have not started yet."""
    starting = snapshot.starting.get(gang.key, {})
    return sum(member.pod.uid in starting for member in gang.bound) if starting else 0


def terminating_pods(gang: Gang) -> list[Member]:
    """The pods of a gang that have been deleted or evicted and are not gone yet."""
    return [member for member in gang.members if member.state is PodState.RELEASING]


class GangStates(Struct, frozen=True, dict=True):
    """The states of the gangs of one cycle."""

    snapshot: Snapshot
    plan: Plan

    @cached_property
    def unplaced(self) -> Mapping[str, Unplaced]:
        """Why gangs are pending, by key."""
        return {each.gang: each for each in self.plan.unplaced}

    @cached_property
    def unready(self) -> Mapping[str, str]:
        """Why pods of gangs that started are not ready, by key."""
        return {each.gang: each.message for each in self.plan.starting}

    @cached_property
    def _placed(self) -> frozenset[str]:
        return frozenset(placement.gang for placement in self.plan.placements)

    def of(self, gang: Gang) -> str:
        """The state of a gang: the stage that stops it, or how it runs."""
        if gang.key in self.unplaced:
            return self.unplaced[gang.key].stage.value
        if gang.key in self.unready:
            return Stage.NOT_READY.value
        if gang.members and len(terminating_pods(gang)) == len(gang.members):
            return TERMINATING
        is_placed = gang.key in self._placed
        if gang.stale_since is not None and not is_placed:
            return Stage.BELOW_MIN_MEMBER.value
        starting = starting_pods(self.snapshot, gang)
        is_short = starting > 0 and len(gang.bound) - starting < gang.tree.min_pods()
        return STARTING if is_placed or is_short else RUNNING


def below_min_member(gang: Gang) -> str:
    """What becomes of a gang that runs below minMember; "" if it does not.

    It does not say for how long: a process that has just started, such as a command, often cannot
    know.
    """
    if gang.stale_since is None:
        return ""
    return (
        "Fewer pods than minMember run: unless the lost ones are replaced, the rest is evicted at "
        "the end of the grace period, if there is one."
    )


class TreeRow(Struct, frozen=True):
    """A subgroup; the gang itself has no name.

    A leaf needs ``min_members`` pods; ``min_subgroups`` of the ``children`` must reach theirs, None
    for all of them. ``bound`` of the ``pods`` below it are bound.
    """

    name: str
    min_members: int
    min_subgroups: int | None
    bound: int
    pods: int
    topology: TopologyConstraint | None
    children: tuple["TreeRow", ...]


def preemptibility_of(gang: Gang) -> Preemptibility:
    """Whether the gang may be evicted for others."""
    if not gang.preemptible:
        return Preemptibility.NON_PREEMPTIBLE
    return Preemptibility.SEMI_PREEMPTIBLE if gang.semi_preemptible else Preemptibility.PREEMPTIBLE


def tree_of(gang: Gang) -> TreeRow:
    """The subgroups of a gang with their pods; O(pods + subgroups)."""
    return _tree_row(gang.tree, gang.counts(PodState.BOUND), gang.counts(*PodState))


def _tree_row(tree: Subgroup, bound: Mapping[str, int], pods: Mapping[str, int]) -> TreeRow:
    children = tuple(_tree_row(child, bound, pods) for child in tree.children)
    return TreeRow(
        name=tree.name,
        min_members=tree.min_pods(),
        min_subgroups=tree.min_subgroups,
        bound=sum(each.bound for each in children) if children else bound.get(tree.name, 0),
        pods=sum(each.pods for each in children) if children else pods.get(tree.name, 0),
        topology=tree.topology,
        children=children,
    )


class GangRow(Struct, frozen=True):
    """A gang: ``bound`` of ``pods`` are bound; ``message``: why it is pending.

    ``nodes``: where the bound pods are. ``ageing_points``: points of priority for waiting.
    ``rule``: what made these pods a gang. ``tree``: its subgroups. ``starting``: how many of the
    bound pods have not started yet.
    """

    gang: str
    queue: str
    priority: int
    bound: int
    min_members: int
    pods: int
    state: str
    nodes: tuple[str, ...]
    message: str
    ageing_points: int
    preemptibility: Preemptibility
    rule: str
    tree: TreeRow
    starting: int = 0


def gang_rows(snapshot: Snapshot, plan: Plan) -> Iterator[GangRow]:
    """One row per gang, by key."""
    states = GangStates(snapshot, plan)
    for _, gang in sorted(snapshot.gangs.items()):
        yield _row(states, gang)


def _row(states: GangStates, gang: Gang) -> GangRow:
    unplaced = states.unplaced.get(gang.key)
    note = states.unready.get(gang.key) or below_min_member(gang)
    return GangRow(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        bound=len(gang.bound),
        min_members=gang.tree.min_pods(),
        pods=len(gang.members),
        state=states.of(gang),
        nodes=tuple(sorted({member.node for member in gang.bound})),
        message=note if unplaced is None else unplaced.message,
        ageing_points=0 if unplaced is None else unplaced.ageing_points,
        preemptibility=preemptibility_of(gang),
        rule=gang.rule,
        tree=tree_of(gang),
        starting=starting_pods(states.snapshot, gang),
    )


MAX_GANGS = 200


class RunningGang(Struct, frozen=True):
    """A gang of which ``bound`` of the ``pods`` are on ``nodes``; ``starting``: not started yet.

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
    starting: int = 0


class GangPage(Struct, frozen=True):
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
    return GangPage(view.number, len(found), tuple(_running(view.snapshot, each) for each in shown))


def _running(snapshot: Snapshot, gang: Gang) -> RunningGang:
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
        starting=starting_pods(snapshot, gang),
    )
