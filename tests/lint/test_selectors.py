"""Selectors as people write them, what they become, and that they then mean what was written."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.quantity import parse_quantity
from kai_py.dra.selectors.device import CELDevice, attribute_value
from kai_py.dra.selectors.selector import Selector, compile_selector
from kai_py.lint.cel.correct import correct, domains, guarded_driver
from kai_py.lint.cel.terms import parse_terms

A = 'device.attributes["gpu.nvidia.com"]'
C = 'device.capacity["gpu.nvidia.com"]'

CORRECTED = [
    # names without a domain, in any form
    ('device.capacity["memory"].isGreaterThan(quantity("40Gi"))',
     f'{C}.memory.isGreaterThan(quantity("40Gi"))'),
    ('device.capacity.memory.isLessThan(quantity("40Gi"))',
     f'{C}.memory.isLessThan(quantity("40Gi"))'),
    ('device.attributes["profile"] == "1g.10gb"', f'{A}.profile == "1g.10gb"'),
    ('device.attributes["gpu.nvidia.com/profile"] == "1g.10gb"', f'{A}.profile == "1g.10gb"'),
    ('device.attributes.profile.startsWith("1g")', f'{A}.profile.startsWith("1g")'),
    ('device.type == "gpu"', f'{A}.type == "gpu"'),
    ('"memory" in device.capacity', '"memory" in device.capacity["gpu.nvidia.com"]'),
    ('has(device.attributes["uuid"])', f'has({A}.uuid)'),
    ('device.attributes["uuid"].string == "GPU-1"', f'{A}.uuid == "GPU-1"'),
    ('device.attributes["a/b-c"] == 1', 'device.attributes["a"]["b-c"] == 1'),
    # the wrong domain, the wrong map
    ('device.attributes["mig.nvidia.com"].profile == "1g.10gb"', f'{A}.profile == "1g.10gb"'),
    ('device.attributes["nvidia.com/gpu"].type == "mig"', f'{A}.type == "mig"'),
    (f'{A}.memory.isGreaterThan(quantity("1Gi"))', f'{C}.memory.isGreaterThan(quantity("1Gi"))'),
    (f'{C}.uuid == "GPU-1"', f'{A}.uuid == "GPU-1"'),
    (f'{A}.allowMultipleAllocations', 'device.allowMultipleAllocations'),
    # quantities compared as numbers
    (f'{A}.memory >= 80737418240', f'{C}.memory.compareTo(quantity("80737418240")) >= 0'),
    (f'{A}["memory"] > 40*1024*1024*1024', f'{C}.memory.compareTo(quantity("40Gi")) > 0'),
    (f'{C}.memory < 1024 * (1 + 1) * 1024', f'{C}.memory.compareTo(quantity("2Mi")) < 0'),
    (f'40*1024*1024*1024 <= {C}.memory', f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f'{C}.memory >= "40Gi"', f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f'{C}.memory >= quantity("40Gi")', f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f'{C}.memory == 42949672960', f'{C}.memory == quantity("40Gi")'),
    (f'{C}.memory >= 40Gi', f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f'{C}.memory > 1.5e9', f'{C}.memory.compareTo(quantity("1500000000")) > 0'),
    (f'{C}.memory.isGreaterThan("40Gi")', f'{C}.memory.isGreaterThan(quantity("40Gi"))'),
    (f'{C}.memory.isGreaterThan(quantity(40Gi))', f'{C}.memory.isGreaterThan(quantity("40Gi"))'),
    (f'{C}.memory.isGreaterThan(quantity(1048576))', f'{C}.memory.isGreaterThan(quantity("1Mi"))'),
    (f'{C}.memory.isGreaterThanOrEqual("40Gi")',
     f'{C}.memory.compareTo(quantity("40Gi")) >= 0'),
    (f'!{C}.memory.atLeast("40Gi")', f'!({C}.memory.compareTo(quantity("40Gi")) >= 0)'),
    (f'{C}.memory / 1048576 >= 40000', f'{C}.memory.asInteger() / 1048576 >= 40000'),
    (f'int({C}.memory) >= 5', f'{C}.memory.asInteger() >= 5'),
    # calculated as CEL does: integers are divided by truncation
    *((f'{C}.memory >= {number}', f'{C}.memory.compareTo(quantity("{written}")) >= 0')
      for number, written in (("7 / 2", "3"), ("7 / 2.0", "3.5"), ("1e1 / 4", "2.5"),
                              ("(1 - 8) / 2", "-3"), ("9 - 3 * 2", "3"), ("0xFu", "15"))),
    # versions compared as text
    (f'{A}.driverVersion >= "550.54"', f'{A}.driverVersion.compareTo(semver("550.54.0")) >= 0'),
    (f'{A}.cudaComputeCapability >= 9.0',
     f'{A}.cudaComputeCapability.compareTo(semver("9.0.0")) >= 0'),
    # product names
    (f'{A}.productName.startsWith("H100")', rf'{A}.productName.matches(r"\bH100")'),
    (f'{A}.productName == "H100"', rf'{A}.productName.matches(r"\bH100\b")'),
    (f'"A100" != {A}.productName', rf'!{A}.productName.matches(r"\bA100\b")'),
    (f'{A}.productName in ["H100", "H200"]', rf'{A}.productName.matches(r"\b(?:H100|H200)\b")'),
    (f'{A}.productName.matches("^H100.*")', rf'{A}.productName.matches(r"\bH100.*")'),
    (f'{A}.productName == "NVIDIA-H100-80GB-HBM3"',
     f'{A}.productName.matches(r"^NVIDIA[ -]H100[ -]80GB[ -]HBM3$")'),
    (f'{A}.productName.startsWith("h100")', rf'{A}.productName.matches(r"\b(?i:h100)")'),
    (f'{A}.architecture == "hopper"', f'{A}.architecture == "Hopper"'),
    # spelling
    ('device.driver = "gpu.nvidia.com"', 'device.driver == "gpu.nvidia.com"'),
    ('not device.driver == "x" and true', '!(device.driver == "x") && true'),
    # several at once, and quotes as the source has them
    ("device.memory >= 40Gi or device.attributes['type'] == 'MIG'",
     "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"
     " || device.attributes['gpu.nvidia.com'].type == 'mig'"),
]  # fmt: skip

VALID = [
    'device.driver == "gpu.nvidia.com"',
    f'{A}.productName.startsWith("NVIDIA H100")',
    f'{A}.productName.startsWith("NVIDIA")',
    f'{A}.productName.startsWith("Tesla")',
    f'{A}.productName.contains("H100")',
    f'{A}.productName == "NVIDIA H100 80GB HBM3"',
    f'{A}.productName == "NVIDIA A100-SXM4-80GB"',
    f'{A}.profile == "1g.10gb" && device.allowMultipleAllocations == true',
    f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
    f'{C}.memory == quantity("80Gi")',
    f"{C}.memory.asInteger() / 1024 > 5",
    f'{A}.driverVersion.isGreaterThan(semver("550.0.0"))',
    '"gpu.nvidia.com" in device.attributes',
    'device.attributes["gpu.other.com"].memory >= 5',
    'cel.bind(d, device.attributes["gpu.nvidia.com"], d.type == "gpu")',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:1a"',
    f'{A}.?uuid.orValue("") != ""',
    "['a', 'b'].exists(x, x == device.driver)",
    'true ? {"a": 1}.a == 1 : false',
]


@pytest.mark.parametrize(("written", "meant"), CORRECTED, ids=lambda text: text[:48])
def test_correction(written, meant):
    result = correct(written, "gpu.nvidia.com")
    assert result.source == meant
    assert result.reasons
    assert correct(meant, "gpu.nvidia.com").source == meant
    assert isinstance(compile_selector(meant), Selector), compile_selector(meant)


BEYOND_DOUBLES = ["1e9999999", "1e300 * 1e300 + 0.5", "1e300 / 1e-300", f"0x{'f' * 5000}"]
"""Written out, these would take seconds or be too long."""


@pytest.mark.parametrize(
    "amount", ["1 / 0", 'int("5")', '"much"', "5 % 3", "device.driver", *BEYOND_DOUBLES]
)
def test_what_is_no_amount_stays(amount):
    source = f"{C}.memory >= {amount}"
    assert correct(source, "gpu.nvidia.com").source == source


@pytest.mark.parametrize("source", VALID)
def test_what_is_valid_stays(source):
    assert correct(source, "gpu.nvidia.com") == correct(source, "gpu.example.com")
    assert correct(source, "gpu.nvidia.com").source == source
    assert parse_terms(source) is not None


def test_names_belong_to_the_driver_that_is_meant():
    corrected = correct('device.attributes["model"] == "a"', "gpu.amd.com").source
    assert corrected == 'device.attributes["gpu.amd.com"].model == "a"'


def test_text_that_is_no_expression_is_left_to_the_api_server():
    for source in ("", "device.", "a b", "((", '"open', "1 +", "@"):
        assert correct(source, "gpu.nvidia.com").source == source


def test_deep_nesting_does_not_exhaust_the_stack():
    source = "(" * 5000 + "true" + ")" * 5000
    assert correct(source, "gpu.nvidia.com").source == source


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        ('device.driver == "a.b"', "a.b"),
        ('("a.b" == device.driver) && true', "a.b"),
        ('device.driver != "a.b"', None),
        ('device.driver == "a.b" || true', None),
        (r'device.driver == "gpu\x2envidia.com"', "gpu.nvidia.com"),
    ],
)
def test_the_driver_a_selector_asks_for(source, driver):
    assert guarded_driver(source) == driver


def test_domains_in_order_of_use():
    source = 'device.capacity["b"].x.isInteger() && device.attributes["a"].y == 2'
    assert domains(source) == ("b", "a")


def nvidia(product="NVIDIA H100 80GB HBM3", memory="81559Mi", **more):
    """Give a device of the shape that NVIDIA's driver publishes."""
    return CELDevice(
        driver="gpu.nvidia.com",
        attributes={
            "type": "gpu",
            "productName": product,
            "architecture": "Hopper",
            "driverVersion": attribute_value(version="580.65.6"),
            **more,
        },
        capacity={"memory": parse_quantity(memory)},
    )


def matches(written, device):
    selector = compile_selector(correct(written, "gpu.nvidia.com").source)
    assert isinstance(selector, Selector), selector
    return selector.matches(device)


PRODUCTS = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA A100-SXM4-80GB"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('productName.startsWith("H100")', [True, False, False, False]),
        ('productName.startsWith("H200")', [False, True, False, False]),
        ('productName == "H200"', [False, True, False, False]),
        ('productName != "H200"', [True, False, True, True]),
        ('productName in ["H100", "A100"]', [True, False, False, True]),
        ('productName == "NVIDIA-H100-80GB-HBM3"', [True, False, False, False]),
        ('productName == "NVIDIA-A100-SXM4-80GB"', [False, False, False, True]),
        ('productName.startsWith("a100")', [False, False, False, True]),
    ],
)
def test_a_product_is_the_one_that_was_named(written, expected):
    assert [matches(f"{A}.{written}", nvidia(name)) for name in PRODUCTS] == expected


OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
SPELLINGS = (
    'device.attributes["gpu.nvidia.com"].memory',
    "device.attributes['memory']",
    'device.capacity["memory"]',
    "device.capacity.memory",
    "device.memory",
)


@given(
    spelling=st.sampled_from(SPELLINGS),
    sign=st.sampled_from(sorted(OPERATORS)),
    bound=st.integers(0, 1 << 45) | st.sampled_from([80 << 30, 40 << 30, 81559 << 20]),
    memory=st.sampled_from([40 << 30, 80 << 30, 81559 << 20, 1 << 45]),
    flipped=st.booleans(),
)
def test_a_bound_on_memory_keeps_its_meaning(spelling, sign, bound, memory, flipped):
    device = nvidia(memory=str(memory))
    written = f"{bound} {sign} {spelling}" if flipped else f"{spelling} {sign} {bound}"
    left, right = (bound, memory) if flipped else (memory, bound)
    assert matches(written, device) == OPERATORS[sign](left, right)


@given(
    major=st.integers(0, 999),
    minor=st.integers(0, 99),
    sign=st.sampled_from(sorted(OPERATORS)),
)
def test_a_version_is_compared_as_a_version(major, minor, sign):
    expected = OPERATORS[sign]((580, 65, 6), (major, minor, 0))
    assert matches(f'{A}.driverVersion {sign} "{major}.{minor}"', nvidia()) == expected


WORDS = st.sampled_from(
    [
        *("device", ".attributes", ".capacity", '["memory"]', '["gpu.nvidia.com"]', ".memory"),
        *(".productName", '.startsWith("H100")', "==", ">=", "&&", "||", "(", ")", "40Gi", "1024"),
        *(
            "*",
            "!",
            "not ",
            " and ",
            '"H100"',
            "quantity(",
            "[",
            "]",
            "?",
            ":",
            " in ",
            "=",
            "true",
        ),
    ]
)


@given(st.lists(WORDS, max_size=14).map("".join))
def test_any_text_is_corrected_once(source):
    once = correct(source, "gpu.nvidia.com")
    again = correct(once.source, "gpu.nvidia.com")
    assert again.source == once.source
    assert bool(once.reasons) == (once.source != source)
