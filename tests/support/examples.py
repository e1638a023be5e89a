"""How many examples a property is tested with: fewer where the answer is wanted soon."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
FAST = "fast"
"""The profile of ``make test-fast``; ``make test`` tries all examples."""
DEFAULT = 100


def examples(count: int) -> int:
    """``count``, or with the fast profile the first eighth of these examples, at least ten."""
    return min(count, max(10, count // 8)) if PROFILE == FAST else count
