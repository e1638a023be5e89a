"""Who uses which claim in a cycle: devices are free once the last user has left.

Users are those the claim is reserved for and the pods placed with it in this cycle; for a PodGroup
stand those of its pods that have a node. Once none has, the claim is given back
(``kai_py.commit.recovery``).
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from kai_py.api.records.resource import ConsumerReference, ResourceClaim
from kai_py.plan.state.device_api import Undo
from kai_py.snapshot.group_claims import GROUPS


@dataclass(slots=True, eq=False)
class ClaimUsers:
    """Users by the uid of the claim; everything can be undone in reverse order."""

    of_groups: Mapping[str, Set[str]] = field(default_factory=dict)
    """Pods that use the claim of their group; other groups keep theirs."""
    _joined: dict[str, dict[str, None]] = field(default_factory=dict)
    _left: dict[str, dict[str, None]] = field(default_factory=dict)

    def join(self, claim_uid: str, pod_uid: str) -> Undo:
        """Count a pod that is placed as a user."""
        return _added(self._joined.setdefault(claim_uid, {}), pod_uid)

    def leave(self, claim_uid: str, pod_uid: str) -> Undo | None:
        """Count a pod as gone; None when it was already."""
        gone = self._left.setdefault(claim_uid, {})
        return None if pod_uid in gone else _added(gone, pod_uid)

    def any_left(self, claim: ResourceClaim) -> bool:
        """Tell whether anybody still uses the claim."""
        users = {
            uid
            for consumer in claim.status.reserved_for
            for uid in self._standing_for(consumer, claim.metadata.uid)
        }
        users |= self._joined.get(claim.metadata.uid, {}).keys()
        return not users <= self._left.get(claim.metadata.uid, {}).keys()

    def _standing_for(self, consumer: ConsumerReference, claim_uid: str) -> Set[str]:
        if consumer.resource != GROUPS:
            return {consumer.uid}
        return self.of_groups.get(claim_uid, {consumer.uid})


def _added(users: dict[str, None], uid: str) -> Undo:
    users[uid] = None

    def undo() -> None:
        del users[uid]

    return undo
