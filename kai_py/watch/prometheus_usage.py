"""Past usage of queues, measured by Prometheus.

One instant query returns the mean of what queues were allocated over a window that ends now, in
which an hour one half-life ago counts half:

    sum by (queue, resource) (sum_over_time((USED * W)[D:R])) / sum_over_time((vector(1) * W)[D:R])

W = 2^((time() - now) / half-life), or 1; D is the time since the window began: a sliding window is
as long as it says, a tumbling one began at a multiple of its size after its start, a cron window
when its expression fired last. R is the resolution. Where there is no sample, the usage is 0.
Values that are not amounts are ignored.

Source: Prometheus' HTTP API (/api/v1/query), PromQL subqueries.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import aiohttp
import msgspec

from kai_py.api.cron import parse_cron
from kai_py.api.settings import PrometheusUsage, UsageWindow, WindowType

log = logging.getLogger(__name__)

MILLICORES = 1000.0
Amounts = Mapping[str, Mapping[str, float]]
"""Queue to resource to amount, as the scheduler counts them; Prometheus has cores."""


class UsageError(RuntimeError):
    """Prometheus did not answer the query; the text says why."""


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct):
    result: list[_Sample] = []


class _QueryResponse(msgspec.Struct):
    status: str
    data: _Vector = msgspec.field(default_factory=_Vector)
    error: str = ""


def window_start(window: UsageWindow, now: float) -> float:
    """Start of the window that ends ``now``, in seconds since the epoch."""
    if window.type is WindowType.CRON:
        return parse_cron(window.cron or "").last_fired(now)
    if window.type is WindowType.SLIDING:
        return now - window.size
    anchor = 0.0 if window.start is None else window.start.timestamp()
    return anchor + math.floor((now - anchor) / window.size) * window.size


def usage_query(settings: PrometheusUsage, half_life: float | None, now: float) -> str:
    """The expression to evaluate at ``now``, seconds since the epoch; ``half_life`` in seconds."""
    span = max(math.ceil(now - window_start(settings.window, now)), 1)
    step = max(round(settings.resolution), 1)
    weight = "" if half_life is None else f" * 2 ^ ((time() - {now:.3f}) / {half_life!r})"
    subquery = f"[{max(span, step)}s:{step}s]"
    used = f"sum by (queue, resource) (sum_over_time((({settings.used}){weight}){subquery}))"
    return f"{used} / scalar(sum_over_time((vector(1){weight}){subquery}))"


async def measured_usage(
    session: aiohttp.ClientSession, settings: PrometheusUsage, half_life: float | None, now: float
) -> Amounts:
    """Query Prometheus; raises UsageError."""
    form = {"query": usage_query(settings, half_life, now), "time": f"{now:.3f}"}
    try:
        async with session.post(
            f"{settings.url.rstrip('/')}/api/v1/query",
            data=form,
            timeout=aiohttp.ClientTimeout(total=settings.timeout),
        ) as response:
            status = f"{response.status} {response.reason or ''}".strip()
            response_body = _decoded(await response.read(), status)
    except TimeoutError:
        text = f"no answer within {settings.timeout:g} s (fairShare.prometheus.timeout)"
        raise UsageError(text) from None
    except aiohttp.ClientError as error:
        raise UsageError(str(error) or type(error).__name__) from None
    if response_body.status != "success":
        raise UsageError(
            f"{response_body.error or status} (fairShare.prometheus.used: {settings.used})"
        )
    return _amounts(response_body.data.result)


def _decoded(body: bytes, status: str) -> _QueryResponse:
    try:
        return msgspec.json.decode(body, type=_QueryResponse)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError(f"responded {status}, not in the format of Prometheus") from None


def _amounts(samples: Sequence[_Sample]) -> Amounts:
    amounts: dict[str, dict[str, float]] = {}
    for sample in samples:
        # Prometheus sends values as text; a query may yield NaN or infinity.
        with suppress(ValueError):
            value = float(sample.value[1])
            if math.isfinite(value) and value >= 0:
                queue_amounts = amounts.setdefault(sample.metric.get("queue", ""), {})
                resource = sample.metric.get("resource", "")
                queue_amounts[resource] = value * (MILLICORES if resource == "cpu" else 1.0)
    return amounts


async def follow_usage(
    settings: PrometheusUsage, half_life: float | None, on_usage: Callable[[Amounts, float], None]
) -> None:
    """Query once per interval until cancelled; ``on_usage`` gets every answer and its time."""
    failing = False
    async with aiohttp.ClientSession() as session:
        while True:
            now = time.time()
            try:
                on_usage(await measured_usage(session, settings, half_life, now), now)
            except UsageError as error:
                _log_error(settings, error, level=logging.DEBUG if failing else logging.WARNING)
                failing = True
            else:
                if failing:
                    log.info("past usage: %s answers again", settings.url)
                failing = False
            await asyncio.sleep(settings.interval)


def _log_error(settings: PrometheusUsage, error: UsageError, *, level: int) -> None:
    log.log(
        level,
        "past usage: fairShare.prometheus.url %s: %s; the last response is used until it is %g s "
        "old, then only current usage counts",
        settings.url,
        error,
        settings.stale_after,
    )
