"""Queue access as admission asks for it; the rule itself also decides who is charged."""

from kai_py.snapshot.tables.queue_access import NamespaceLabels, closed_queue

__all__ = ["NamespaceLabels", "closed_queue"]
