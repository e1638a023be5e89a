"""Past use as a real Prometheus tells it, for every kind of window, against the integrals."""

import time
from datetime import UTC, datetime

import aiohttp
import pytest

from kai_py.api.measured_usage import MeasuredUsage, UsageWindow, WindowType
from kai_py.watch.usage import UsageError, measured_usage, window_start
from tests.prometheus import prometheus

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
    asked = MeasuredUsage(url=url, window=UsageWindow(**window))
    async with aiohttp.ClientSession() as session:
        amounts = await measured_usage(session, asked, half_life, float(NOW))
    found = {queue: amounts.get(queue, {}).get("gpu", 0.0) for queue in HELD}
    assert found == pytest.approx({"early": early, "late": late}, rel=0.02)


async def test_a_question_that_makes_no_sense_is_told(url):
    asked = MeasuredUsage(url=url, used="rate(")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(UsageError, match="parse error"):
            await measured_usage(session, asked, None, float(NOW))


async def test_a_server_that_is_not_there_is_told():
    asked = MeasuredUsage(url="http://127.0.0.1:9")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(UsageError, match=r"127\.0\.0\.1:9"):
            await measured_usage(session, asked, None, float(NOW))


def test_a_tumbling_window_begins_at_multiples_of_its_size():
    window = UsageWindow(type=WindowType.TUMBLING, size=100.0)
    assert [window_start(window, now) for now in (0.0, 99.0, 100.0, 250.0)] == [0, 0, 100, 200]
