from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.numbers import MAX_COUNT, NumberError, parse_count, parse_int64
from kai_py.api.quantity import (
    MAX_CAPPED,
    MAX_DIGITS,
    NANO,
    Quantity,
    QuantityError,
    QuantityFormat,
    parse_quantity,
)

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "e3": Fraction(10**3),
    "E-3": Fraction(1, 1000),
    "e+2": Fraction(100),
}


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("1", NANO),
        ("100m", NANO // 10),
        ("1.5Gi", 1536 * 2**20 * NANO),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("-1Ki", -1024 * NANO),
        ("+3k", 3000 * NANO),
        ("1E", 10**18 * NANO),
        ("1e21", 10**21 * NANO),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1e-3", NANO // 1000),
        ("  2Mi ", 2 * 2**20 * NANO),
        ("9999999999999999999999", (10**22 - 1) * NANO),
        ("16Ei", MAX_CAPPED),
        ("-16Ei", -MAX_CAPPED),
        ("Ki", 0),
        ("-", 0),
        ("+", 0),
        (3, 3 * NANO),
        (0.1, NANO // 10),
        (1e-7, 100),
    ],
)
def test_reads_the_exact_value(text, nano):
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize(
    "text",
    ["", "1ki", "1K", "1 Gi", "1GiB", "0x10", "1e", "1e+", "1.2.3", "1Ki3", "٣", "1Kim",
     "--1", "1_000", "Ei", "-.Ei", True, float("nan"), float("inf"), "1" * 5000],
)  # fmt: skip
def test_refuses_what_is_no_quantity_and_names_it(text):
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["Ki", "-k", ".Pi", "-", "m", "0Ei"])
def test_a_suffix_without_digits_is_zero_as_in_kubernetes(text):
    assert parse_quantity(text).nano == 0


def test_e_alone_is_exa_and_an_absurd_exponent_costs_nothing():
    assert parse_quantity("2E").nano == 2 * 10**18 * NANO
    assert parse_quantity("1e1000000000") == parse_quantity("1e400")
    assert parse_quantity("1e1000000000").as_float() == float("inf")
    assert parse_quantity("1e-1000000000").nano == 1


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("0.5Gi", "512Mi"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("1e-3", "1e-3"),
        ("10e-3", "10e-3"),
        ("0Gi", "0"),
        ("-2048", "-2048"),
        ("-2Ki", "-2Ki"),
        ("1000E", "1000E"),
        ("0.1Ki", "102400m"),
        ("1.3Ki", "1331200m"),
        ("81559Mi", "81559Mi"),
        ("1.1Ki", "1126400m"),
    ],
)
def test_prints_the_canonical_form(text, canonical):
    assert str(parse_quantity(text)) == canonical


def test_value_and_milli_round_away_from_zero():
    assert parse_quantity("1100m").value() == 2
    assert parse_quantity("-1100m").value() == -2
    assert parse_quantity("1u").milli() == 1
    assert parse_quantity("250m").milli() == 250


def test_equality_order_and_hash_follow_the_value_not_the_spelling():
    assert parse_quantity("1Gi") == parse_quantity("1073741824")
    assert hash(parse_quantity("1Gi")) == hash(parse_quantity("1024Mi"))
    assert parse_quantity("100m") < parse_quantity("1") < parse_quantity("1k")
    assert sorted([parse_quantity("1Ki"), parse_quantity("1k")])[0].nano == 1000 * NANO


def test_sums_keep_the_suffix_family_of_the_first_that_is_not_zero():
    assert str(parse_quantity("1Gi") + parse_quantity("1024Mi")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("1") - parse_quantity("250m")) == "750m"
    assert str(parse_quantity("1Gi") - parse_quantity("500m")) == "1073741823500m"
    assert (-parse_quantity("1")).nano == -NANO


@given(
    whole=st.integers(0, 10**6),
    fraction=st.text("0123456789", max_size=6),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    sign=st.sampled_from(["", "-", "+"]),
)
def test_agrees_with_rational_arithmetic(whole, fraction, suffix, sign):
    exact = Fraction(f"{whole}.{fraction or '0'}") * SUFFIXES[suffix] * NANO
    rounded = -(-exact.numerator // exact.denominator)
    nano = parse_quantity(f"{sign}{whole}.{fraction}{suffix}").nano
    assert nano == (-rounded if sign == "-" else rounded)


@given(nano=st.integers(-(10**26), 10**26), form=st.sampled_from(list(QuantityFormat)))
def test_the_canonical_form_reads_back_as_the_same_value(nano, form):
    if form is QuantityFormat.BINARY_SI:
        nano = max(-MAX_CAPPED, min(MAX_CAPPED, nano))
    assert parse_quantity(str(Quantity(nano, form))).nano == nano


@pytest.mark.parametrize("exponent", ["", "E", "e400", "e1000000000"])
def test_sums_of_the_largest_amounts_can_be_written(exponent):
    largest = parse_quantity("9" * MAX_DIGITS + exponent)
    assert len(str(largest + largest)) <= MAX_DIGITS + 2
    assert len(str(Quantity((largest + largest).nano + 1))) > MAX_DIGITS


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
