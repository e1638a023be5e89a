"""What selectors give on a device in the CEL environment of Kubernetes 1.37, by topic."""

import pytest

from kai_py.api.quantity import parse_quantity
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.selectors.device import CELDevice, attribute_value
from kai_py.dra.selectors.selector import Selector, compile_selector, explain

DEVICE = CELDevice(
    "d",
    {
        "model": attribute_value(string="H100-80GB"),
        "index": attribute_value(int_=3),
        "largest": attribute_value(int_=2**63 - 1),
        "healthy": attribute_value(bool_=True),
        "version": attribute_value(version="580.65.6"),
        "links": attribute_value(ints=(1, 2, 3)),
        "versions": attribute_value(versions=("1.0.0", "2.0.0")),
    },
    {"memory": parse_quantity("80Gi")},
)
A, M = 'device.attributes["d"]', 'device.capacity["d"].memory'


def matches(text):
    selector = compile_selector(text)
    assert isinstance(selector, Selector), selector
    return selector.matches(DEVICE)


def failure(text):
    with pytest.raises(CELRuntimeError) as caught:
        matches(text)
    return explain(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f'{A}.version == "580.65.6"',
        f"dyn({M}) == 1",
        'ip("10.0.0.1") == dyn("10.0.0.1")',
        'url("http://a/") == dyn("http://a/")',
    ],
)
def test_a_kubernetes_type_on_the_left_compares_with_itself_only(text):
    assert failure(text) == "no such overload"


@pytest.mark.parametrize(
    "text",
    [
        f'!("580.65.6" == {A}.version)',
        f'{A}.version != "580.65.6"',
        f"!({A}.version == null)",
        f'{A}.versions == ["1.0.0", "2.0.0"]',
        f'!(["1.0.0", "2.0.0"] == {A}.versions)',
        f'{A}.version == "580.65.6" || {A}.healthy',
        f"{A}.largest == 9223372036854775807.0",
        f"!({A}.largest < 9223372036854775808.0)",
        "dyn(18446744073709551615u) == 18446744073709551615.0",
    ],
)
def test_comparisons(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{A}.links[1.0] == 2",
        f"{A}.links[1u] == 2",
        "[1, 2][dyn(1.0)] == 2",
        f"!{A}.links[?7].hasValue()",
    ],
)
def test_positions_in_lists(text):
    assert matches(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{A}.links[1.5] == 2", "unsupported index value 1.5 in list"),
        (f'{A}.links["x"] == 2', "unsupported index type 'string' in list"),
        (f"{A}.links.x == 2", "unsupported index type 'string' in list"),
        (f"has({A}.links.x)", "unsupported index type 'string' in list"),
        (f'{A}.links[?"x"].hasValue()', "unsupported index type 'string' in list"),
        ("dyn([1])[true] == 1", "unsupported index type 'bool' in list"),
        (f"{A}.index[0] == 1", "no such key: 0. consider"),
        (f"{A}.links[3] == 1", "index out of bounds: 3"),
    ],
)
def test_what_is_no_position_fails(text, message):
    assert failure(text).startswith(message)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("80Gi", True),
        ("1.5Gi", False),
        ("10Ti", True),
        ("100Ti", False),
        ("1000m", False),
        ("1.0", False),
        ("1.5k", True),
        ("0m", False),
        ("1e18", True),
        ("1e19", False),
        ("9223372036854775807", False),
        ("922337203685477580", True),
        ("-", True),
    ],
)
def test_whole_numbers_are_those_that_kubernetes_keeps_in_64_bits(text, whole):
    assert matches(f'quantity("{text}").isInteger()') is whole
    if not whole:
        assert failure(f'quantity("{text}").asInteger() == 1') == "cannot convert value to integer"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('quantity("1k").add(1)', True),
        ('quantity("0").add(quantity("1.5k"))', True),
        ('quantity("500m").add(quantity("500m"))', False),
        ('quantity("1.5Gi").add(1)', False),
        ('quantity("1").sub(quantity("1.5Gi"))', False),
        ('quantity("9E").add(quantity("9E"))', False),
        ('quantity("9E").sub(quantity("9E")).add(1)', True),
    ],
)
def test_sums_are_whole_as_their_parts_are_kept(text, whole):
    assert matches(f"{text}.isInteger()") is whole


@pytest.mark.parametrize("text", ["1ki", "1K", "1e"])
def test_a_wrong_suffix_is_told_from_a_wrong_number(text):
    assert failure(f'quantity("{text}").isInteger()') == "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.2-alpha", "short version cannot contain PreRelease/Build meta data"),
        ("1+b", "short version cannot contain PreRelease/Build meta data"),
        ("V1.2.3", 'Invalid character(s) found in major number "0V1"'),
        ("vv1", 'Invalid character(s) found in major number "0v1"'),
    ],
)
def test_versions_that_cannot_be_normalised(text, message):
    assert failure(f'semver("{text}", true).major() == 1') == message
    assert not matches(f'isSemver("{text}", true)')


@pytest.mark.parametrize(
    "text",
    [
        'semver("v1.2", true) == semver("1.2.0")',
        'semver("01.02.03-rc.1", true) == semver("1.2.3-rc.1")',
        'semver("00.0", true) == semver("0.0.0")',
    ],
)
def test_versions_that_can_be_normalised(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        f'{A}.model.indexOf("0", 20) == -1',
        f'{A}.model.indexOf("", 20) == 9',
        f'{A}.model.lastIndexOf("0", 20) == -1',
        f'{A}.model.lastIndexOf("", 20) == 9',
        '{"a": device.driver, "a": "x"}.a == "x"',
        "{dyn(1.5): 1}.size() == 1",
        '"%.2f".format([12345.678]) == "12,345.68"',
        '"%f %f".format([double("inf"), double("nan")]) == "∞ NaN"',
        '"%s".format([["a", 2.5]]) == "[\\"a\\", 2.500000]"',
        '"%s".format([{"b": 1, "a": [1]}]) == "{\\"a\\":[1], \\"b\\":1}"',
    ],
)
def test_texts_and_maps(text):
    assert matches(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{A}.model.indexOf("", -1) == 0', "index out of range: -1"),
        ("lists.range(-1) == []", "lists.range: size must be non-negative, got -1"),
        (
            f'"%f".format([{A}.index]) == "3"',
            "error during formatting: fixed-point clause can only be used on doubles, "
            "was given int",
        ),
        (
            f"timestamp({A}.model) == timestamp(0)",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        (
            f"{A}.links",
            "CEL result of type list could not be converted to bool: "
            "type conversion error from list to 'bool'",
        ),
        (
            f"{A}.version",
            "CEL result of type kubernetes.Semver could not be converted to bool: "
            "type conversion error from 'Semver' to 'bool'",
        ),
    ],
)
def test_failures_in_the_words_of_kubernetes(text, message):
    assert failure(text) == message
