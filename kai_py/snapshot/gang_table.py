"""Gangs with their members, and what they cost their queues, kept up to date pod by pod.

Joining or leaving marks a gang; ``update`` rebuilds the marked ones and corrects the sums of their
queues, so that a cycle costs the gangs that changed.

Pods on a node that does not exist, and gangs whose namespace may not use their queue, are charged
to no queue: such pods were not placed by this scheduler, or should not have been.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec.structs import replace

from kai_py.grouping.gang import GangSpec, Subgroup
from kai_py.snapshot.admitted_gangs import as_admitted
from kai_py.snapshot.below_min_members import StaleGangs, as_finishing, has_leaf_of
from kai_py.snapshot.charges import QueueSums, charges_of
from kai_py.snapshot.derived_pod import ExpectedMembers
from kai_py.snapshot.gang_changes import GangChanges, SortedKeys
from kai_py.snapshot.gang_pods import (
    GangMember,
    SucceededPods,
    by_owner,
    by_queue,
    completed_by_leaf,
    owner_uid,
    sort_key,
    tree_of,
)
from kai_py.snapshot.gangs import NOT_CHARGED, Gang, Member, PodState
from kai_py.snapshot.placeholders import missing_placeholders
from kai_py.snapshot.pod_failures import FailedPods, NodeRefusal
from kai_py.snapshot.quarantine import InvalidObject, Quarantine
from kai_py.snapshot.snapshot import IgnoredMarkers
from kai_py.snapshot.tables.admissions import Admissions

GANG = "putting its gang together"


class GangTable:
    """Gangs by key; the sums ``allocated``, ``requested``, … are by queue.

    Pods whose gang is called the same are several gangs if their owners are several objects.
    """

    def __init__(
        self,
        preemptible_below: int | None,
        admissions: Admissions,
        accepts: Callable[[str, str], bool],
        node_exists: Callable[[str], bool],
        quarantine: Quarantine,
        *,
        refusals: Callable[[str], tuple[NodeRefusal, ...]] = lambda _: (),
        uncounted_failures: Callable[[Iterable[str]], FailedPods] = lambda _: (),
    ) -> None:
        """Gangs below this priority are preemptible unless they say otherwise; None: all are.

        ``accepts``: whether a queue may be used by a namespace. ``quarantine``: where gangs go
        that cannot be put together. ``refusals``: the nodes that are left out for a gang.
        ``uncounted_failures``: of Jobs, by uid.
        """
        self._quarantine, self._admissions = quarantine, admissions
        self._preemptible_below = preemptible_below
        self._accepts, self._node_exists, self._refusals = accepts, node_exists, refusals
        self._uncounted_failures = uncounted_failures
        self._tracked: dict[str, GangMember] = {}
        self._members: dict[str, dict[str, GangMember]] = {}
        self._by_owner: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, str] = {}
        self._unordered: dict[str, None] = {}
        self._changed_since: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._succeeded = SucceededPods()
        self._stale = StaleGangs()
        self._started_in_part: dict[str, None] = {}
        self._choosing_spot: dict[str, None] = {}
        self._sharing: dict[str, None] = {}
        self._disrupted: dict[str, str] = {}
        self._ignored_queues: dict[str, IgnoredMarkers] = {}
        self.gangs: dict[str, Gang] = {}
        self.changes = GangChanges()
        self._pending = SortedKeys()
        self.terminating: dict[str, Member] = {}
        self.allocated = QueueSums()
        self.requested = QueueSums()
        self.non_preemptible = QueueSums()
        self.leaving = QueueSums()

    def join(
        self, uid: str, spec: GangSpec, member: Member, expected: tuple[ExpectedMembers, ...] = ()
    ) -> None:
        """Make the pod a member of the gang of ``spec``, whatever it belonged to before.

        ``expected``: templates of pods of the gang that may not exist yet.
        """
        before = self._tracked.get(uid)
        if uid in self._succeeded or (before is not None and before.spec.key != spec.key):
            self.remove_pod(uid)
        tracked = self._tracked[uid] = GangMember(spec, member, expected)
        members = self._members.setdefault(spec.key, {})
        known = members.get(uid)
        if members and (known is None or _moves(known.member, member)):
            self._unordered[spec.key] = None
        members[uid] = tracked
        self._changed[spec.key] = None
        if before is not None and _is_disrupted(before.member, member):
            pod, where = member.pod, f"on node {member.node}"
            text = f"pod {pod.namespace}/{pod.name} {where} ends ({member.disruption})"
            self._disrupted.setdefault(spec.key, text)
        self.terminating.pop(uid, None)
        if member.state == PodState.RELEASING and not member.stuck_terminating:
            self.terminating[uid] = member

    def succeed(self, uid: str, spec: GangSpec) -> None:
        """The pod ran to its end in the gang of ``spec``."""
        self.remove_pod(uid)
        self._succeeded.add(uid, spec.key, owner_uid(spec), spec.subgroup)
        self._changed[spec.key] = None

    def remove_pod(self, uid: str) -> None:
        """The pod belongs to no gang any more."""
        if uid in self._succeeded:
            self._changed[self._succeeded.remove(uid)] = None
        self.terminating.pop(uid, None)
        tracked = self._tracked.pop(uid, None)
        if tracked is not None:
            self._members[tracked.spec.key].pop(uid, None)
            self._changed[tracked.spec.key] = None

    def gang_of(self, uid: str) -> GangSpec | None:
        """The gang of a pod, if it is a member of one and has no claims."""
        tracked = self._tracked.get(uid)
        return None if tracked is None or tracked.member.claims else tracked.spec

    def snapshot(self) -> GangChanges:
        """The gangs as of the last ``update``, and how they differ from those before them."""
        if self._changed_since:
            now = self.gangs.copy()
            self.changes = GangChanges(self.changes.now, now, self._changed_since)
            self._changed_since = {}
        return self.changes

    def charge_again(self, pods: Iterable[str]) -> None:
        """Whether these pods, by uid, are charged may have changed: their node came or went."""
        for uid in pods:
            tracked = self._tracked.get(uid)
            if tracked is not None:
                self._changed[tracked.spec.key] = None

    def refresh(self, keys: Iterable[str]) -> None:
        """Note that something outside of this table has changed that these gangs depend on."""
        self._changed.update(dict.fromkeys(keys))

    def check_access_again(self) -> None:
        """Which namespaces may use which queues has changed. O(gangs)."""
        for gang in self.gangs.values():
            if gang.charged != self._accepts(gang.queue, gang.owner.namespace):
                self._changed[gang.key] = None

    def pending(self) -> tuple[str, ...]:
        """Keys of gangs with pods that wait for a node or behind a gate, in order."""
        return self._pending.listed()

    def below_min_members(self) -> tuple[str, ...]:
        """Keys of gangs that run below minMember, in order."""
        return self._stale.keys

    def started_in_part(self) -> tuple[str, ...]:
        """Keys of gangs that have started and whose other pods are created later, in order."""
        return tuple(sorted(self._started_in_part))

    def disrupted(self) -> Mapping[str, str]:
        """Gangs that fell below minMember as pods were ended from outside, and the first pod."""
        return dict(sorted(self._disrupted.items()))

    def ignored_queues(self) -> Iterable[IgnoredMarkers]:
        """The first waiting pod of each gang that names another queue than the gang is in."""
        return self._ignored_queues.values()

    def choosing_spot(self) -> tuple[str, ...]:
        """Keys of gangs whose workloads say whether they go to spot nodes, in order."""
        return tuple(sorted(self._choosing_spot))

    def sharing(self) -> tuple[str, ...]:
        """Keys of gangs whose pods rely on claims that other gangs are charged with, in order."""
        return tuple(sorted(self._sharing))

    def update(self, now: float, at_most: int) -> int:
        """Bring gangs and sums up to date, ``at_most`` so many; how many are left.

        A gang found below minMember is so since ``now``.
        """
        self._changed |= dict.fromkeys(self._stale.restart(now))
        for key in tuple(islice(self._changed, at_most)):
            del self._changed[key]
            self._rebuild(self._named.get(key, key), now)
        return len(self._changed)

    def _rebuild(self, key: str, now: float) -> None:
        """Put the gang called ``key`` together, or the gang of each of its owners and queues."""
        owned = by_owner(key, self._in_order(key)) if self._members.get(key) else {}
        gangs: dict[str, list[GangMember]] = {}
        for name, pods in owned.items():
            gangs |= by_queue(name, pods, lambda uid: self._admissions.terms(uid) is not None)
        if not gangs:
            self._forget(key)
        before = self._by_owner.pop(key, (key,))
        if len(gangs) > 1:
            self._by_owner[key] = tuple(gangs)
        for each in dict.fromkeys((*before, *gangs)):
            self._named.pop(each, None)
            if each != key and each in gangs:
                self._named[each] = key
            self._replace(each, gangs.get(each, []), now)
            self._changed_since[each] = None

    def _replace(self, key: str, by_order: list[GangMember], now: float) -> None:
        before = self.gangs.pop(key, None)
        self._started_in_part.pop(key, None)
        self._choosing_spot.pop(key, None)
        self._sharing.pop(key, None)
        self._ignored_queues.pop(key, None)
        if not by_order:
            self._stale.forget(key)
            self._disrupted.pop(key, None)
            self._pending.set(key, present=False)
            self._update_sums(before, None)
            return
        gang = self.gangs[key] = self._readable_gang(key, by_order, now)
        if not gang.bound or gang.is_satisfied:
            self._disrupted.pop(key, None)
        self._update_sums(before, gang)
        other = next((m for m in gang.members if m.queue != gang.queue and not m.node), None)
        if other is not None:
            text = f'queue "{other.queue}", as the gang is in queue "{gang.queue}"'
            self._ignored_queues[key] = IgnoredMarkers(other.pod, key, (text,))
        if gang.settings.spot is not None:
            self._choosing_spot[key] = None
        if gang.shares_with_others:
            self._sharing[key] = None
        if gang.starts_in_part and gang.bound:
            self._started_in_part[key] = None
        waits = any(m.state in (PodState.PENDING, PodState.GATED) for m in gang.members)
        self._pending.set(key, present=waits)

    def _readable_gang(self, key: str, by_order: list[GangMember], now: float) -> Gang:
        """The gang; if it cannot be put together its pods are counted and not placed."""
        spec = by_order[0].spec
        owner = spec.owner
        try:
            ended = spec.key, owner_uid(spec)
            found = as_admitted(self._gang(key, by_order), self._admissions)
            succeeded, completed = self._succeeded.by_leaf(*ended), completed_by_leaf(by_order)
            if completed:
                most = {leaf: max(n, completed.get(leaf, 0)) for leaf, n in succeeded.items()}
                succeeded = {**completed, **most}
            found = as_finishing(found, succeeded)
            leaves = (*self._succeeded.leaves(*ended), *completed)
            is_finishing = has_leaf_of(found.tree, leaves)
            gang = self._stale.updated(found, now, is_finishing=is_finishing)
        except Exception as error:
            return _invalid_gang(key, by_order, self._quarantine.report(owner, GANG, error))
        self._quarantine.clear(owner, GANG)
        return gang

    def _forget(self, key: str) -> None:
        self._members.pop(key, None)
        self._unordered.pop(key, None)
        self._succeeded.forget(key)

    def _in_order(self, key: str) -> list[GangMember]:
        """The pods of a gang in order, sorted only if one has come or changed its place."""
        members = self._members[key]
        if key in self._unordered:
            del self._unordered[key]
            by_order = sorted(members.items(), key=lambda item: sort_key(item[1]))
            members = self._members[key] = dict(by_order)
        return list(members.values())

    def _gang(self, key: str, by_order: list[GangMember]) -> Gang:
        """The gang of these pods; where they disagree about it, the first of them decides.

        Its queue is that to which the first of those that are on nodes was admitted: no pod that
        waits moves them to another one, or out of all.
        """
        spec, members = by_order[0].spec, tuple([each.member for each in by_order])
        admitted = (each.spec for each in by_order if self._admissions.terms(each.member.pod.uid))
        queue = next(admitted, spec).queue
        charged = self._accepts(queue, spec.owner.namespace)
        nodes = dict.fromkeys([member.node for member in members if member.node])
        if not charged or not all(map(self._node_exists, nodes)):
            members = tuple([self._with_charge(member, charged=charged) for member in members])
        own = spec.settings
        priority = max([m.priority for m in members]) if own.priority is None else own.priority
        by_priority = self._preemptible_below is None or priority < self._preemptible_below
        return Gang(
            key=key,
            owner=spec.owner,
            queue=queue,
            tree=tree_of(by_order),
            members=members,
            priority=priority,
            preemptible=by_priority if spec.preemptible is None else spec.preemptible,
            semi_preemptible=spec.semi_preemptible,
            suspend=spec.suspend,
            may_preempt=own.may_preempt and all(m.may_preempt for m in members),
            created=min([m.created for m in members]) if own.created is None else own.created,
            total_pods=spec.total_pods,
            problem=spec.problem,
            owner_unknown=spec.owner_unknown,
            settings=own,
            stale_since=own.stale_since,
            expected_runtime=spec.expected_runtime,
            starts_in_part=bool(spec.expected),
            placeholders=missing_placeholders(key, by_order[0].expected, members),
            charged=charged,
            rule=spec.rule,
            refusals=self._refusals(spec.key),
            uncounted_failures=self._uncounted_failures(_limited_workloads(by_order)),
        )

    def _with_charge(self, member: Member, *, charged: bool) -> Member:
        """The member with its charge; ``charged``: whether its gang's queue is charged at all."""
        if not member.node or (charged and self._node_exists(member.node)):
            return member
        return replace(member, charge=NOT_CHARGED)

    def _update_sums(self, before: Gang | None, now: Gang | None) -> None:
        """Correct the sums of queues where a gang became another; None: there is none."""
        accounts = (self.allocated, self.requested, self.non_preemptible, self.leaving)
        for sums, was, becomes in zip(accounts, charges_of(before), charges_of(now), strict=True):
            if was == becomes:
                continue
            if was is not None:
                sums.remove(*was)
            if becomes is not None:
                sums.add(*becomes)


def _limited_workloads(by_order: list[GangMember]) -> Iterator[str]:
    """The keys of the failure limits of a gang, each once."""
    # Mostly all pods of a gang share one set of limits.
    limits = {id(each.member.failure_limits): each.member.failure_limits for each in by_order}
    yield from dict.fromkeys(limit.key for each in limits.values() for limit in each)


def _invalid_gang(key: str, by_order: list[GangMember], invalid: InvalidObject) -> Gang:
    spec = by_order[0].spec
    return Gang(
        key=key,
        owner=spec.owner,
        queue=spec.queue,
        tree=Subgroup(min_members=1),
        members=tuple(each.member for each in by_order),
        priority=0,
        preemptible=True,
        may_preempt=False,
        created=0.0,
        problem=invalid.message,
    )


def _moves(before: Member, now: Member) -> bool:
    """Whether a pod comes at another place of its gang."""
    return (before.order, before.created) != (now.order, now.created)


def _is_disrupted(before: Member, now: Member) -> bool:
    """Whether a pod that ran is ended by others: one that we evict counts as terminating before."""
    ends = before.state is PodState.BOUND and now.state is PodState.RELEASING
    return ends and bool(now.disruption)
