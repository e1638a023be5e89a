"""Gangs that run below minMember: finishing ones, and since when the others do.

A gang is finishing if some of its pods have succeeded while others have not. Frameworks that count
succeeded pods lower minMember themselves. For others, a pod that is created again would wait
forever: succeeded pods are not created again, so minMember pods never exist. That holds beside
running pods, and also where all of the others were evicted. In the latter case no more pods may be
known than the gang has (minMember, where that is not known), as pods that succeeded may also be
those of an earlier gang with the same name, whose successor is still being created.

A pod takes the place of none of another subgroup. Pods of a stage that is over, of which no
subgroup is needed any more, say nothing of those that follow.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from kai_py.api.times import begun_at
from kai_py.grouping.admitted import with_minimums
from kai_py.grouping.gang import Subgroup, is_satisfied
from kai_py.snapshot.gangs import Gang, PodState


def as_finishing(gang: Gang, succeeded: Mapping[str, int]) -> Gang:
    """``gang``, which needs no more than all pods that exist, if the others have succeeded.

    ``succeeded``: pods by leaf.
    """
    counted = sum(succeeded[leaf.name] for leaf in _due(gang.tree) if leaf.name in succeeded)
    if not counted:
        return gang
    gang = replace(gang, succeeded=counted)
    if not gang.pending or gang.can_be_satisfied:
        return gang
    exist = Counter(gang.counts(PodState.GATED, PodState.PENDING, PodState.BOUND))
    known = exist + Counter(succeeded)
    if not is_satisfied(gang.tree, known) or not (gang.bound or _are_of_one_gang(gang, known)):
        return gang
    minimums = {leaf: exist[leaf] for leaf in gang.tree.leaf_names()}
    return replace(gang, tree=with_minimums(gang.tree, minimums))


def _are_of_one_gang(gang: Gang, known: Mapping[str, int]) -> bool:
    """Whether no pods are ``known`` beside those that the gang has: all, or its minMember."""
    due = [leaf for leaf in _due(gang.tree) if leaf.name in known]
    if gang.total_pods and sum(known[leaf.name] for leaf in due) <= gang.total_pods:
        return True
    return all(known[leaf.name] <= leaf.min_members for leaf in due)


def has_leaf_of(tree: Subgroup, names: Collection[str]) -> bool:
    """Whether a leaf that may be needed is called by one of ``names``."""
    return bool(names) and any(leaf.name in names for leaf in _due(tree))


def _due(tree: Subgroup) -> Iterator[Subgroup]:
    """The leaves, without those of subgroups of which none is needed."""
    if not tree.children:
        yield tree
    elif tree.needed_children:
        for child in tree.children:
            yield from _due(child)


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
