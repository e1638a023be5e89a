"""Bindings that were made, and that the watch never shows.

A pod counts as bound from the decision on, until the watch shows it on its node. If the API's data
go back in time (etcd is restored from a backup), the binding is undone and no event reports it: the
pod would wait forever, with capacity that it does not use. So once a binding has not been shown for
a while, the pod is read and fenced: if that proves it to be on no node, it is pending again.

O(assumed pods) per pass, one read and one write for each that is due.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.assume_cache import AssumeCache
from kai_py.commit.pod_state import fence_pod

log = logging.getLogger(__name__)


class UnseenBindings:
    """Since when each pod has been assumed to be bound; ``grace`` in seconds."""

    def __init__(
        self,
        access: ApiAccess,
        assume_cache: AssumeCache,
        in_flight: Callable[[], Collection[str]],
        grace: float,
    ) -> None:
        """``in_flight``: uids of the pods in running transactions, which end by themselves."""
        self._access, self._assume_cache = access, assume_cache
        self._in_flight, self._grace = in_flight, grace
        self._since: dict[str, float] = {}

    async def run_once(self, pods: Callable[[], Iterable[Pod]], now: float) -> None:
        """Look at all ``pods`` of the mirror; ``now`` on any clock, in seconds."""
        assumed = self._assume_cache.assumed_pods() - frozenset(self._in_flight())
        self._since = {uid: self._since.get(uid, now) for uid in sorted(assumed)}
        due = {uid for uid, since in self._since.items() if now - since >= self._grace}
        # Placeholders of suspended Jobs are no pods: they end with the Job.
        seen = pods() if due else ()
        found = [PodRef.of(pod.metadata) for pod in seen if pod.metadata.uid in due]
        for pod in found:
            if (await fence_pod(self._access, pod)).proves_unused and self._is_assumed(pod.uid):
                self._since.pop(pod.uid, None)
                self._assume_cache.forget(pod.uid)
                log.warning(
                    "pod %s/%s: its binding is not in the API any more; it is pending again",
                    pod.namespace,
                    pod.name,
                )

    def _is_assumed(self, uid: str) -> bool:
        """Whether the assumption still stands after the wait for a read."""
        return uid in self._assume_cache.assumed_pods() and uid not in self._in_flight()
