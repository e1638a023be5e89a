"""Queue access for admission; the same rule decides which queue is charged."""

from kai_py.snapshot.tables.queue_access import NamespaceLabels, closed_queue

__all__ = ["NamespaceLabels", "closed_queue"]
