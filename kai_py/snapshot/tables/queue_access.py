"""Queue access: the namespaces whose workloads may use a queue.

A queue without a rule admits all namespaces. A rule applies to the queue and its subtree: a
namespace must be named by it or selected by its labels. Pods that run already keep running, but a
queue is never charged with pods of a namespace that may not use it: what a tenant writes on its own
pods must not cost another queue anything.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from kai_py.api.selectors import label_selector_matches
from kai_py.snapshot.tables.queue_tree import QueueTable, build_queue_table
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace name."""

QueueRules = tuple[tuple[str, str, NamespaceRule | None, float], ...]
"""Name, parent, rule and creation of every queue."""

MAX_REMEMBERED = 16_384
"""Answers: names of queues are chosen by tenants."""


def closed_queue(
    queues: QueueTable, queue: int, namespace: str, namespaces: NamespaceLabels
) -> str:
    """The first queue, from the root down to ``queue``, that rejects ``namespace``; "" if none."""
    for at in queues.ancestry[queue]:
        rule = queues.namespaces[at]
        if rule is not None and not _admits(rule, namespace, namespaces):
            return queues.names[at]
    return ""


def _admits(rule: NamespaceRule, namespace: str, namespaces: NamespaceLabels) -> bool:
    return namespace in rule.names or label_selector_matches(
        rule.selector, namespaces.get(namespace, {})
    )


class QueueAccess:
    """Which namespaces may use which queues, as of the last ``update``."""

    kinds: ClassVar[tuple[str, ...]] = ("queues", "namespaces")

    def __init__(
        self,
        specs: Callable[[], Iterable[QueueInfo]],
        namespaces: Callable[[], NamespaceLabels],
    ) -> None:
        """``specs``: all queues; ``namespaces``: the labels of all namespaces."""
        self._specs, self._namespaces = specs, namespaces
        self._stale = True
        self._rules: QueueRules = ()
        self._labels: NamespaceLabels = {}
        self._queues: QueueTable | None = None
        self._names: frozenset[str] = frozenset()
        self._remembered: dict[tuple[str, str], bool] = {}

    def apply(self, _kind: str, _old: object | None, _new: object | None) -> None:
        """Note that a queue or a namespace has changed."""
        self._stale = True

    def update(self) -> bool:
        """Take in queues and namespaces; whether answers may have changed. O(both) if stale."""
        if not self._stale:
            return False
        self._stale = False
        specs = tuple(self._specs())
        rules = tuple((each.name, each.parent, each.namespaces, each.created) for each in specs)
        restricted = any(each.namespaces is not None for each in specs)
        labels = self._namespaces() if restricted else {}
        if rules == self._rules and labels == self._labels:
            return False
        self._rules, self._labels = rules, labels
        self._queues = build_queue_table(specs, ())[0] if restricted else None
        self._names = frozenset(each.name for each in specs)
        self._remembered.clear()
        return True

    @property
    def is_restricted(self) -> bool:
        """Whether some queue is closed to some namespaces."""
        return self._queues is not None

    def exists(self, queue: str) -> bool:
        """Whether there is such a queue."""
        return queue in self._names

    def accepts(self, queue: str, namespace: str) -> bool:
        """Whether ``namespace`` may use ``queue``; any may use a queue that does not exist."""
        if self._queues is None:
            return True
        known = self._remembered.get((queue, namespace))
        if known is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            at = self._queues.positions.get(queue)
            known = at is None or not closed_queue(self._queues, at, namespace, self._labels)
            self._remembered[queue, namespace] = known
        return known
