"""Queue access: the namespaces whose workloads may use a queue.

A queue without a rule admits all namespaces. A rule applies to the queue and its subtree: a
namespace must be named by it or selected by its labels. Running pods stay.
"""

from collections.abc import Mapping

from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.tables.queue_tree import QueueTable
from kai_py.snapshot.tables.queues import NamespaceRule

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace name."""


def closed_queue(
    queues: QueueTable, queue: int, namespace: str, namespaces: NamespaceLabels
) -> str:
    """The first queue, from the root down to ``queue``, that rejects ``namespace``; "" if none."""
    path: list[int] = queues.ancestors(queue).tolist()
    for at in path:
        rule = queues.namespaces[at]
        if rule is not None and not _admits(rule, namespace, namespaces):
            return queues.names[at]
    return ""


def _admits(rule: NamespaceRule, namespace: str, namespaces: NamespaceLabels) -> bool:
    return namespace in rule.names or label_selector_matches(
        rule.selector, namespaces.get(namespace, {})
    )
