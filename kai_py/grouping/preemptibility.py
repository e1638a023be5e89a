"""Preemptibility of a workload: whether its pods may be evicted for others.

A semi-preemptible workload gives up its elastic pods, those above the minMember of each of its
subgroups, and never its minMember set. That set counts as non-preemptible in every respect: its
queue and all ancestors must deserve it.
"""

from enum import StrEnum


class Preemptibility(StrEnum):
    """Preemptibility as users write it."""

    PREEMPTIBLE = "preemptible"
    SEMI_PREEMPTIBLE = "semi-preemptible"
    NON_PREEMPTIBLE = "non-preemptible"


def parse_preemptibility(text: str) -> Preemptibility | None:
    """The value that ``text`` denotes, None if it denotes none."""
    return next((each for each in Preemptibility if each == text), None)
