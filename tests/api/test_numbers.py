import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.numbers import MAX_COUNT, NumberError, parse_count, parse_int64

DIGITS = "9" * 5000


@given(st.integers(0, MAX_COUNT), st.integers(0, 50))
def test_a_count_is_read_with_leading_zeros(number, zeros):
    assert parse_count("0" * zeros + str(number)) == number


@pytest.mark.parametrize("text", [DIGITS, "9" * 256 * 1024, str(MAX_COUNT + 1), str(2**63)])
def test_a_count_above_the_ceiling_is_an_error_that_quotes_its_beginning(text):
    with pytest.raises(NumberError, match="must be at most 2147483647, is") as refused:
        parse_count(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text", ["", "-1", "1.0", "1e3", "many", "٣", "²", " 1", "1\n", "x" * 300000]
)
def test_other_text_is_no_count(text):
    with pytest.raises(NumberError, match="must be a whole number of at least 0") as refused:
        parse_count(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", ["0", "000"])
def test_a_least_count_is_kept(text):
    assert parse_count(text) == 0
    with pytest.raises(NumberError, match="must be a whole number of at least 1"):
        parse_count(text, least=1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_of_64_bits_are_read(number):
    assert parse_int64(str(number)) == number


@pytest.mark.parametrize("text", ["", DIGITS, str(2**63), str(-(2**63) - 1), "1_000", "٣", "1.5"])
def test_others_are_none(text):
    assert parse_int64(text) is None
