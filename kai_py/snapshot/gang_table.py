"""Which gangs exist, who belongs to them, and what they cost their queues; kept step by step.

Joining or leaving marks a gang; ``settle`` rebuilds the marked ones and corrects the sums of their
queues, so a cycle costs the gangs that changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kai_py.grouping.gang import GangSpec, Subgroup
from kai_py.snapshot.gangs import Charge, Gang, Member, PodState
from kai_py.snapshot.placeholders import ExpectedMembers, missing_placeholders

Sums = dict[str, dict[str, float]]
"""Queue name to cost by quota resource."""


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod of ours: what grouping says of it, and how a cycle sees it."""

    spec: GangSpec
    member: Member
    expected: tuple[ExpectedMembers, ...] = ()


class GangTable:
    """Gangs by key; ``usage``, ``demand`` and ``fixed`` are the snapshot's queue sums."""

    def __init__(self, preemptible_below: int | None) -> None:
        """Gangs below this priority are preemptible unless they say otherwise; None: all are."""
        self._preemptible_below = preemptible_below
        self._tracked: dict[str, GangMember] = {}
        self._members: dict[str, dict[str, GangMember]] = {}
        self._unordered: dict[str, None] = {}
        self._frozen: Mapping[str, Gang] | None = None
        self._changed: dict[str, None] = {}
        self._succeeded: dict[str, str] = {}
        self._succeeded_counts: dict[str, int] = {}
        self._finishing: dict[str, None] = {}
        self._below_min_since: dict[str, float] = {}
        self._seen_satisfied: dict[str, None] = {}
        self._started_in_part: dict[str, None] = {}
        self.gangs: dict[str, Gang] = {}
        self.pending: set[str] = set()
        self.terminating: dict[str, Member] = {}
        self.allocated: Sums = {}
        self.requested: Sums = {}
        self.non_preemptible: Sums = {}

    def join(
        self, uid: str, spec: GangSpec, member: Member, expected: tuple[ExpectedMembers, ...] = ()
    ) -> None:
        """The pod belongs to the gang of ``spec`` now, whatever it belonged to before.

        ``expected``: what pods of the gang that may not exist yet are like.
        """
        before = self._tracked.get(uid)
        if uid in self._succeeded or (before is not None and before.spec.key != spec.key):
            self.remove_pod(uid)
        tracked = self._tracked[uid] = GangMember(spec, member, expected)
        members = self._members.setdefault(spec.key, {})
        if members and (uid not in members or _sort_key(members[uid]) != _sort_key(tracked)):
            self._unordered[spec.key] = None
        members[uid] = tracked
        self._changed[spec.key] = None
        self.terminating.pop(uid, None)
        if member.state == PodState.RELEASING and not member.stuck_terminating:
            self.terminating[uid] = member

    def succeed(self, uid: str, key: str) -> None:
        """The pod ran to its end in the gang called ``key``."""
        self.remove_pod(uid)
        self._succeeded[uid] = key
        self._finishing[key] = None
        self._count_success(key, 1)

    def remove_pod(self, uid: str) -> None:
        """The pod belongs to no gang any more."""
        succeeded_in = self._succeeded.pop(uid, None)
        if succeeded_in is not None:
            self._count_success(succeeded_in, -1)
        self.terminating.pop(uid, None)
        tracked = self._tracked.pop(uid, None)
        if tracked is not None:
            self._members[tracked.spec.key].pop(uid, None)
            self._changed[tracked.spec.key] = None

    def gang_of(self, uid: str) -> str:
        """The key of the gang of a pod, if it is a member of one and holds no claims; else ""."""
        tracked = self._tracked.get(uid)
        return "" if tracked is None or tracked.member.claims else tracked.spec.key

    def snapshot(self) -> Mapping[str, Gang]:
        """The gangs as last settled; copied only after a change."""
        if self._frozen is None:
            self._frozen = self.gangs.copy()
        return self._frozen

    def unplaced_pods(self) -> tuple[str, ...]:
        """Uids of pods that are on no node."""
        return tuple(uid for uid, tracked in self._tracked.items() if not tracked.member.node)

    def below_min_members(self) -> tuple[str, ...]:
        """Keys of gangs that run below their floor, in order."""
        return tuple(sorted(self._below_min_since))

    def started_in_part(self) -> tuple[str, ...]:
        """Keys of gangs that have started and whose pods come in stages, in order."""
        return tuple(sorted(self._started_in_part))

    def update(self, now: float) -> None:
        """Bring gangs and sums up to date; a gang found below its floor is so since ``now``."""
        if not self._changed:
            return
        for key in self._changed:
            self._rebuild(key, now)
        self._changed.clear()
        self._frozen = None

    def _count_success(self, key: str, change: int) -> None:
        count = self._succeeded_counts.pop(key, 0) + change
        if count:
            self._succeeded_counts[key] = count
        self._changed[key] = None

    def _rebuild(self, key: str, now: float) -> None:
        before = self.gangs.pop(key, None)
        self.pending.discard(key)
        self._started_in_part.pop(key, None)
        if not self._members.get(key):
            self._forget(key)
            self._update_sums(before, None)
            return
        gang = self.gangs[key] = self._with_stale_since(self._gang(self._in_order(key)), now)
        self._update_sums(before, gang)
        if gang.starts_in_part and gang.bound:
            self._started_in_part[key] = None
        all_run = len(gang.bound) == len(gang.members)
        if not all_run and any(m.state in (PodState.PENDING, PodState.GATED) for m in gang.members):
            self.pending.add(key)

    def _forget(self, key: str) -> None:
        self._members.pop(key, None)
        self._unordered.pop(key, None)
        self._below_min_since.pop(key, None)
        self._seen_satisfied.pop(key, None)
        if key not in self._succeeded_counts:
            self._finishing.pop(key, None)

    def _in_order(self, key: str) -> list[GangMember]:
        """The pods of a gang, sorted only if one came, or changed its place, since they were."""
        members = self._members[key]
        if key in self._unordered:
            del self._unordered[key]
            by_order = sorted(members.items(), key=lambda item: _sort_key(item[1]))
            members = self._members[key] = dict(by_order)
        return list(members.values())

    def _with_stale_since(self, gang: Gang, now: float) -> Gang:
        """``gang`` with the time since which it runs below its floor, if it does.

        Once a pod of it ended well it is finishing, also after that pod was deleted. Of a gang that
        was short when it was first seen here, what its group says of a time before counts, or else
        what its pods tell: a restart doesn't start the time anew.
        """
        if gang.key in self._finishing or not gang.bound or gang.is_satisfied:
            self._below_min_since.pop(gang.key, None)
            self._seen_satisfied[gang.key] = None
            return gang if gang.stale_since is None else replace(gang, stale_since=None)
        if gang.key not in self._below_min_since:
            known = (
                None
                if gang.key in self._seen_satisfied
                else gang.stale_since or _unchanged_since(gang)
            )
            self._below_min_since[gang.key] = now if known is None else min(known, now)
        return replace(gang, stale_since=self._below_min_since[gang.key])

    def _gang(self, by_order: list[GangMember]) -> Gang:
        """The gang of these pods; where they disagree about it, the first of them decides.

        The tree with the highest floor counts: some frameworks' gangs grow when a pod appears.
        """
        spec, members = by_order[0].spec, tuple([each.member for each in by_order])
        terms = spec.settings
        priority = max([m.priority for m in members]) if terms.priority is None else terms.priority
        by_priority = self._preemptible_below is None or priority < self._preemptible_below
        return Gang(
            key=spec.key,
            owner=spec.owner,
            queue=spec.queue,
            tree=_largest_tree([each.spec.tree for each in by_order]),
            members=members,
            priority=priority,
            preemptible=by_priority if spec.preemptible is None else spec.preemptible,
            semi_preemptible=spec.semi_preemptible,
            suspend=spec.suspend,
            may_preempt=terms.may_preempt and all(m.may_preempt for m in members),
            created=min([m.created for m in members]) if terms.created is None else terms.created,
            total_pods=spec.total_pods,
            problem=spec.problem,
            owner_unknown=spec.owner_unknown,
            succeeded=self._succeeded_counts.get(spec.key, 0),
            stale_since=terms.stale_since,
            staleness_grace=terms.staleness_grace,
            preemption_delay=terms.preemption_delay,
            last_evicted=terms.last_evicted,
            attempts_exhausted=terms.attempts_exhausted,
            mark_unschedulable=terms.mark_unschedulable,
            wording=terms.wording,
            gang_affinity=terms.gang_affinity,
            expected_runtime=spec.expected_runtime,
            ageing=spec.ageing,
            provisioning_class=spec.provisioning_class,
            starts_in_part=bool(spec.expected),
            placeholders=_placeholders(spec.key, by_order[0].expected, members),
        )

    def _update_sums(self, before: Gang | None, now: Gang | None) -> None:
        """Correct the sums of queues where a gang became another; None: there is none."""
        accounts = (self.allocated, self.requested, self.non_preemptible)
        for sums, was, becomes in zip(accounts, _charges(before), _charges(now), strict=True):
            if was == becomes:
                continue
            if was is not None:
                _add(sums, *was, -1.0)
            if becomes is not None:
                _add(sums, *becomes, 1.0)


def _sort_key(tracked: GangMember) -> tuple[int, float, str, str, str]:
    """What sorts the pods of a gang."""
    member = tracked.member
    pod = member.pod
    return member.order, member.created, pod.namespace, pod.name, pod.uid


QueueCharge = tuple[str, Charge]
"""A queue, and what something costs it."""


def _charges(
    gang: Gang | None,
) -> tuple[QueueCharge | None, QueueCharge | None, QueueCharge | None]:
    """What the gang uses, asks for, and can't give back."""
    if gang is None:
        return None, None, None
    queue = gang.queue
    return (queue, gang.allocated), (queue, gang.requested), (queue, gang.non_preemptible)


def _placeholders(
    gang: str, expected: tuple[ExpectedMembers, ...], members: tuple[Member, ...]
) -> tuple[Member, ...]:
    return tuple(missing_placeholders(gang, expected, members)) if expected else ()


def _largest_tree(trees: list[Subgroup]) -> Subgroup:
    first = trees[0]
    if all(tree is first for tree in trees):
        return first
    return max({id(tree): tree for tree in trees}.values(), key=Subgroup.min_pods)


def copy_sums(sums: Sums) -> Mapping[str, Mapping[str, float]]:
    """The sums as they are now."""
    return {queue: dict(costs) for queue, costs in sums.items()}


def _add(sums: Sums, queue: str, cost: Mapping[str, float], sign: float) -> None:
    account = sums.setdefault(queue, {})
    for resource, amount in cost.items():
        account[resource] = account.get(resource, 0.0) + sign * amount


def _unchanged_since(gang: Gang) -> float | None:
    """Since when a gang, all of whose pods exist, is as it is: a pod came or started last then.

    A pod that was lost has a successor, made when the gang was short already, so it was at that
    time at the latest. Without some of its pods nothing tells when those were lost.
    """
    there = [member for member in gang.members if member.state is not PodState.RELEASING]
    if not gang.total_pods or len(there) < gang.total_pods:
        return None
    return max(m.bound_since if m.state is PodState.BOUND else m.created for m in there)
