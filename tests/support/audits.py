"""What the auditor finds in documents as the API server returns them."""

from collections.abc import Iterable

from kai_py.audit.documents import Document, decode_objects, observed_cluster
from kai_py.audit.finding import AuditFinding
from kai_py.audit.rules import audit_cluster
from kai_py.config import Configuration

FAR_FUTURE = 4_000_000_000.0
"""A time at which every grace period has passed, in 2096."""


def audit(objects: Iterable[Document], *, now: float = FAR_FUTURE) -> list[AuditFinding]:
    """What is wrong with a cluster of these objects, read at ``now`` (seconds since the epoch)."""
    return audit_cluster(observed_cluster(decode_objects(objects), Configuration(), now))
