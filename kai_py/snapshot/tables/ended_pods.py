"""Pods that have ended: how long they ran, and the claims that are still allocated for them.

Runtimes are learned only from pods that ran to their end a moment ago. A pod that was deleted ran
for as long as its workload, its owner or an eviction left it, also if its containers ended with
success on the way.

The claim controller removes the reservations of a pod some time after the pod has ended or was
deleted, and the allocation with the last of them. Until then the devices are still allocated, but
they count as capacity that is being released.

Claims that are reserved for PodGroups are kept apart: their users are the pods of the group, and
releasing them is up to their scheduler. A group without pods is ours if pods of ours were seen in
it and it was not deleted since.

A change of a claim or pod costs O(consumers of the claim). A pod that is not known yet cannot be
distinguished from one that is gone: its claim counts as releasable until the pod is seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.references import ClaimRef
from kai_py.api.times import CLOCK_STEP
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.pod_claims import POD_GROUPS, GroupKey, pod_group_of
from kai_py.snapshot.tables.group_schedulers import GroupSchedulers
from kai_py.snapshot.tables.pod_table import PodTable, Uids

ReleasableClaim = tuple[ClaimRef, str]
"""A claim and the uid of a pod that has ended, or is about to, while it is allocated for it."""

KEPT_SECONDS = 60.0
"""Longer than from one cycle to the next; a cycle that comes later learns nothing of the pod."""


@dataclass
class Completions:
    """Pods by uid; of each, when the first snapshot after its end was built."""

    _since: dict[str, float] = field(default_factory=dict)
    _new: dict[str, None] = field(default_factory=dict)

    def note(self, pod: Pod) -> None:
        """Note that the pod has succeeded."""
        if pod.metadata.deletion_timestamp is None:
            self._new[pod.metadata.uid] = None

    def snapshot(self, now: float) -> frozenset[str]:
        """Uids of the pods that succeeded within the last ``KEPT_SECONDS``."""
        self._since |= dict.fromkeys(self._new, now)
        self._new.clear()
        for uid, since in tuple(self._since.items()):
            if -CLOCK_STEP <= now - since <= KEPT_SECONDS:
                break
            del self._since[uid]
        return frozenset(self._since)


class ReleasableClaims:
    """Allocated claims by the pods they are reserved for."""

    kinds: ClassVar[tuple[str, ...]] = ("pods", "resourceclaims", "podgroups")

    def __init__(
        self, schedulers: GroupSchedulers, ours: Set[str], is_group: Callable[[str, str], bool]
    ) -> None:
        """Start empty; ``schedulers``: of the pods of groups; ``is_group``: namespace and name."""
        self._schedulers, self._ours, self._is_group = schedulers, ours, is_group
        self._adopted_groups: set[GroupKey] = set()
        self._active: set[str] = set()
        self._claims: dict[str, dict[str, ClaimRef]] = {}
        self._releasable: dict[str, tuple[ClaimRef, ...]] = {}
        self._group_claims: dict[str, tuple[ClaimRef, frozenset[str]]] = {}

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a pod or claim, or the end of a PodGroup."""
        changed = new if new is not None else old
        if isinstance(changed, Pod):
            self._apply_pod(changed, exists=new is not None)
        elif isinstance(changed, ResourceClaim):
            self._apply_claim(old, new)
        elif kind == POD_GROUPS and isinstance(old, Unstructured) and new is None:
            self._adopted_groups.discard((old.metadata.namespace, old.metadata.name))

    def snapshot(self) -> tuple[ReleasableClaim, ...]:
        """Every ended consumer of an allocated claim."""
        return tuple((ref, uid) for uid, claims in self._releasable.items() for ref in claims)

    def group_claim_users(self, gangs: Iterable[Gang]) -> Mapping[ClaimRef, frozenset[str]]:
        """Users of allocated claims that are reserved for groups all of whose pods are ours."""
        return group_claim_users(
            [
                ref
                for ref, groups in self._group_claims.values()
                if all(self._is_ours(ref.namespace, group) for group in groups)
            ],
            gangs,
        )

    def our_groups(self) -> frozenset[GroupKey]:
        """Groups of ours that claims are reserved for, with pods or without."""
        return frozenset(
            (ref.namespace, group)
            for ref, groups in self._group_claims.values()
            for group in groups
            if self._is_ours(ref.namespace, group)
        )

    def unknown_groups(self) -> Mapping[ClaimRef, frozenset[str]]:
        """Names of the groups that a claim is reserved for, where all of them are unknown."""
        return {
            ref: groups
            for ref, groups in self._group_claims.values()
            if not any(self._is_known(ref.namespace, group) for group in groups)
        }

    def adopt_group(self, namespace: str, name: str) -> None:
        """The group is ours, also once it has no pods; does nothing if it does not exist."""
        if self._is_group(namespace, name):
            self._adopted_groups.add((namespace, name))

    def _is_ours(self, namespace: str, group: str) -> bool:
        present = self._schedulers.of_group(namespace, group)
        return self._ours >= {*present} if present else (namespace, group) in self._adopted_groups

    def _is_known(self, namespace: str, group: str) -> bool:
        pods = self._schedulers.of_group(namespace, group)
        return bool(pods) or (namespace, group) in self._adopted_groups

    def _apply_pod(self, pod: Pod, *, exists: bool) -> None:
        self._observe_group(pod)
        uid = pod.metadata.uid
        if exists and not is_finished(pod):
            self._active.add(uid)
        else:
            self._active.discard(uid)
        self._update_pod(uid)

    def _observe_group(self, pod: Pod) -> None:
        """A group that is not known yet is seen with a later change of the pod, or its end."""
        named = pod_group_of(pod)
        if named is not None and pod.spec.scheduler_name in self._ours:
            self.adopt_group(*named)

    def _apply_claim(self, old: object | None, new: object | None) -> None:
        before, after = _reservations(old, "pods"), _reservations(new, "pods")
        for pod_uid, ref in before.items():
            self._claims[pod_uid].pop(ref.uid)
        for pod_uid, ref in after.items():
            self._claims.setdefault(pod_uid, {})[ref.uid] = ref
        for pod_uid in before | after:
            self._update_pod(pod_uid)
        for ref in _reservations(old, POD_GROUPS).values():
            self._group_claims.pop(ref.uid, None)
        for ref in _reservations(new, POD_GROUPS).values():
            self._group_claims[ref.uid] = (ref, _group_names(new))

    def _update_pod(self, pod_uid: str) -> None:
        claims = self._claims.get(pod_uid)
        self._releasable.pop(pod_uid, None)
        if not claims:
            self._claims.pop(pod_uid, None)
        elif pod_uid not in self._active:
            self._releasable[pod_uid] = tuple(claims.values())


class ClaimsOfLeavingPods(PodTable):
    """The claims of terminating pods that are not ours; those of ours belong to their gangs."""

    def __init__(self) -> None:
        """Start empty."""
        self._claims: dict[str, tuple[ReleasableClaim, ...]] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """A pod that should have been gone long ago is not expected to release anything."""
        placement, claims = pod.placement, pod.parsed.demand.claims
        is_leaving = placement.terminating and not placement.stuck_terminating
        if is_leaving and pod.parsed.gang_spec is None:
            refs = (*claims.references, *claims.extended_claims)
            self._claims[pod.uid] = tuple((ref, pod.uid) for ref in refs)
        else:
            self._claims.pop(pod.uid, None)
        return ()

    def release(self, uid: str) -> Uids:
        """The pod has ended or is gone."""
        self._claims.pop(uid, None)
        return ()

    def snapshot(self) -> tuple[ReleasableClaim, ...]:
        """Every claim of these pods."""
        return tuple(chain.from_iterable(self._claims.values()))


def _reservations(claim: object | None, resource: str) -> dict[str, ClaimRef]:
    """The claim by the pods or PodGroups it is reserved for, if it is allocated."""
    if not isinstance(claim, ResourceClaim) or claim.status.allocation is None:
        return {}
    ref = ClaimRef.of(claim.metadata)
    return {user.uid: ref for user in claim.status.reserved_for if user.resource == resource}


def _group_names(claim: object | None) -> frozenset[str]:
    """The PodGroups that the claim is reserved for."""
    users = claim.status.reserved_for if isinstance(claim, ResourceClaim) else ()
    return frozenset(user.name for user in users if user.resource == POD_GROUPS)


def group_claim_users(
    claims: Sequence[ClaimRef], gangs: Iterable[Gang]
) -> Mapping[ClaimRef, frozenset[str]]:
    """Pods on nodes, also terminating ones, that use ``claims`` of their groups; O(pods) if any."""
    users: dict[ClaimRef, set[str]] = {ref: set() for ref in claims}
    for gang in gangs if users else ():
        for member in gang.members:
            used = (
                member.group_reservation.claims if member.group_reservation and member.node else ()
            )
            for ref in used:
                users.setdefault(ref, set()).add(member.pod.uid)
    return {ref: frozenset(users[ref]) for ref in claims}
