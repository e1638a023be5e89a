"""Gangs on nodes that are charged to no queue, as theirs was deleted or is closed to them.

Their pods run on, outside all shares and limits. O(pods).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_py.api.phrases import count_of, is_or_are
from kai_py.snapshot.snapshot import Snapshot


@dataclass(slots=True)
class Uncharged:
    """How many gangs and pods of one queue are on nodes without being charged to it."""

    gangs: int = 0
    pods: int = 0

    @property
    def _counted(self) -> str:
        gangs, pods = count_of(self.gangs, "gang"), count_of(self.pods, "pod")
        return f"{gangs} with {pods} on nodes {is_or_are(self.gangs)} charged to no queue"

    def of_missing(self, queue: str) -> str:
        """The problem of a queue that does not exist."""
        return f"queue {queue!r} does not exist; {self._counted}. Create it to charge it with them"

    def of_closed(self, queue: str) -> str:
        """The problem of a queue that does not accept the namespaces of these gangs."""
        gangs = "its namespace" if self.gangs == 1 else "their namespaces"
        return f"{self._counted}: queue {queue!r} does not accept {gangs}"


def uncharged_gangs(snapshot: Snapshot) -> Mapping[str, Uncharged]:
    """By the name of their queue, in order."""
    queues = {each.name for each in snapshot.queues}
    found: dict[str, Uncharged] = {}
    for gang in snapshot.gangs.values():
        if not gang.queue or (gang.charged and gang.queue in queues):
            continue
        pods = sum(bool(member.node) for member in gang.members)
        if pods:
            counts = found.setdefault(gang.queue, Uncharged())
            counts.gangs += 1
            counts.pods += pods
    return dict(sorted(found.items()))
