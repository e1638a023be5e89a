"""Why a gang waits, in the words that KAI's users search for.

Limits and topologies are worded alike everywhere; what differs is how a lack of room and a missing
queue are told. Source: KAI-Scheduler's fit errors.
"""

import re
from collections.abc import Mapping

from kai_py.plan.decisions import Shortage, Stage, Unplaced

INSUFFICIENT = re.compile(r"(\d+) Insufficient (\S+)$")
NOUNS: Mapping[str, str] = {"nvidia.com/gpu": "GPUs", "cpu": "CPU cores", "memory": "memory"}


def kai_message(unplaced: Unplaced) -> str:
    """The sentence for the PodGroup's condition."""
    if unplaced.stage is Stage.QUEUE and f'"{unplaced.queue}" does not exist' in unplaced.message:
        return f"Queue '{unplaced.queue}' does not exist"
    short = unplaced.shortage
    if short is None:
        return unplaced.message
    causes = " ".join(f"{_cause(text)}." for text in short.causes)
    return f"{_head(unplaced, short)} due to: no nodes with enough resources were found: {causes}"


def _head(unplaced: Unplaced, short: Shortage) -> str:
    if short.needed == 1:
        return f"Resources were not found for pod {unplaced.pods[0]}"
    return (
        f"Resources were found for {short.found} pods while {short.needed} are required for gang "
        "scheduling. Additional pods cannot be scheduled"
    )


def _cause(text: str) -> str:
    lacking = INSUFFICIENT.match(text)
    if lacking is None:
        return text
    count, resource = lacking.groups()
    return f"{count} node(s) didn't have enough resources: {NOUNS.get(resource, resource)}"
