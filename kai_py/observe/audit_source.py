"""What the auditor inside the scheduler looks at, and how far each view of it has come.

Versions are comparable between kinds (KEP-5504): a kind whose watch has shown version 7 misses no
change up to 7. So a finding in which one kind is behind another is known from a true one by waiting
until every kind has come as far as the furthest had when it was found.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kai_py.audit.documents import cluster_of
from kai_py.audit.finding import AuditedCluster
from kai_py.config import Configuration
from kai_py.observe import health
from kai_py.planner import Planner
from kai_py.watch.freshness import DECIDING, Freshness
from kai_py.watch.kinds import DEVICE_CLASSES, NATIVE_GROUPS, NODES, PODS, RESOURCE_CLAIMS
from kai_py.watch.mirror import Mirror

if TYPE_CHECKING:
    from kai_py.observe.cluster_view import ClusterView


class AuditSource:
    """The mirror, the snapshot that was decided last, and the versions that watches have shown."""

    def __init__(
        self,
        mirror: Mirror,
        freshness: Freshness,
        planner: Planner,
        configuration: Configuration,
        now: Callable[[], float],
    ) -> None:
        """``now``: the time in seconds since the epoch."""
        self._mirror, self._freshness = mirror, freshness
        self._planner, self._configuration, self._now = planner, configuration, now
        self.view: ClusterView | None = None
        """Of the last cycle; None before the first."""

    def observe(self) -> AuditedCluster | None:
        """The cluster; None before the first cycle or while a view of it is known to be old."""
        kinds = self._mirror.status()
        silent = health.unsynced_kinds(kinds) + health.unreachable_kinds(kinds)
        late = self._freshness.silent() + self._freshness.behind()
        if self.view is None or silent or late or health.stale_watches(kinds):
            return None
        groups = self._mirror.has_read(NATIVE_GROUPS)
        return cluster_of(
            self.view.snapshot,
            self._planner.published_slices(),
            self._configuration,
            self._now(),
            pods=self._mirror.objects(PODS).values(),
            nodes=self._mirror.objects(NODES).values(),
            claims=self._mirror.objects(RESOURCE_CLAIMS).values(),
            classes=self._mirror.objects(DEVICE_CLASSES).values(),
            groups=self._mirror.objects(NATIVE_GROUPS).values() if groups else None,
        )

    def versions(self) -> tuple[int, int]:
        """The versions that the last and the first of the views have come to; 0 if unknown."""
        shown = [each.version for _, each in self._mirror.progress(DECIDING)]
        numbers = [int(each) for each in shown if each.isdecimal()]
        return (min(numbers), max(numbers)) if numbers else (0, 0)
