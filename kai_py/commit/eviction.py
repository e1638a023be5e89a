"""How does a pod leave? The Eviction API decides if it may now; then the pod is told why.

The Eviction API keeps disruption budgets: 429 means not now, and is an answer, not a failure; the
next plan asks again. It sets the condition DisruptionTarget itself, by which Job failure policies
tell an eviction from a crash, in words of its own over anybody else's. Ours, which name who takes
the room, follow it on a pod that still is there, so that a refused victim is never marked. Both
writes carry the pod's uid.

Source: KEP 3329 (DisruptionTarget), policy/v1 Eviction.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum

from kai_py.commit.access import Access
from kai_py.plan.decisions import Eviction
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Conflict, NotFound, TooManyRequests

log = logging.getLogger(__name__)

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"


class EvictionOutcome(StrEnum):
    """What became of an eviction; also the metric label."""

    EVICTED = "evicted"
    BLOCKED = "blocked"
    VANISHED = "vanished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """An eviction's outcome; ``retry_after``: seconds the server asks to wait, 0 if it doesn't."""

    eviction: Eviction
    outcome: EvictionOutcome
    reason: str = ""
    retry_after: float = 0.0


async def evict(access: Access, eviction: Eviction) -> EvictionResult:
    """Evict a pod and write why into its condition."""
    try:
        await access.call(lambda: _evict(access, eviction))
    except TooManyRequests as refusal:
        return EvictionResult(
            eviction, EvictionOutcome.BLOCKED, str(refusal), retry_after=refusal.retry_after
        )
    except (NotFound, Conflict) as gone:
        return EvictionResult(eviction, EvictionOutcome.VANISHED, str(gone))
    except ApiError as error:
        return EvictionResult(
            eviction, EvictionOutcome.FAILED, str(error), retry_after=error.retry_after
        )
    try:
        await access.call(lambda: _mark(access, eviction))
    except (NotFound, Conflict):
        pass  # it left at once
    except ApiError as error:
        log.info("pod %s was evicted; its condition does not say why: %s", eviction.pod, error)
    return EvictionResult(eviction, EvictionOutcome.EVICTED)


async def _mark(access: Access, eviction: Eviction) -> None:
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTED,
        "message": eviction.reason,
    }
    patch = {"metadata": {"uid": eviction.pod.uid}, "status": {"conditions": [condition]}}
    await access.client.patch(
        access.pods,
        eviction.pod.name,
        patch,
        namespace=eviction.pod.namespace,
        subresource="status",
        how=PatchType.STRATEGIC,
    )


async def _evict(access: Access, eviction: Eviction) -> None:
    pod = eviction.pod
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    await access.client.create_subresource(
        access.pods, pod.name, "eviction", body, namespace=pod.namespace
    )
