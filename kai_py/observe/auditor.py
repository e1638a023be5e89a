"""The auditor inside the scheduler: audits of the whole cluster, in slices that cost little.

A slice of a few milliseconds is followed by a pause a hundred times as long, so that the audit
takes about one part in a hundred of the event loop's time, however large the cluster is; an audit
of 100,000 pods then takes some minutes. Findings that last become a metric and a line of the log.

An audit reads the mirror. While the watch of any kind is silent, behind our own writes or has not
been read, the mirror of that kind may be behind the others, and no audit runs. A finding counts
once every kind has come as far as the furthest had when it was first found: versions are comparable
between kinds (KEP-5504), so a kind whose watch has shown version 7 misses no change up to 7. A rule
that fails is reported and ends for this audit; the others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

from kai_py.audit.documents import cluster_of
from kai_py.audit.finding import AuditedCluster, AuditFinding, Confirmation, FindingKind, Steps
from kai_py.audit.rules import RULES
from kai_py.config import Configuration
from kai_py.observe import health
from kai_py.planner import Planner
from kai_py.watch.freshness import DECIDING, Freshness
from kai_py.watch.kinds import (
    DEVICE_CLASSES,
    NATIVE_GROUPS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    VOLUME_CLAIMS,
)
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
        """The view of the last cycle; None before the first."""

    def observe(self) -> AuditedCluster | None:
        """The cluster; None before the first cycle or while a view of it is known to be old."""
        kinds = self._mirror.status()
        silent = health.unsynced_kinds(kinds) + health.unreachable_kinds(kinds)
        late = self._freshness.silent() + self._freshness.behind()
        if self.view is None or silent or late:
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
            volume_claims=self._mirror.objects(VOLUME_CLAIMS).values(),
            groups=self._mirror.objects(NATIVE_GROUPS).values() if groups else None,
        )

    def versions(self) -> tuple[int, int]:
        """The versions that the last and the first of the views have come to; 0 if unknown."""
        shown = [each.version for _, each in self._mirror.progress(DECIDING)]
        numbers = [int(each) for each in shown if each.isdecimal()]
        return (min(numbers), max(numbers)) if numbers else (0, 0)


SLICE_SECONDS = 0.004
SHARE = 0.01
"""Part of the time that the audit takes."""
MIN_PAUSE = 0.1
INTERVAL = 10.0
"""Least seconds from the end of a look to the next."""
STEPS_PER_CHECK = 64

log = logging.getLogger(__name__)

Observe = Callable[[], AuditedCluster | None]
"""The cluster as it is now; None while it cannot be looked at."""


class Auditor:
    """Looks at the cluster again and again; ``run`` it beside the cycles."""

    def __init__(
        self,
        registry: CollectorRegistry,
        observe: Observe,
        clock: Callable[[], float],
        versions: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """The metrics are registered on ``registry``; ``clock``: seconds, never set back.

        ``versions``: the least and the greatest that the views of all kinds have come to.
        """
        self._versions = versions
        self._version_span = (0, 0)
        self.findings: tuple[AuditFinding, ...] = ()
        self._observe = observe
        self._clock = clock
        self._confirmation = Confirmation()
        self._rules: Iterator[Steps] | None = None
        self._steps: Steps = iter(())
        self._began = 0.0
        self._found: list[AuditFinding] = []
        self._count = Gauge(
            "kai_py_audit_findings",
            "Audit findings that have lasted for a while, by kind: states that must never occur.",
            ("kind",),
            registry=registry,
        )
        self._looks = Counter(
            "kai_py_audits_total",
            "Audits of the whole cluster.",
            registry=registry,
        )
        self._failures = Counter(
            "kai_py_audit_failures_total",
            "Rules of the auditor that ended in an unexpected error.",
            registry=registry,
        )
        self._seconds = Counter(
            "kai_py_audit_seconds_total", "Time that audits took.", registry=registry
        )
        for kind in FindingKind:
            self._count.labels(kind.value).set(0)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            started = self._clock()
            finished = self.advance(SLICE_SECONDS)
            spent = self._clock() - started
            self._seconds.inc(spent)
            pause = max(spent / SHARE, MIN_PAUSE)
            await asyncio.sleep(max(pause, INTERVAL) if finished else pause)

    def advance(self, seconds: float) -> bool:
        """Go on with the look for about ``seconds``; returns whether it is finished."""
        until = self._clock() + seconds
        if self._rules is None:
            cluster = self._observe()
            if cluster is None:
                return True
            self._began, self._found = cluster.now, []
            self._version_span = self._versions()
            self._rules = (rule(cluster) for rule in RULES)
        while self._clock() < until:
            if self._next_steps():
                continue
            following = next(self._rules, None)
            if following is None:
                self._finish()
                return True
            self._steps = following
        return False

    def _next_steps(self) -> bool:
        """Go on with the present rule; returns whether there is more of it."""
        steps = 0
        try:
            for found in islice(self._steps, STEPS_PER_CHECK):
                steps += 1
                # One by one: what a rule finds before it fails is not lost.
                if found is not None:
                    self._found.append(found)
        except Exception:
            log.exception("a rule of the auditor failed; the others go on")
            self._failures.inc()
            return False
        return steps == STEPS_PER_CHECK

    def _finish(self) -> None:
        self._rules = None
        lasting = self._confirmation.confirm(sorted(self._found), self._began, *self._version_span)
        self._tell(lasting)
        self.findings = tuple(lasting)
        self._looks.inc()
        for kind in FindingKind:
            self._count.labels(kind.value).set(sum(each.kind is kind for each in lasting))

    def _tell(self, lasting: list[AuditFinding]) -> None:
        """Log findings that are new, and those that are gone."""
        before = {each.identity: each for each in self.findings}
        now = {each.identity: each for each in lasting}
        for identity, finding in now.items():
            if identity not in before:
                log.warning("audit: %s: %s", finding.kind, finding.message)
        for identity, finding in before.items():
            if identity not in now:
                log.info("audit: resolved: %s: %s", finding.kind, finding.message)
