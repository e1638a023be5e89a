"""Pods that controllers could not create, as the API server refused them: their events say why.

A ResourceQuota, an admission webhook or a policy is named in the message of the refusal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kai_py.observe.event_history import FAILED_CREATE, ClusterEvent
from kai_py.observe.explanation import NO_PODS, Explanation
from kai_py.plan.plan import Stage
from kai_py.simulate.absent_gangs import key_of, objects_below
from kai_py.simulate.objects import Document

INCOMPLETE = (Stage.BELOW_MIN_MEMBER.value, NO_PODS)
RECENT_SECONDS = 900.0
"""A controller tries again within ten minutes at most, so older refusals are over."""
PREFIX = "Error creating: "


def with_refusals(
    found: Iterable[Explanation],
    documents: Sequence[Document],
    events: Iterable[ClusterEvent],
    now: float,
) -> Iterator[Explanation]:
    """The explanations; those of gangs that lack pods end with the last refusal of one."""
    recent = (
        each
        for each in events
        if each.reason == FAILED_CREATE and now - each.last_seen <= RECENT_SECONDS
    )
    last = {
        f"{event.involved_object.namespace}/{event.involved_object.kind}/"
        f"{event.involved_object.name}": event.message.removeprefix(PREFIX)
        for event in sorted(recent, key=lambda each: (each.last_seen, each.message))
    }
    for each in found:
        if each.state in INCOMPLETE and last:
            refused = [last[name] for name in _owners(each.gang, documents) if name in last]
            note = f"The API server refuses its pods: {refused[0]}" if refused else ""
            yield replace(each, message=" ".join(filter(None, (each.message, note))))
        else:
            yield each


def _owners(gang: str, documents: Sequence[Document]) -> Iterator[str]:
    """Keys of the gang's workload and of the objects below it."""
    workload = next((each for each in documents if key_of(each) == gang), None)
    if workload is not None:
        yield gang
        yield from map(key_of, objects_below(documents, workload))
