"""Texts written on objects of a namespace, without the names of other namespaces' workloads.

Users who may read a namespace can read the conditions of its pods and its events. There a workload
of another namespace is named by its queue ("workload of queue a"), and a queue that takes no
workloads of the namespace is "another queue", unless a gang there names it; their names stay in the
plan, in the log and in the HTTP API, which reviews the rights of its readers. Events on objects
without a namespace are in the namespace ``default``; those on queues name queues.
"""

from collections.abc import Collection, Sequence

from msgspec import structs

from kai_py.api.workload_names import mentions, without_names, without_queues
from kai_py.plan.plan import Eviction, Plan, Unplaced
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queue_access import NamespaceLabels, QueueAccess
from kai_py.snapshot.tables.queues import QueueInfo, with_ancestors

EVENTS_NAMESPACE = "default"


class NamespaceTexts:
    """Texts as each namespace may read them, as of the last cycle's gangs and queues."""

    def __init__(self) -> None:
        self._gangs: Collection[Gang] = ()
        self._namespaces: frozenset[str] = frozenset()
        self._queues: dict[str, str] | None = None
        self._named: dict[str, frozenset[str]] | None = None
        self._specs: Sequence[QueueInfo] = ()
        self._labels: NamespaceLabels = {}
        self._access = QueueAccess(lambda: self._specs, lambda: self._labels)

    def update(
        self, gangs: Collection[Gang], queues: Sequence[QueueInfo], labels: NamespaceLabels
    ) -> None:
        """Take note of what exists; ``labels``: of the namespaces. O(gangs + queues)."""
        self._gangs, self._queues, self._named = gangs, None, None
        self._specs, self._labels = queues, labels
        self._access.apply("queues", None, None)
        self._access.update()
        self._namespaces = frozenset(gang.owner.namespace for gang in gangs)

    def readable(self, text: str, namespace: str) -> str:
        """The text as it may be written in ``namespace``; "": in that of events."""
        hidden = self._namespaces - {namespace or EVENTS_NAMESPACE}
        if mentions(text, hidden):
            text = without_names(text, hidden, self._described)
        if not namespace or not self._access.is_restricted:
            return text
        return without_queues(text, lambda queue: not self.may_name(queue, namespace))

    def may_name(self, queue: str, namespace: str) -> bool:
        """Whether texts in ``namespace`` may name the queue."""
        return (
            not namespace
            or self._access.accepts(queue, namespace)
            or queue in self._named_in(namespace)
        )

    def readable_plan(self, plan: Plan) -> Plan:
        """The plan with such texts of pending gangs and of evictions. O(texts)."""
        if len(self._namespaces) < 2 and not self._access.is_restricted:
            return plan
        unplaced = tuple(map(self._unplaced, plan.unplaced))
        return structs.replace(
            plan, unplaced=unplaced, evictions=tuple(map(self._eviction, plan.evictions))
        )

    def _unplaced(self, each: Unplaced) -> Unplaced:
        text = self.readable(each.message, each.owner.namespace)
        return each if text == each.message else structs.replace(each, message=text)

    def _eviction(self, each: Eviction) -> Eviction:
        text = self.readable(each.reason, each.pod.namespace)
        return each if text == each.reason else structs.replace(each, reason=text)

    def _named_in(self, namespace: str) -> frozenset[str]:
        """The queues that gangs of a namespace name, with those above."""
        if self._named is None:
            named: dict[str, set[str]] = {}
            for gang in self._gangs:
                named.setdefault(gang.owner.namespace, set()).add(gang.queue)
            self._named = {
                scope: with_ancestors(queues, self._specs) for scope, queues in named.items()
            }
        return self._named.get(namespace, frozenset())

    def _described(self, name: str) -> str:
        if self._queues is None:
            self._queues = {
                name: gang.queue
                for gang in self._gangs
                for name in (gang.key, f"{gang.owner.namespace}/{gang.owner.name}")
            }
        queue = self._queues.get(name, "")
        return f"of queue {queue}" if queue else ""
