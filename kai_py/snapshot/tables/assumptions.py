"""Decisions that are being written but that the watch does not show yet, and stuck terminations.

A cycle must count on what the last one decided, or it would decide it again. Each assumption ends
when the watch shows the outcome, or when commit withdraws it. An allocation that is assumed is
shown on its claim until the API has one; a claim that is being created for a pod is shown until the
API has it. Volumes are assumed in ``tables.volumes``.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.times import lies_ahead
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.derived_pod import AssumedBinding, PodPlacement
from kai_py.snapshot.object_cache import ObjectCache
from kai_py.snapshot.tables.pod_table import PodTable, Uids


class NominatedNode(Struct, frozen=True):
    """A node that is reserved for a pod until ``expires`` (seconds since the epoch)."""

    node: str
    expires: float


class _Wait(NamedTuple):
    """Nothing is tried again before ``until`` (seconds since the epoch)."""

    until: float
    reason: str = ""


LONGEST_BACKOFF = 600.0
"""More than any gang waits whose decisions could not be carried out."""


class Assumptions(PodTable):
    """Bindings, evictions, their refusals and nominations by pod uid, backoff by gang."""

    def __init__(self, nomination_seconds: float) -> None:
        """Start empty; a nomination lasts ``nomination_seconds``."""
        self._nomination_seconds = nomination_seconds
        self._bindings: dict[str, AssumedBinding] = {}
        self._evicted = set[str]()
        self._refused: dict[str, _Wait] = {}
        self._nominations: dict[str, NominatedNode] = {}
        self._backoff: dict[str, _Wait] = {}

    def assume(self, binding: AssumedBinding) -> Uids:
        """The pod goes to its node, and no nomination is needed any more."""
        self._bindings[binding.pod_uid] = binding
        self._nominations.pop(binding.pod_uid, None)
        return ()

    def bound_uids(self) -> frozenset[str]:
        """Uids of the pods that are assumed to be bound."""
        return frozenset(self._bindings)

    def node_of(self, pod_uid: str) -> str:
        """The node to which the pod is assumed to be bound, "" for none."""
        return self._bindings[pod_uid].node if pod_uid in self._bindings else ""

    def evict(self, pod_uid: str) -> None:
        """The pod is being evicted."""
        self._evicted.add(pod_uid)

    def cancel_eviction(self, pod_uid: str, refused_until: float) -> bool:
        """The pod stays after all, at least until then; whether its eviction was assumed."""
        if pod_uid not in self._evicted:
            return False
        self._evicted.remove(pod_uid)
        if refused_until:
            self._refused[pod_uid] = _Wait(refused_until)
        return True

    def refused_evictions(self, now: float) -> frozenset[str]:
        """The pods that are not to be evicted at ``now``, as the API server has just refused it."""
        return frozenset(_still_waiting(self._refused, now))

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Reserve ``node`` for the pod; the time runs from the first nomination of that node."""
        known = self._nominations.get(pod_uid)
        if known is None or known.node != node:
            self._nominations[pod_uid] = NominatedNode(node, now + self._nomination_seconds)

    def nominate_from_next(self, pod_uid: str, node: str) -> None:
        """Reserve ``node`` for the pod; the time runs from the next snapshot."""
        self._nominations[pod_uid] = NominatedNode(node, 0.0)

    def back_off(self, gang: str, until: float, reason: str) -> None:
        """Do not place the gang before ``until``: carrying out a decision about it failed."""
        self._backoff[gang] = _Wait(until, reason)

    def in_backoff(self, now: float) -> Mapping[str, str]:
        """The gangs not to be placed at ``now``, and why; drops those whose time is over."""
        waits = _still_waiting(self._backoff, now)
        return {gang: wait.reason for gang, wait in waits.items()}

    def observe(self, pod: Pod) -> Uids:
        """Drop what the watch shows now; take over a nomination made before a restart."""
        uid = pod.metadata.uid
        if pod.spec.node_name or is_finished(pod):
            self._bindings.pop(uid, None)
            self._nominations.pop(uid, None)
        elif pod.status.nominated_node_name and uid not in self._nominations:
            self.nominate_from_next(uid, pod.status.nominated_node_name)
        return ()

    def forget(self, uid: str) -> Uids:
        """Drop the assumed binding."""
        self._bindings.pop(uid, None)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """Drop all that is assumed of a pod that is gone."""
        uid = pod.metadata.uid
        self._nominations.pop(uid, None)
        self._evicted.discard(uid)
        self._refused.pop(uid, None)
        return ()

    def placement(self, pod: Pod) -> PodPlacement:
        """Where ``pod`` is; it is terminating also while its eviction is being written."""
        uid = pod.metadata.uid
        nomination, binding = self._nominations.get(uid), self._bindings.get(uid)
        deleted = pod.metadata.deletion_timestamp is not None
        return PodPlacement(
            node=pod.spec.node_name or (binding.node if binding else ""),
            nominated=nomination.node if nomination else "",
            terminating=deleted or uid in self._evicted,
            lingering=deleted and uid not in self._evicted and not was_preempted(pod),
            gpus=binding.gpus if binding else (),
            gets_claim=binding is not None and binding.new_claim is not None,
            node_amounts=binding.node_amounts if binding else {},
        )

    def nominations(self, now: float) -> Mapping[str, NominatedNode]:
        """The nominations in force at ``now``; those from before a restart begin to run."""
        expires = now + self._nomination_seconds
        for uid, nomination in list(self._nominations.items()):
            if nomination.expires == 0.0:
                self._nominations[uid] = NominatedNode(nomination.node, expires)
            elif not lies_ahead(nomination.expires, now, self._nomination_seconds):
                del self._nominations[uid]
        return dict(self._nominations)


def _still_waiting(waits: dict[str, _Wait], now: float) -> Mapping[str, _Wait]:
    """``waits`` without those that are over at ``now``, which are dropped."""
    for key, wait in list(waits.items()):
        if not lies_ahead(wait.until, now, LONGEST_BACKOFF):
            del waits[key]
    return waits


class ClaimOverlays(PodTable):
    """Assumed allocations by claim uid, claims being created by pod uid; shown in an ObjectCache.

    The pods to be derived again are those that use a claim that is shown otherwise than before.
    """

    def __init__(self, objects: ObjectCache, dependencies: Dependencies) -> None:
        """Show on the claims of ``objects``."""
        self._objects = objects
        self._dependencies = dependencies
        self._allocations: dict[str, tuple[str, AllocationResult]] = {}
        self._new_claims: dict[str, ResourceClaim] = {}

    def assume(self, binding: AssumedBinding) -> Uids:
        """Show the claims of the pod with the allocations that are being written."""
        uid = binding.pod_uid
        touched: list[str] = []
        if binding.new_claim is not None:
            self._new_claims[uid] = binding.new_claim
            self._objects.assume_claim(binding.new_claim)
            touched.append(uid)
        for claim_uid, allocation in binding.claims.items():
            self._allocations[claim_uid] = uid, allocation
            touched.extend(self._show(claim_uid))
        return tuple(dict.fromkeys(touched))

    def forget(self, uid: str) -> Uids:
        """Show the claims of the pod as the API has them."""
        new_claim = self._new_claims.pop(uid, None)
        if new_claim is not None:
            self._objects.forget_assumed_claim(new_claim)
        touched: list[str] = []
        for claim_uid in [each for each, (pod, _) in self._allocations.items() if pod == uid]:
            del self._allocations[claim_uid]
            self._objects.drop_overlay(claim_uid)
            touched.extend(self._users(self._objects.claim_by_uid(claim_uid)))
        return tuple(dict.fromkeys(touched))

    def update(self, claim: ResourceClaim) -> Uids:
        """Take in a claim as the API has it: with an allocation nothing needs to be assumed."""
        if claim.status.allocation is not None:
            self._allocations.pop(claim.metadata.uid, None)
            return ()
        return self._show(claim.metadata.uid)

    def _show(self, claim_uid: str) -> Iterable[str]:
        claim, assumed = self._objects.claim_by_uid(claim_uid), self._allocations.get(claim_uid)
        if claim is None or assumed is None or claim.status.allocation is not None:
            return ()
        status = structs.replace(claim.status, allocation=assumed[1])
        self._objects.overlay_claim(structs.replace(claim, status=status))
        return self._users(claim)

    def _users(self, claim: ResourceClaim | None) -> Iterable[str]:
        if claim is None:
            return ()
        key = ("resourceclaims", claim.metadata.namespace, claim.metadata.name)
        return self._dependencies.dependents((key,))


def was_preempted(pod: Pod) -> bool:
    """Whether a scheduler evicted the pod; tenants can't write the status that says so."""
    return any(
        each.type == "DisruptionTarget"
        and each.status == "True"
        and each.reason == "PreemptionByScheduler"
        for each in pod.status.conditions
    )


STUCK_AFTER_SECONDS = 120.0
"""How long after the end of its grace a pod that still exists counts as stuck."""
ORDINARY_SECONDS = 60.0
"""What a pod takes to end after its deletion: 30 s of grace, and the node's work, twice over."""


class StuckTerminations(PodTable):
    """Terminating pods by uid: those that run on, those that take long, those long overdue.

    A pod that was deleted with a grace of which more than ``max_grace_seconds`` is left runs on: it
    counts as running, and can be evicted like any other pod, which shortens its grace. Otherwise
    whoever deletes a pod with a grace of days would keep others waiting for its end.

    A pod that still exists ``ORDINARY_SECONDS`` after its deletion is overdue: its queue is charged
    with it whoever deleted it, and no gang waits for its quota. A pod's ``deletionTimestamp`` is
    when its grace ends. One that still exists ``STUCK_AFTER_SECONDS`` later (a finalizer that is
    never removed, a node that is gone) keeps what it occupies, and no plan counts on its end.
    """

    def __init__(self, max_grace_seconds: float) -> None:
        """Start empty."""
        self._max_grace = max_grace_seconds
        self._runs_until: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._stuck: dict[str, None] = {}
        self._ordinary_until: dict[str, float] = {}
        self._overdue: dict[str, None] = {}

    def observe(self, pod: Pod) -> Uids:
        """Note when a terminating pod is due to be gone."""
        uid, grace_ends = pod.metadata.uid, pod.metadata.deletion_timestamp
        if grace_ends is not None and uid not in self._stuck:
            self._due[uid] = grace_ends.timestamp() + STUCK_AFTER_SECONDS
        grace = max(pod.metadata.deletion_grace_period_seconds, 0)
        if grace_ends is not None and uid not in self._overdue:
            self._ordinary_until[uid] = grace_ends.timestamp() - grace + ORDINARY_SECONDS
        if grace_ends is not None and grace > self._max_grace:
            self._runs_until[uid] = grace_ends.timestamp() - self._max_grace
        else:
            # Another deletion of the pod may have shortened its grace period.
            self._runs_until.pop(uid, None)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone at last."""
        uid = pod.metadata.uid
        self._runs_until.pop(uid, None)
        self._due.pop(uid, None)
        self._stuck.pop(uid, None)
        self._ordinary_until.pop(uid, None)
        self._overdue.pop(uid, None)
        return ()

    def update(self, now: float) -> tuple[str, ...]:
        """The pods that end soon, became overdue or stuck since the last call; O(terminating)."""
        ending = _move_due(self._runs_until, {}, now)
        late = _move_due(self._ordinary_until, self._overdue, now)
        return tuple(dict.fromkeys((*ending, *late, *_move_due(self._due, self._stuck, now))))

    def next_change(self) -> float:
        """When ``update`` next gives a pod, inf if it gives none; O(terminating pods)."""
        changes = (*self._runs_until.values(), *self._ordinary_until.values(), *self._due.values())
        return min(changes, default=math.inf)

    def on(self, placement: PodPlacement, uid: str) -> PodPlacement:
        """The placement of the pod, with what is known of its end."""
        # What a scheduler evicted is not lingering: its grace period is known to be bounded.
        if placement.lingering and uid in self._runs_until:
            return structs.replace(placement, terminating=False, lingering=False)
        if uid not in self._overdue:
            return placement  # It is not stuck, either: that takes longer.
        return structs.replace(
            placement, stuck_terminating=uid in self._stuck, overdue=True, lingering=True
        )


def _move_due(waiting: dict[str, float], over: dict[str, None], now: float) -> tuple[str, ...]:
    found = tuple(uid for uid, due in waiting.items() if due <= now)
    for uid in found:
        del waiting[uid]
        over[uid] = None
    return found
