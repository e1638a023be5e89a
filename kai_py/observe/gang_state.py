"""Whether the pods of a gang that are on nodes run, start, end, or are too few to work.

A bound pod is starting until its kubelet reports it ready; one that was ready for long has started,
whatever becomes of it. Snapshots keep that, but not the phases of pods. A gang is starting while
fewer than minMember of its pods have started, and in the cycle that places pods of it. It is
terminating once all of its pods have been deleted or evicted, until the last one is gone or others
replace them. It is below minMember while no pods replace those that it lost; after its grace period
the rest of it is evicted (``plan.actions.stale``).
"""

from kai_py.plan.plan import Stage
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


def running_state(snapshot: Snapshot, gang: Gang, *, is_placed: bool) -> str:
    """The state of a gang without pods that wait; ``is_placed``: this cycle places pods of it."""
    if gang.members and len(terminating_pods(gang)) == len(gang.members):
        return TERMINATING
    if gang.stale_since is not None and not is_placed:
        return Stage.BELOW_MIN_MEMBER.value
    starting = starting_pods(snapshot, gang)
    is_short = starting > 0 and len(gang.bound) - starting < gang.tree.min_pods()
    return STARTING if is_placed or is_short else RUNNING


def below_min_member(gang: Gang) -> str:
    """What becomes of a gang that runs below minMember; "" if it does not.

    Not for how long it does: a process that has just started, as a command, often cannot know.
    """
    if gang.stale_since is None:
        return ""
    return (
        "Fewer pods than minMember run: unless the lost ones are replaced, the rest is evicted at "
        "the end of the grace period, if there is one."
    )
