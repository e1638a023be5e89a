"""Settings of ``fairShare.prometheus``: the source and the window of measured past usage."""

import enum
from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from kai_py.api.cron import parse_cron
from kai_py.api.duration import Duration
from kai_py.api.model import ApiModel

PositiveDuration = Annotated[Duration, Field(gt=0)]


class WindowType(enum.StrEnum):
    """Which part of the past counts."""

    SLIDING = "sliding"
    """The last ``size``."""
    TUMBLING = "tumbling"
    """Since the last multiple of ``size`` after ``start``: usage begins anew then."""
    CRON = "cron"
    """Since ``cron`` fired last."""


class UsageWindow(ApiModel):
    """The part of the past that counts when Prometheus is asked."""

    type: WindowType = WindowType.SLIDING
    """How the window moves."""
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
    """Past use as Prometheus knows it, in place of what the scheduler keeps itself."""

    url: Annotated[str, Field(pattern=r"^https?://[^/]")]
    """Where Prometheus answers."""
    used: Annotated[str, Field(min_length=1)] = 'kai_py_queue_resources{view="allocated"}'
    """PromQL of what queues hold, with labels queue and resource; cpu in millicores."""
    window: UsageWindow = UsageWindow()
    """The part of the past that counts."""
    interval: PositiveDuration = 60.0
    """Time between two questions."""
    resolution: PositiveDuration = 60.0
    """Time between two samples that count."""
    timeout: PositiveDuration = 10.0
    """How long an answer may take."""
    stale_after: PositiveDuration = 300.0
    """Time after which an answer counts no more: then only the present does."""
