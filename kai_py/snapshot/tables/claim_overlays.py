"""Claims as what is being written will make them: allocations, and claims not created yet.

An allocation that is assumed is shown on the claim until the API has one of its own; a claim that
is being created for a pod is shown until the API has it. What commit withdraws is hidden again.
"""

from collections.abc import Iterable

import msgspec

from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.object_cache import ObjectCache
from kai_py.snapshot.tables.pod_table import PodTable, Uids


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
        status = msgspec.structs.replace(claim.status, allocation=assumed[1])
        self._objects.overlay_claim(msgspec.structs.replace(claim, status=status))
        return self._users(claim)

    def _users(self, claim: ResourceClaim | None) -> Iterable[str]:
        if claim is None:
            return ()
        key = ("resourceclaims", claim.metadata.namespace, claim.metadata.name)
        return self._dependencies.dependents((key,))
