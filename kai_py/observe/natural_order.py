"""Natural order of names: ``gpu-2`` before ``gpu-10``."""

import re


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that compares runs of digits as numbers."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
