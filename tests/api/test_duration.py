import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.times import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30s", 30), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("1m0.5s", 60.5)],
)
def test_parse(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "-5s", "1d", "5 s", "s", "1h30", "5s\n"])
def test_refuses_other_text_and_names_it(text):
    with pytest.raises(DurationError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**10))
def test_format_is_read_back_to_the_millisecond(millis):
    assert parse_duration(format_duration(millis / 1000)) == pytest.approx(millis / 1000)
