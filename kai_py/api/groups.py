"""Values grouped by a key."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """The values of each key in their order; keys in the order of their first values."""
    groups: dict[Key, list[Value]] = {}
    for each in values:
        groups.setdefault(key(each), []).append(each)
    return groups
