"""Settings of what a process serves and logs."""

import enum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from kai_py.api.model import ApiModel, Name

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
