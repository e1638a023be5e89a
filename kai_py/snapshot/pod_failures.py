"""What the failed pods of a gang show about nodes and about its Jobs."""

from msgspec import Struct


class NodeRefusal(Struct, frozen=True):
    """``node`` refused pods of a gang ``count`` times, the last ``at``, and is left out ``until``.

    Times in seconds since the epoch.
    """

    node: str
    reason: str
    count: int
    at: float
    until: float

    @property
    def seconds(self) -> float:
        """For how long the node is left out."""
        return self.until - self.at


FailedPods = tuple[tuple[str, frozenset[str]], ...]
"""The uid of a Job, and the uids of pods of it that have failed, for each Job that has any."""
