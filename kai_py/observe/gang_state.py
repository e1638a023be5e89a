"""Whether the pods of a gang that are on nodes run, or are only being started.

A bound pod is starting until its kubelet reports it ready; one that was ready for long has started,
whatever becomes of it. Snapshots keep that, but not the phases of pods. A gang is starting while
fewer than minMember of its pods have started, and in the cycle that places pods of it.
"""

from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

RUNNING = "Running"
STARTING = "Starting"


def starting_pods(snapshot: Snapshot, gang: Gang) -> int:
    """The number of pods of a gang that are bound but have not started yet."""
    starting = snapshot.starting.get(gang.key, {})
    return sum(member.pod.uid in starting for member in gang.bound) if starting else 0


def running_state(snapshot: Snapshot, gang: Gang, *, is_placed: bool) -> str:
    """The state of a gang that nothing stops; ``is_placed``: this cycle places pods of it."""
    starting = starting_pods(snapshot, gang)
    is_short = starting > 0 and len(gang.bound) - starting < gang.tree.min_pods()
    return STARTING if is_placed or is_short else RUNNING
