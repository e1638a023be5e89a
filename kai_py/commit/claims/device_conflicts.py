"""What happens when another scheduler gives away a device that a claim of ours holds already?

Before our pods are bound the transaction gives way (``kai_py.commit.transaction``). Afterwards
every such device is counted, told on both claims, and resolved by the configured rule:

    give-way-before-start   our pods leave as long as none of them has started
    give-way                our pods leave in any case
    keep                    nothing is done

Of two claims of ours the later one gives way. Pods that are bound are evicted, which frees their
claim; a claim whose pods all wait is released. What the API refuses is tried again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ConsumerReference
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import Access
from kai_py.commit.binding import is_unbound
from kai_py.commit.claims.device_holders import Clash, DeviceHolders
from kai_py.commit.claims.reconcile import release
from kai_py.commit.event_writer import Narrator
from kai_py.commit.eviction import EvictionOutcome, evict_pod
from kai_py.config import DoubleAllocation
from kai_py.snapshot.assumptions import FINISHED
from kai_py.snapshot.group_claims import GROUPS, group_of
from kai_py.watch.errors import ApiError

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.1
"""Between two looks at a clash that cannot be settled yet."""


@dataclass(kw_only=True, eq=False)
class Clashes:
    """The clashes that are not settled; ``note`` takes new ones, ``run`` settles them.

    ``pods``: all pods by (namespace, name); ``schedulers``: names that are ours; ``carries``:
    whether a transaction, which checks by itself, is at work on a claim.
    """

    access: Access
    holders: DeviceHolders
    pods: Callable[[], Mapping[tuple[str, str], Pod]]
    schedulers: Set[str]
    carries: Callable[[str], bool]
    narrator: Narrator
    count: Callable[[], None]
    rule: DoubleAllocation
    _open: dict[Clash, bool] = field(default_factory=dict)
    """Clashes with whether they were told."""
    _noted: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, clash: Clash) -> None:
        """Take in a clash that the mirror has shown."""
        self._open.setdefault(clash, False)
        self._noted.set()

    async def run(self) -> None:
        """Settle what is noted until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            for clash in tuple(self._open):
                if await self._is_settled(clash):
                    del self._open[clash]
            if self._open:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._noted.set)

    async def _is_settled(self, clash: Clash) -> bool:
        if not self.holders.stands(clash):
            return True
        sides = [(claim, self._users(claim)) for claim in (clash.later, clash.earlier)]
        claim, users = next((side for side in sides if side[1]), (clash.later, []))
        if not users:
            return True
        if self.carries(claim.uid):
            return False
        stays = self._reason_to_stay(users)
        self._tell(clash, stays or f"claim {claim} gives way")
        return bool(stays) or await self._give_way(clash, claim, users)

    def _users(self, ref: ClaimRef) -> list[Pod]:
        """Pods of ours that the claim is reserved for."""
        claim, pods = self.holders.claim(ref.uid), self.pods()
        if claim is None:
            return []
        found = [
            pod
            for consumer in claim.status.reserved_for
            for pod in _pods_of(ref.namespace, consumer, pods)
        ]
        return [
            pod
            for pod in found
            if pod.spec.scheduler_name in self.schedulers and pod.status.phase not in FINISHED
        ]

    def _reason_to_stay(self, users: Iterable[Pod]) -> str:
        if self.rule is DoubleAllocation.NEVER:
            return "nothing is done, as configured"
        started = next((pod for pod in users if pod.status.phase != "Pending"), None)
        if self.rule is DoubleAllocation.ALWAYS or started is None:
            return ""
        return f"pod {started.metadata.namespace}/{started.metadata.name} has started and stays"

    def _tell(self, clash: Clash, verdict: str) -> None:
        if not self._open[clash]:
            self._open[clash] = True
            self.count()
            self.narrator.tell_clash(clash, verdict)
            log.warning("device %s is allocated twice: %s", "/".join(clash.device), verdict)

    async def _give_way(self, clash: Clash, claim: ClaimRef, users: Iterable[Pod]) -> bool:
        pods = [PodRef.of(pod.metadata) for pod in users]
        unbound = await asyncio.gather(*(is_unbound(self.access, pod) for pod in pods))
        if all(unbound):
            return await self._release(claim)
        bound = [pod for pod, waits in zip(pods, unbound, strict=True) if not waits]
        other = clash.earlier if claim == clash.later else clash.later
        why = f"device {'/'.join(clash.device)} is also allocated to claim {other}"
        answers = [await evict_pod(self.access, pod, why) for pod in bound]
        gone = (EvictionOutcome.EVICTED, EvictionOutcome.VANISHED)
        return all(outcome in gone for outcome, _, _ in answers)

    async def _release(self, ref: ClaimRef) -> bool:
        claim = self.holders.claim(ref.uid)
        consumers = claim.status.reserved_for if claim is not None else ()
        try:
            await release(self.access, ref, frozenset(each.uid for each in consumers))
        except ApiError as error:
            log.warning("claim %s keeps its devices for now: %s", ref, error)
            return False
        return True


def _pods_of(
    namespace: str, consumer: ConsumerReference, pods: Mapping[tuple[str, str], Pod]
) -> list[Pod]:
    if consumer.resource != GROUPS:
        pod = pods.get((namespace, consumer.name))
        return [pod] if pod is not None and pod.metadata.uid == consumer.uid else []
    return [pod for pod in pods.values() if group_of(pod) == (namespace, consumer.name)]
