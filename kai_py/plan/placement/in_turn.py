"""Placing parts of a gang one after the other, where each sees what those before it took.

Devices are chosen as each pod is placed, so a claim that may have any of them can get the one that
another pod of the gang needs. Then the part that does not fit is tried before those that came
before it.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kai_py.plan.placement.attempt import Attempt
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.snapshot.gangs import Member

MAX_ORDERS = 3
"""Orders in which parts with claims are tried, until all fit."""

MAX_PODS_TO_REORDER = 16
"""Most pods with claims that are tried in several orders: each pod searches for devices again."""

Part = TypeVar("Part")
"""What is placed at once: pods of one shape, or a subgroup."""


def orders_of(members: Sequence[Member]) -> int:
    """In how many orders parts are tried that consist of these pods."""
    is_small = len(members) <= MAX_PODS_TO_REORDER
    return MAX_ORDERS if is_small and any(each.shape.has_claims for each in members) else 1


def place_in_turn(
    attempt: Attempt,
    parts: Sequence[Part],
    place: Callable[[Attempt, Part], Unschedulable | None],
    *,
    orders: int,
) -> Unschedulable | None:
    """Place all parts or none, in at most so many orders; None, or the reason of the first order.

    A part that fits nowhere even before all others ends it.
    """
    first_reason: Unschedulable | None = None
    for _ in range(orders):
        with attempt.statement.trial() as trial:
            steps = enumerate(place(attempt, part) for part in parts)
            failed, reason = next((step for step in steps if step[1] is not None), (0, None))
            if reason is None:
                trial.keep()
                return None
        first_reason = first_reason or reason
        if not failed:
            break
        parts = [parts[failed], *parts[:failed], *parts[failed + 1 :]]
        attempt = attempt._replace(explain=False)
    return first_reason
