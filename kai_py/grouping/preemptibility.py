"""May the pods of a workload be evicted for others?

A semi-preemptible workload gives its surplus, the pods above the floor of each of its subgroups,
and never its core, the pods up to the floor. The core counts as non-preemptible in every respect:
its queue and every queue above it must deserve it.
"""

from enum import StrEnum


class Preemptibility(StrEnum):
    """As users write it."""

    PREEMPTIBLE = "preemptible"
    SEMI_PREEMPTIBLE = "semi-preemptible"
    NON_PREEMPTIBLE = "non-preemptible"


def parse_preemptibility(text: str) -> Preemptibility | None:
    """What ``text`` means; None if it means nothing."""
    return next((each for each in Preemptibility if each == text), None)
