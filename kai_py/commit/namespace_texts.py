"""What is written on an object of a namespace: without the names of other namespaces' workloads.

Whoever may read a namespace reads the conditions of its pods and its events. There a workload of
another namespace is named by its queue ("workload of queue a"); its name stays in the plan, in the
log and in the HTTP API, which reviews the rights of its readers. Events on objects without a
namespace are in the namespace ``default``.
"""

from collections.abc import Collection
from dataclasses import replace

from msgspec import structs

from kai_py.api.workload_names import mentions, without_names
from kai_py.plan.plan import Eviction, Plan, Unplaced
from kai_py.snapshot.gangs import Gang

EVENTS_NAMESPACE = "default"


class NamespaceTexts:
    """Texts as each namespace may read them, as of the last cycle's gangs."""

    def __init__(self) -> None:
        self._gangs: Collection[Gang] = ()
        self._namespaces: frozenset[str] = frozenset()
        self._queues: dict[str, str] | None = None

    def update(self, gangs: Collection[Gang]) -> None:
        """Take note of the gangs that exist. O(gangs)."""
        self._gangs, self._queues = gangs, None
        self._namespaces = frozenset(gang.owner.namespace for gang in gangs)

    def readable(self, text: str, namespace: str) -> str:
        """The text as it may be written in ``namespace``; "": in that of events."""
        hidden = self._namespaces - {namespace or EVENTS_NAMESPACE}
        return without_names(text, hidden, self._described) if mentions(text, hidden) else text

    def readable_plan(self, plan: Plan) -> Plan:
        """The plan with such texts of pending gangs and of evictions. O(texts)."""
        if len(self._namespaces) < 2:
            return plan
        unplaced = tuple(map(self._unplaced, plan.unplaced))
        return replace(
            plan, unplaced=unplaced, evictions=tuple(map(self._eviction, plan.evictions))
        )

    def _unplaced(self, each: Unplaced) -> Unplaced:
        text = self.readable(each.message, each.owner.namespace)
        return each if text == each.message else replace(each, message=text)

    def _eviction(self, each: Eviction) -> Eviction:
        text = self.readable(each.reason, each.pod.namespace)
        return each if text == each.reason else structs.replace(each, reason=text)

    def _described(self, name: str) -> str:
        if self._queues is None:
            self._queues = {
                name: gang.queue
                for gang in self._gangs
                for name in (gang.key, f"{gang.owner.namespace}/{gang.owner.name}")
            }
        queue = self._queues.get(name, "")
        return f"of queue {queue}" if queue else ""
