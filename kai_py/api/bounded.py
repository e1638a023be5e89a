"""Bounded caches for keys from outside: when one is full, its oldest entry is dropped."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def remember(cache: dict[Key, Value], key: Key, value: Value, limit: int) -> Value:
    """Put ``value`` into ``cache``, which keeps at most ``limit`` entries; returns it."""
    if key not in cache and len(cache) >= limit:
        del cache[next(iter(cache))]
    cache[key] = value
    return value
