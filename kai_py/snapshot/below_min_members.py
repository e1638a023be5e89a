"""Gangs that run below minMember: finishing ones, and since when the others do.

A gang is finishing if some of its pods have succeeded while others have not. Frameworks that count
succeeded pods lower minMember themselves. For others, a pod that is created again would wait
forever: succeeded pods are not created again, so minMember pods never exist. That holds beside
running pods, and also where all of the others were evicted. In the latter case exactly minMember
pods must be known, as pods that succeeded may also be those of an earlier gang with the same name,
whose successor is still being created.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from kai_py.api.times import begun_at
from kai_py.grouping.admitted import with_minimums
from kai_py.snapshot.gangs import Gang, PodState


def as_finishing(gang: Gang) -> Gang:
    """``gang``, which needs no more than all pods that exist, if the others have succeeded."""
    if not (gang.succeeded and gang.pending) or gang.can_be_satisfied:
        return gang
    exist = gang.counts(PodState.GATED, PodState.PENDING, PodState.BOUND)
    known, needed = sum(exist.values()) + gang.succeeded, gang.tree.min_pods()
    if known < needed or (known > needed and not gang.bound):
        return gang
    minimums = {leaf: exist.get(leaf, 0) for leaf in gang.tree.leaf_names()}
    return replace(gang, tree=with_minimums(gang.tree, minimums))


class StaleGangs:
    """By gang key, since when it runs below minMember, in seconds since the epoch."""

    def __init__(self) -> None:
        """No gang is known yet."""
        self._since: dict[str, float] = {}
        self._seen_satisfied: dict[str, None] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the gangs below minMember, in order."""
        return tuple(sorted(self._since))

    def updated(self, gang: Gang, now: float, *, is_finishing: bool) -> Gang:
        """``gang`` with the time since which it runs below minMember, if it does.

        Once a pod of it has succeeded it is finishing, also after that pod was deleted. For a gang
        that was below minMember when it was first seen, the time that its group records counts, or
        else what can be concluded from its pods: a restart does not reset the time.
        """
        if is_finishing or not gang.bound or gang.is_satisfied:
            self._since.pop(gang.key, None)
            self._seen_satisfied[gang.key] = None
            return gang if gang.stale_since is None else replace(gang, stale_since=None)
        if gang.key not in self._since:
            known = (
                None
                if gang.key in self._seen_satisfied
                else gang.stale_since or _unchanged_since(gang)
            )
            self._since[gang.key] = now if known is None else min(known, now)
        return replace(gang, stale_since=self._since[gang.key])

    def forget(self, key: str) -> None:
        """The gang does not exist any more."""
        self._since.pop(key, None)
        self._seen_satisfied.pop(key, None)

    def restart(self, now: float) -> Iterator[str]:
        """Restart times that lie ahead, as the clock was set back; yields the gangs concerned."""
        for key, since in self._since.items():
            if begun_at(since, now) != since:
                self._since[key] = now
                yield key


def _unchanged_since(gang: Gang) -> float | None:
    """The time of the last change of a gang whose pods all exist: one was created or bound then.

    A pod that was lost has a successor, created when the gang was below minMember already, so that
    it has been since that time at the latest. While pods are missing, None: it is unknown when they
    were lost.
    """
    present = [member for member in gang.members if member.state is not PodState.RELEASING]
    if not gang.total_pods or len(present) < gang.total_pods:
        return None
    return max(m.bound_since if m.state is PodState.BOUND else m.created for m in present)
