"""Counts and lists in messages. This module imports little, as every command imports it."""

from collections.abc import Sequence

MAX_NAMED = 5
"""How many names of a list that may be long a message shows."""


def count_of(number: float, noun: str) -> str:
    """``1 gang``, ``2,000 gangs``, ``0.5 GPUs``; a noun with an ``s`` in the plural."""
    return f"{number:,.10g} {noun}" if number == 1 else f"{number:,.10g} {noun}s"


def is_or_are(number: float) -> str:
    """The verb after so many things."""
    return "is" if number == 1 else "are"


def first_of(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first ``most`` names and how many others there are: ``a, b and 3 more``."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")
