"""Settings of ``fairShare.prometheus``: the source and the window of measured past usage."""

import enum
from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from kai_py.api.cron import parse_cron
from kai_py.api.model import ApiModel
from kai_py.api.times import PositiveDuration


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

    url: Annotated[str, Field(pattern=r"^https?://[^/]")]
    """URL of Prometheus."""
    used: Annotated[str, Field(min_length=1)] = 'kai_py_queue_resources{view="allocated"}'
    """PromQL of the resources allocated to queues, with labels queue and resource; cpu in
    millicores."""
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
