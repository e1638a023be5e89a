"""Settings of placement, of eviction, of past usage, and of what a process serves and logs.

A score is one that comes with the scheduler or one of an installed package (``api.extensions``);
any other name is an error that suggests the nearest.
"""

import enum
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from kai_py.api.choices import NO_SCORE, BuiltInScore, FillStrategy, MinRuntimeMethod
from kai_py.api.cron import parse_cron
from kai_py.api.extensions import ExtensionGroup, extension_names
from kai_py.api.model import HTTP_PATTERN, ApiModel, Name
from kai_py.api.problems import unknown_name
from kai_py.api.times import Duration, PositiveDuration


class EvictionConfig(ApiModel):
    """When running pods may be relocated or evicted for others."""

    preempt: bool = True
    """Inside a queue, by priority."""
    reclaim: bool = True
    """Between queues, by fair share."""
    consolidate: bool = True
    """Consolidation: relocating pods so that a gang fits; only when all of them can be
    relocated."""
    consolidate_at_most: Annotated[int, Field(ge=0, strict=True)] = 16
    """Maximum number of pods relocated for one gang."""
    consolidate_ownerless: bool = False
    """Whether pods without an owner, which nothing creates again, may be relocated; always with the
    ``kai`` rules."""
    preempt_min_runtime: Duration = 0.0
    """Time a workload runs before it may be preempted, for queues that neither have nor inherit
    one."""
    reclaim_min_runtime: Duration = 0.0
    """Time a workload runs before it may be reclaimed, for queues that neither have nor inherit
    one."""
    reclaim_resolve_method: MinRuntimeMethod = MinRuntimeMethod.LCA
    """Whose `reclaimMinRuntime` protects a workload: that of its own queue (`queue`), or (`lca`) of
    the one above it, or itself, that is just below the lowest queue above both it and the
    reclaimer."""
    staleness_grace: Duration = 60.0
    """Time a gang may run below minMember before its remaining pods are evicted."""
    suspend_jobs: bool = False
    """Jobs all of whose pods are evicted are suspended, and resumed when they fit again, unless
    their annotation scheduling.kai.io/on-eviction says otherwise. Jobs that would fail
    are suspended in any case."""
    cooldown: Duration = 0.0
    """Time after an eviction for which no pod of the same workload is evicted again."""
    patience: Duration = 1800.0
    """How long a gang whose queue has had its share waits for pods that are about to end before
    others are evicted for it, or up to four times as long if its victims would lose more than the
    wait costs; 0: not at all. When pods end is known from ``scheduling.kai.io/expected-runtime``
    and from how long such pods ran before. Not with the ``kai`` rules."""
    settling_time: Duration = 150.0
    """Time after its start for which a pod is not relocated, and not evicted if it is expected to
    end by itself; not with the ``kai`` rules."""
    evictions_per_day: Annotated[int, Field(ge=0, le=1000, strict=True)] = 2
    """Evictions within a day after which a workload loses pods only to queues within what they
    deserve; 0: no limit. Not with the ``kai`` rules."""
    restart_cost: Duration = 60.0
    """Start-up time that an eviction costs each pod, where victims are weighed by lost work."""
    max_grace_period: PositiveDuration = 1800.0
    """Longest grace period of an evicted pod, whatever its ``terminationGracePeriodSeconds``; a pod
    that was deleted with a longer one counts as running until no more than this is left."""
    hold_expiry: PositiveDuration = 300.0
    """Time for which capacity freed by eviction stays nominated for its gang."""


class WindowType(enum.StrEnum):
    """Kind of the time window."""

    SLIDING = "sliding"
    """The most recent ``size``."""
    TUMBLING = "tumbling"
    """Since the last multiple of ``size`` after ``start``: usage restarts from zero then."""
    CRON = "cron"
    """Since the last firing of ``cron``."""


class UsageWindow(ApiModel):
    """The time window of the Prometheus query."""

    type: WindowType = WindowType.SLIDING
    """Kind of the window."""
    size: PositiveDuration = 7 * 86400.0
    """Length of a sliding or tumbling window."""
    start: datetime | None = None
    """When the first tumbling window begins; without it 1970-01-01T00:00:00Z."""
    cron: str | None = None
    """When a cron window begins, in UTC: minute hour day month weekday."""

    @model_validator(mode="after")
    def _has_cron(self) -> "UsageWindow":
        if (self.cron is not None) != (self.type is WindowType.CRON):
            raise ValueError("cron belongs to type: cron: set both or neither")
        if self.cron is not None:
            parse_cron(self.cron)
        return self


class PrometheusUsage(ApiModel):
    """Past usage from Prometheus, instead of the scheduler's own records."""

    url: Annotated[str, Field(pattern=HTTP_PATTERN)]
    """URL of Prometheus."""
    used: Annotated[str, Field(min_length=1)] = 'kai_py_queue_resources{view="allocated"}'
    """PromQL of the resources allocated to queues, with labels queue and resource; cpu in
    cores."""
    window: UsageWindow = UsageWindow()
    """The time window of the query."""
    interval: PositiveDuration = 60.0
    """Time between two queries."""
    resolution: PositiveDuration = 60.0
    """Time between two samples of the query."""
    timeout: PositiveDuration = 10.0
    """Timeout of a query."""
    stale_after: PositiveDuration = 300.0
    """Time after which a result is no longer used: then only current usage counts."""


Port = Annotated[int, Field(ge=0, le=65535, strict=True)]


class LogLevel(enum.StrEnum):
    """Lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    """Format of log records."""

    TEXT = "text"
    JSON = "json"


class WebhookConfig(ApiModel):
    """Admission webhooks, served by ``kai-py webhook``."""

    host: str = "0.0.0.0"
    """Address to listen on."""
    port: Annotated[int, Field(ge=1, le=65535, strict=True)] = 9443
    """Port to listen on."""
    namespace: Name = "kai-py"
    """Namespace of the Service ``kai-py-webhook`` and of the Secret of that name."""
    self_managed: bool = True
    """Create the certificate in the Secret and renew it; off where something else writes it."""
    names: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Names and IP addresses in the certificate, in addition to those of the Service."""


class HttpConfig(ApiModel):
    """Where metrics, health and explanations are served."""

    host: str = "0.0.0.0"
    """Address to listen on."""
    port: Port = 8080
    """Port to listen on; 0 takes a free one."""
    token_file: Path | None = None
    """File with the bearer token that /v1 requires, read for every request; else the environment
    variable KAI_PY_HTTP_TOKEN. Without either /v1 is open on loopback and closed elsewhere;
    metrics and probes are always open."""
    review_tokens: bool = True
    """Whether the API server reviews other bearer tokens: their user (TokenReview), and what that
    user may see (SubjectAccessReview)."""


class LogConfig(ApiModel):
    """Logging."""

    level: LogLevel = LogLevel.INFO
    """Lowest level."""
    format: LogFormat = LogFormat.TEXT
    """Format of records."""


def _known_score(name: str) -> str:
    known = (*BuiltInScore, *extension_names(ExtensionGroup.SCORES))
    if name not in known:
        raise ValueError(unknown_name("score", name, known))
    return name


def _known_strategy(name: str) -> str:
    return name if name == NO_SCORE else _known_score(name)


ScoreName = Annotated[str, AfterValidator(_known_score)]


class ScoreConfig(ApiModel):
    """A score among several."""

    name: ScoreName
    """``best-fit``, ``fgd``, ``frugal``, or the name of an installed score."""
    weight: Annotated[int, Field(ge=1, le=100, strict=True)] = 1
    """Factor of the score in the sum."""


class PlacementConfig(ApiModel):
    """Choice of nodes, by the requests of pods."""

    gpu: FillStrategy = FillStrategy.BINPACK
    """For pods that request GPUs or other devices."""
    cpu: FillStrategy = FillStrategy.BINPACK
    """For pods that request none."""
    strategy: Annotated[str, AfterValidator(_known_strategy)] | None = None
    """A score that places pods one by one, instead of ``gpu`` and ``cpu``; pods with claims
    always use those. One of ``best-fit``, ``fgd``, ``frugal``, the name of an installed score,
    or ``together`` for no score. By default ``frugal`` while GPUs could become unusable through
    fragmentation, everything else here is ``binpack`` and the rules are native, and ``together``
    otherwise."""
    scores: Annotated[tuple[ScoreConfig, ...], Field(max_length=16)] = ()
    """Scores that are normalised to 0 to 100, multiplied by ``weight`` and added; instead of
    ``strategy``, which names one."""
    shared_gpus: FillStrategy | None = None
    """Among the GPUs of a node, for pods that request a fraction of one; by default as ``gpu``."""

    @model_validator(mode="after")
    def _names_scores_once(self) -> "PlacementConfig":
        if self.scores and self.strategy is not None:
            raise ValueError("strategy is the short form of one score: set it or scores, not both")
        names = [each.name for each in self.scores]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"scores: {repeated} is listed twice")
        return self
