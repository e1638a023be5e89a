import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.times import DurationError, format_duration, parse_duration, parse_time


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
