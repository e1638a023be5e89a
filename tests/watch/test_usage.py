"""Past use as a real Prometheus tells it, for every kind of window, against the integrals."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from kai_py.api.settings import PrometheusUsage, UsageWindow, WindowType
from kai_py.watch.prometheus_usage import UsageError, follow_usage, measured_usage, window_start
from tests.support.patience import patience
from tests.support.prometheus import prometheus

HOUR = 3600
NOW = int(time.time()) // HOUR * HOUR - 24 * HOUR
HELD = {
    "early": lambda ago: 8.0 if 4 < ago <= 6 else 0.0,
    "late": lambda ago: 4.0 if ago <= 2 else 0.0,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with prometheus(tmp_path_factory.mktemp("prometheus"), HELD, hours=8, until=NOW) as address:
        yield address


def hours_ago(hours):
    return datetime.fromtimestamp(NOW - hours * HOUR, UTC)


SLIDING = {"size": 6.0 * HOUR}
TUMBLING = {"type": WindowType.TUMBLING, "size": 3.0 * HOUR, "start": hours_ago(1 + 3 * 50)}
CRON = {"type": WindowType.CRON, "cron": f"0 {hours_ago(5).hour} * * *"}


@pytest.mark.parametrize(
    ("window", "half_life", "early", "late"),
    [
        (SLIDING, None, 8 * 2 / 6, 4 * 2 / 6),
        ({"size": 3.0 * HOUR}, None, 0, 4 * 2 / 3),
        (TUMBLING, None, 0, 4),
        (CRON, None, 8 * 1 / 5, 4 * 2 / 5),
        (SLIDING, HOUR, 8 * (2**-4 - 2**-6) / (1 - 2**-6), 4 * (1 - 2**-2) / (1 - 2**-6)),
        (CRON, HOUR, 8 * (2**-4 - 2**-5) / (1 - 2**-5), 4 * (1 - 2**-2) / (1 - 2**-5)),
    ],
    ids=["sliding", "short", "tumbling", "cron", "sliding-halved", "cron-halved"],
)
async def test_w16_windows_of_every_kind(url, window, half_life, early, late):
    asked = PrometheusUsage(url=url, window=UsageWindow(**window))
    async with aiohttp.ClientSession() as session:
        amounts = await measured_usage(session, asked, half_life, float(NOW))
    found = {queue: amounts.get(queue, {}).get("gpu", 0.0) for queue in HELD}
    assert found == pytest.approx({"early": early, "late": late}, rel=0.02)


async def test_a_question_that_makes_no_sense_is_told(url):
    asked = PrometheusUsage(url=url, used="rate(")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(UsageError, match="parse error"):
            await measured_usage(session, asked, None, float(NOW))


async def test_a_server_that_is_not_there_is_told():
    asked = PrometheusUsage(url="http://127.0.0.1:9")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(UsageError, match=r"127\.0\.0\.1:9"):
            await measured_usage(session, asked, None, float(NOW))


def test_a_tumbling_window_begins_at_multiples_of_its_size():
    window = UsageWindow(type=WindowType.TUMBLING, size=100.0)
    assert [window_start(window, now) for now in (0.0, 99.0, 100.0, 250.0)] == [0, 0, 100, 200]
    start = datetime.fromtimestamp(30, UTC)
    begun = UsageWindow(type=WindowType.TUMBLING, size=100.0, start=start)
    assert [window_start(begun, now) for now in (29.0, 30.0, 129.0, 130.0)] == [-70, 30, 30, 130]


@asynccontextmanager
async def serving(*answers):
    """The address of a server that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def handle(_request):
        answer = left.pop(0) if len(left) > 1 else left[0]
        return await answer()

    application = web.Application()
    application.router.add_post("/api/v1/query", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def saying(body, status=200):
    async def answer():
        return web.Response(body=body, status=status)

    return answer


def samples(resource="gpu", **amounts):
    listed = [
        {"metric": {"queue": queue, "resource": resource}, "value": [1.0, amount]}
        for queue, amount in amounts.items()
    ]
    return saying(json.dumps({"status": "success", "data": {"result": listed}}))


async def test_cores_of_prometheus_are_millicores_here():
    async with serving(samples("cpu", team="1.5")) as address, aiohttp.ClientSession() as session:
        amounts = await measured_usage(session, PrometheusUsage(url=address), None, 0.0)
    assert amounts == {"team": {"cpu": 1500.0}}


async def never():
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            saying(b"<html>sign in</html>", 502),
            "responded 502 Bad Gateway, not in the format of Prometheus",
        ),
        (saying(b"\xff\xfe{", 200), "responded 200 OK, not in the format of Prometheus"),
        (saying(b'{"data": {"result": {}}}'), "responded 200 OK, not in the format of Prometheus"),
        (saying(b'{"status": "error"}', 422), "422 Unprocessable .*fairShare.prometheus.used"),
        (never, r"no answer within 0.2 s \(fairShare.prometheus.timeout\)"),
    ],
    ids=["a page", "bytes", "another answer", "an error", "nothing"],
)
async def test_what_is_no_answer_is_told_in_words(answer, text):
    async with serving(answer) as url, aiohttp.ClientSession() as session:
        with pytest.raises(UsageError, match=text):
            await measured_usage(session, PrometheusUsage(url=url, timeout=0.2), None, float(NOW))


async def test_what_is_no_amount_counts_as_nothing():
    answer = samples(a="many", b="NaN", c="-3", d="+Inf", e="2.5", f="0")
    async with serving(answer) as url, aiohttp.ClientSession() as session:
        found = await measured_usage(session, PrometheusUsage(url=url), None, float(NOW))
    assert found == {"e": {"gpu": 2.5}, "f": {"gpu": 0.0}}


async def test_a_server_that_fails_is_told_of_once_and_when_it_is_back(caplog):
    caplog.set_level("INFO", "kai_py.watch.prometheus_usage")
    known = asyncio.Event()
    async with serving(saying(b"x"), saying(b"y"), samples(a="1")) as url:
        settings = PrometheusUsage(url=url, interval=0.01)
        asking = asyncio.create_task(follow_usage(settings, None, lambda *_: known.set()))
        await asyncio.wait_for(known.wait(), patience(10))
        await asyncio.sleep(0)
        asking.cancel()
    warned, again = (each.message for each in caplog.records if each.name.startswith("kai_py."))
    assert f"fairShare.prometheus.url {url}: responded 200 OK" in warned
    assert "the last response is used until it is 300 s old" in warned
    assert again == f"past usage: {url} answers again"
