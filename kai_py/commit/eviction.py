"""How does a pod leave? First it is told why, then the Eviction API decides if it may be now.

The condition DisruptionTarget comes first, so that Job failure policies can tell an eviction from
a crash. The Eviction API keeps disruption budgets: 429 means not now, and is an answer, not a
failure; the next plan asks again. Both writes carry the pod's uid.

Source: KEP 3329 (DisruptionTarget), policy/v1 Eviction.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.commit.access import Access, is_gone
from kai_py.commit.retry import persist
from kai_py.plan.decisions import Eviction
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Conflict, TooManyRequests

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


def disruption_patch(eviction: Eviction, pod: Pod | None, now: datetime) -> dict[str, Any] | None:
    """The status patch that says why the pod must leave; None when it says so already."""
    wanted = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTED,
        "message": eviction.reason,
    }
    for present in pod.status.conditions if pod is not None else ():
        if present.type == DISRUPTION_TARGET and present.status == "True":
            if (present.reason, present.message) == (PREEMPTED, eviction.reason):
                return None
            return _patch(eviction, wanted)
    return _patch(eviction, wanted | {"lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")})


def _patch(eviction: Eviction, condition: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"uid": eviction.pod.uid}, "status": {"conditions": [condition]}}


async def evict(
    access: Access, eviction: Eviction, known: Pod | None, now: datetime
) -> EvictionResult:
    """Evict a pod; ``known`` is the pod as the mirror has it."""
    try:
        patch = disruption_patch(eviction, known, now)
        if patch is not None:
            await persist(lambda: access.call(lambda: _mark(access, eviction, patch)), access.retry)
        await access.call(lambda: _evict(access, eviction))
    except TooManyRequests as refusal:
        return EvictionResult(
            eviction, EvictionOutcome.BLOCKED, str(refusal), retry_after=refusal.retry_after
        )
    except Conflict as gone:
        return EvictionResult(eviction, EvictionOutcome.VANISHED, str(gone))
    except ApiError as error:
        outcome = EvictionOutcome.VANISHED if is_gone(error) else EvictionOutcome.FAILED
        return EvictionResult(eviction, outcome, str(error), retry_after=error.retry_after)
    return EvictionResult(eviction, EvictionOutcome.EVICTED)


async def _mark(access: Access, eviction: Eviction, patch: dict[str, Any]) -> Pod:
    return await access.client.patch(
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
