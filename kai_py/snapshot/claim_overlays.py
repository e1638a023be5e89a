"""Which claims look otherwise than the API has them, because their devices are being written?

An allocation that is assumed is shown on the claim until the API has one of its own; a claim that
is being made for a pod is shown until the API has it. What commit takes back is hidden again.
"""

from collections.abc import Callable, Iterable

import msgspec

from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.assumptions import Assumptions
from kai_py.snapshot.object_cache import Key, ObjectCache


class ClaimOverlays:
    """Shows on ``objects`` what ``assumed`` says; pods of a claim that changes are derived anew."""

    def __init__(
        self,
        objects: ObjectCache,
        assumptions: Assumptions,
        derive_dependents: Callable[[Iterable[Key]], None],
    ) -> None:
        """``derive_all``: derive the pods that were derived from any of these objects."""
        self._objects = objects
        self._assumptions = assumptions
        self._derive_dependents = derive_dependents

    def update(self, claim: ResourceClaim) -> None:
        """Take in a claim as the API has it: with an allocation nothing needs to be assumed."""
        if claim.status.allocation is not None:
            self._assumptions.confirm_claim(claim.metadata.uid)
        else:
            self.show(claim.metadata.uid)

    def show(self, uid: str) -> None:
        """Show the allocation that is assumed for a claim, unless the API has one."""
        claim, allocation = self._objects.claim_by_uid(uid), self._assumptions.allocation(uid)
        if claim is None or allocation is None or claim.status.allocation is not None:
            return
        status = msgspec.structs.replace(claim.status, allocation=allocation)
        self._objects.overlay_claim(msgspec.structs.replace(claim, status=status))
        self._derive_users(claim)

    def forget(self, pod_uid: str) -> None:
        """Show claims as the API has them that were assumed to be allocated for the pod."""
        making = self._assumptions.new_claim(pod_uid)
        if making is not None:
            self._objects.forget_assumed_claim(making)
        for uid in self._assumptions.forget(pod_uid):
            self._objects.drop_overlay(uid)
            claim = self._objects.claim_by_uid(uid)
            if claim is not None:
                self._derive_users(claim)

    def _derive_users(self, claim: ResourceClaim) -> None:
        self._derive_dependents(
            (("resourceclaims", claim.metadata.namespace, claim.metadata.name),)
        )
