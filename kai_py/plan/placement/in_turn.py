"""Placing parts of a gang one after the other, where each sees what those before it took.

Devices are chosen as each pod is placed, so a claim that may have any of them can get the one that
another pod of the gang needs. Then the part that does not fit is tried before those that came
before it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kai_py.plan.placement.attempt import Attempt
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.snapshot.gangs import Member

MAX_ORDERS = 8
"""Orders in which parts with claims are tried, until all fit."""

Part = TypeVar("Part")
"""What is placed at once: pods of one shape, or a subgroup."""


def orders_of(members: Iterable[Member]) -> int:
    """In how many orders parts are tried that consist of such pods."""
    return MAX_ORDERS if any(member.shape.has_claims for member in members) else 1


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
