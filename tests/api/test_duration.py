"""When a cron expression fired last, checked against a loop over every minute."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.cron import CronError, parse_cron
from kai_py.api.times import (
    DurationError,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30s", 30), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("1m0.5s", 60.5)],
)
def test_parse(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "-5s", "1d", "5 s", "s", "1h30", "5s\n", "1s" * 120_000])
def test_refuses_other_text_and_names_it(text):
    with pytest.raises(DurationError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("moment", [253_402_300_799.5, 262_625_672_819.0, 1e300])
def test_a_time_beyond_the_calendar_is_its_last_second(moment):
    assert format_time(moment) == "9999-12-31T23:59:59Z"


@given(st.integers(0, 10**10))
def test_format_is_read_back_to_the_millisecond(millis):
    assert parse_duration(format_duration(millis / 1000)) == pytest.approx(millis / 1000)


@pytest.mark.parametrize(
    "text", ["9" * 400 + "h", "2562047h48m", "9223372037s", "1" + "0" * 5000 + "ns"]
)
def test_a_duration_above_gos_largest_is_refused(text):
    with pytest.raises(DurationError, match="is longer than 2562047h47m16s"):
        parse_duration(text)


def test_the_longest_duration_is_read():
    assert parse_duration("2562047h47m16s") < 2**63 / 1e9


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "x", ""]
)
def test_a_time_without_a_utc_form_is_none(text):
    assert parse_time(text) is None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01"])
def test_a_time_is_aware(text):
    assert parse_time(text).timestamp() < 2.6e11


def seconds(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = "2026-11-18T10:20:30"
"""A Wednesday."""


@pytest.mark.parametrize(
    ("expression", "fired"),
    [
        ("* * * * *", "2026-11-18T10:20"),
        ("*/15 * * * *", "2026-11-18T10:15"),
        ("30 10 * * *", "2026-11-17T10:30"),
        ("0 0 * * mon", "2026-11-16T00:00"),
        ("0 0 * * 7", "2026-11-15T00:00"),
        ("0 9-17/4 * * 1-5", "2026-11-18T09:00"),
        ("0 0 1 * *", "2026-11-01T00:00"),
        ("0 0 13 * fri", "2026-11-13T00:00"),
        ("0 0 14 * mon", "2026-11-16T00:00"),
        ("0 6,18 15 jan,jul *", "2026-07-15T18:00"),
        ("0 0 29 2 *", "2024-02-29T00:00"),
        ("@weekly", "2026-11-15T00:00"),
        ("@monthly", "2026-11-01T00:00"),
    ],
)
def test_the_last_time_it_fired(expression, fired):
    assert parse_cron(expression).last_fired(seconds(NOW)) == seconds(fired)


def test_the_very_moment_counts():
    assert parse_cron("20 10 * * *").last_fired(seconds("2026-11-18T10:20")) == seconds(
        "2026-11-18T10:20"
    )


@given(
    st.sets(st.integers(0, 59), min_size=1), st.sets(st.integers(0, 23), min_size=1), st.integers()
)
def test_equals_looking_back_minute_by_minute(minutes, hours, offset):
    now = seconds(NOW) + offset % 86400
    cron = parse_cron(f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *")
    at = now - now % 60
    while not (int(at // 60) % 60 in minutes and int(at // 3600) % 24 in hours):
        at -= 60
    assert cron.last_fired(now) == at


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("* * * *", "five fields"),
        ("60 * * * *", "minute"),
        ("* * 0 * *", "day"),
        ("* * * foo *", 'month "foo"'),
        ("5-1 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("*/-1 * * * *", "minute"),
        ("0-999999999999 * * * *", "minute"),
        ("9" * 5000 + " * * * *", "minute"),
        ("0 0 30 2 *", "never fires"),
    ],
)
def test_what_is_none_is_told(text, told):
    with pytest.raises(CronError, match=told):
        parse_cron(text)
