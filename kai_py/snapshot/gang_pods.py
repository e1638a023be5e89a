"""The pods of one gang: whose they are, their order, and the tree that they make together.

Two objects may have one name, one after the other: a Job is created again while pods of the former
one still end. Each has a gang of its own: what the pods of the former say, hold or cost is not the
new one's. The same holds for owners of one name and kind in several API groups, and for pods that
were admitted to several queues. Pods that succeeded are counted by leaf until the gang is gone.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from msgspec import Struct

from kai_py.grouping.gang import GangSpec, Subgroup, combined
from kai_py.snapshot.derived_pod import ExpectedMembers
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.placeholders import present_members


class GangMember(Struct, frozen=True):
    """A pod of ours: what grouping says of it, and the member that a cycle sees."""

    spec: GangSpec
    member: Member
    expected: tuple[ExpectedMembers, ...] = ()


def owner_uid(spec: GangSpec) -> str:
    """The uid of the owner of a gang; "" for groups that pods name themselves.

    The owner of those is a pod, which is not the same for all of them.
    """
    return "" if spec.owner.kind == "Pod" else spec.owner.uid


def by_owner(key: str, by_order: list[GangMember]) -> dict[str, list[GangMember]]:
    """The pods of the gang called ``key``, by the key of the gang of each owner.

    The plain key is that of an owner which is known, and of which not all pods end.
    """
    if len({id(each.spec.owner) for each in by_order}) < 2:  # mostly they share one copy
        return {key: by_order}
    owned = [each for each in by_order if owner_uid(each.spec)]
    if len({each.spec.owner.uid for each in owned}) < 2:
        return {key: by_order}
    first = min(map(_rank, owned))[-1]
    gangs: dict[str, list[GangMember]] = {}
    for each in by_order:
        uid = owner_uid(each.spec) or first
        gangs.setdefault(key if uid == first else f"{key}/{uid}", []).append(each)
    return gangs


def by_queue(
    key: str, by_order: list[GangMember], is_admitted: Callable[[str], bool]
) -> dict[str, list[GangMember]]:
    """The pods of a gang, by the key of the gang of each queue to which some were admitted.

    Those on nodes stay where they were admitted, also if an edit makes them pods of one gang. The
    first that runs has the plain key, and those that wait. ``is_admitted``: of a pod, by uid.
    """
    if len({each.spec.queue for each in by_order}) < 2:
        return {key: by_order}
    admitted = [is_admitted(each.member.pod.uid) for each in by_order]
    first = min(zip(by_order, admitted, strict=True), key=_keeps_others_in_its_queue)[0].spec.queue
    gangs: dict[str, list[GangMember]] = {}
    for each, is_bound in zip(by_order, admitted, strict=True):
        queue = each.spec.queue
        own = f"{key}/{queue}" if is_bound and queue != first else key
        gangs.setdefault(own, []).append(each)
    return gangs


def _keeps_others_in_its_queue(pod: tuple[GangMember, bool]) -> int:
    """The rank of a pod, and whether it was admitted: one that runs, waits, or is leaving."""
    tracked, is_admitted = pod
    if not is_admitted:
        return 1
    return 2 if tracked.member.state is PodState.RELEASING else 0


def _rank(tracked: GangMember) -> tuple[bool, bool, str]:
    spec = tracked.spec
    return tracked.member.state is PodState.RELEASING, spec.owner_unknown, owner_uid(spec)


def completed_by_leaf(by_order: list[GangMember]) -> dict[str, int]:
    """By leaf, how many pods have succeeded by the status of its Jobs, whether they still exist.

    Without Jobs of which the pods are in several leaves.
    """
    jobs: dict[str, int] = {}
    leaves: dict[str, set[str]] = {}
    for each in by_order:
        if each.spec.completed is not None:
            uid, count = each.spec.completed
            jobs[uid] = max(jobs.get(uid, 0), count)
            leaves.setdefault(uid, set()).add(each.spec.subgroup)
    counts: dict[str, int] = {}
    for uid, count in jobs.items():
        if len(leaves[uid]) == 1:
            (leaf,) = leaves[uid]
            counts[leaf] = counts.get(leaf, 0) + count
    return counts


def tree_of(by_order: list[GangMember]) -> Subgroup:
    """The tree: some frameworks' gangs grow with their pods, so all that these require counts."""
    trees = {id(each.spec.tree): each.spec.tree for each in by_order}
    if len(trees) > 1:
        present = {id(each) for each in present_members([each.member for each in by_order])}
        trees = {
            id(each.spec.tree): each.spec.tree for each in by_order if id(each.member) in present
        }
    return combined([*trees.values()])


def sort_key(tracked: GangMember) -> tuple[int, float, str, str, str]:
    """The sort key of the pods of a gang."""
    member = tracked.member
    pod = member.pod
    return member.order, member.created, pod.namespace, pod.name, pod.uid


class _Place(NamedTuple):
    key: str
    owner: str
    leaf: str


class SucceededPods:
    """Pods that succeeded and still exist, and leaves of which one did, also if it is gone."""

    def __init__(self) -> None:
        """No pod has succeeded yet."""
        self._places: dict[str, _Place] = {}
        self._counts: dict[str, dict[str, Counter[str]]] = {}
        self._leaves: dict[str, dict[str, dict[str, None]]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the pod has succeeded."""
        return uid in self._places

    def add(self, uid: str, key: str, owner: str, leaf: str) -> None:
        """The pod succeeded in the leaf of the gang called ``key`` of ``owner``, by uid."""
        self._places[uid] = _Place(key, owner, leaf)
        self._leaves.setdefault(key, {}).setdefault(owner, {})[leaf] = None
        self._counts.setdefault(key, {}).setdefault(owner, Counter())[leaf] += 1

    def remove(self, uid: str) -> str:
        """The pod is gone; returns the key of the gang."""
        key, owner, leaf = self._places.pop(uid)
        counts = self._counts[key][owner]
        counts[leaf] -= 1
        if not counts[leaf]:
            del counts[leaf]
        if not counts:
            del self._counts[key][owner]
        if not self._counts[key]:
            del self._counts[key]
        return key

    def by_leaf(self, key: str, owner: str) -> Mapping[str, int]:
        """How many pods of a gang have succeeded, by leaf."""
        return self._counts.get(key, {}).get(owner, {})

    def leaves(self, key: str, owner: str) -> Collection[str]:
        """The leaves of a gang in which a pod has succeeded since the gang exists."""
        return self._leaves.get(key, {}).get(owner, ())

    def forget(self, key: str) -> None:
        """No pod of the gang is left that has not ended."""
        if key not in self._counts:
            self._leaves.pop(key, None)
