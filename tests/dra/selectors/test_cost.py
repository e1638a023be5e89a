"""Costs worked out by hand from the rules; upstream's own figures are in the corpus.

What selectors may cost, as the API server of Kubernetes 1.37 estimates them.
"""

import pytest

from kai_py.api.quantity import parse_quantity
from kai_py.cel.expression import compile_expression
from kai_py.dra.selectors.cost import max_cost
from kai_py.dra.selectors.device import CELDevice
from kai_py.dra.selectors.selector import (
    Selector,
    compile_selector,
    device_environment,
    evaluate_on,
)

A = 'device.attributes["d"]'
DEVICE = CELDevice("d", {"model": "H100-80GB-HBM3", "index": 3}, {"memory": parse_quantity("1Gi")})


@pytest.mark.parametrize(
    ("text", "most", "actual"),
    [
        ("true", 0, 0),
        ("device.driver == 'd'", 3, 3),
        (f"{A}.index == 3 && {A}.index == 4", 10, 10),
        (f"{A}.index == 3 || {A}.index == 4", 10, 5),  # the second is never looked at
        (f"has({A}.index)", 3, 3),
        (f"{A}.model == 'H100-80GB-HBM3'", 6, 6),  # 14 letters are 2
        (f"{A}.model.startsWith('H')", 5, 5),  # by the prefix
        (f"{A}.model.matches('^H100')", 18, 8),
        (f"{A}.model.contains('80')", 11, 6),
        (f"{A}.model.lowerAscii() == ''", 11, 6),
        (f"{A}.model + {A}.model == ''", 4 + 4 + 13, 4 + 4 + 1),  # text, list or number?
        ("'abc' + 'def' == ''", 1, 1),
        (f"cel.bind(a, {A}, a.index == 3)", 10 + 3 + 2 + 1, 3 + 2 + 1),
        (f"[{A}.index] == [3]", 4 + 10 + 10 + 1, 4 + 10 + 1),  # constant lists are made once
        ("device.capacity['d'].memory == quantity('1Gi')", 4 + 1 + 1, 4 + 1 + 1),
        (f"{A}.index == 3 ? true : {A}.model == 'x'", 10, 5),
        ("[1, 2].all(x, x > 0)", 10 + 2 * 5 + 1, 2 * 5 + 1),
        (f"{A}.?index.orValue(0) == 3", 4 + 1 + 1, 4 + 1 + 1),
        ("lists.range(3).size() == 3", 16, 16),
        ("sets.contains([1, 2, 3], [1, 2])", 10 + 10 + 7, 7),
        ("dyn(1) == 2", 2, 1),  # constants are converted once
        ("{'a': 1} == {'a': 2}", 61, 1),  # constant maps are made once
        ("device.driver in ['d', 'e']", 14, 2),  # a constant list is a set,
        ("[3, 1, 2].sort() == [1, 2, 3]", 50, 30),
        ("[3, 1, 2].slice(0, 2) == [3, 1]", 34, 14),
        ("['b', 'a'].sort() == ['a', 'b']", 10 + 20 + 10 + 1, 19 + 1),
        ("[[1], [2, 3]].flatten() == [1, 2, 3]", 54, 14),
    ],
)
def test_costs(text, most, actual):
    expression = compile_expression(text, device_environment())
    assert (max_cost(expression), evaluate_on(expression, DEVICE)[1]) == (most, actual)


def test_an_unknown_size_costs_all_there_is():
    expression = compile_expression(f"{A}.model.split('-').join('+') == 'x'", device_environment())
    assert max_cost(expression) > 1_000_000
    assert evaluate_on(expression, DEVICE)[1] < 20


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("quantity(device.driver).isInteger()", 10),
        ("isQuantity(device.driver)", 9),
        (f"semver({A}.model).major() == 1", 13),
        ('isSemver("1.2.3-alpha.beta.1+x-y.z")', 3),
        (f"ip({A}.address).isGlobalUnicast()", 12),
        ('cidr("10.0.0.0/8").ip() == ip("10.0.0.0")', 4),
        ('ip.isCanonical("2001:db8:0:0::1")', 3),
        ('!format.dns1123Label().validate("my-label").hasValue()', 35),
        ('format.named("dns1123Label").value() == format.dns1123Label()', 10),
        ('strings.quote(device.driver) == "\\"gpu.example.com\\""', 11),
        ('"%s-%d".format([device.driver, 3]) == "gpu.example.com-3"', 15),
        ('strings.quote("a") == strings.quote("bc")', 3),
        ('"abcd".replace("bc", "x", 1).replace("a", "bcd") == ""', 2),
        ('["a", "bc"].filter(y, y != "a").exists(y, isSemver(y))', 64),
        ('["a"].map(y, "bc").all(y, isSemver(y))', 39),
        ('(["a"] + ["bcd"]).all(y, isSemver(y))', 32),
        ('(device.allowMultipleAllocations ? ["a"] : ["bcdefghijklm"]).all(y, isSemver(y))', 19),
        (f'{A}.names.join(",") == "b,a,c"', 12),
        (f'{A}.names.join() == "bac"', 4),
        (f'{A}.names.sort() == ["a", "b", "c"]', 8628),
        (f"{A}.names.sort().isSorted()", 9027),
        (f'{A}.names.sortBy(x, x) == ["a", "b", "c"]', 9483),
        ("[3, 1, 2].sort() == [1, 2, 3]", 50),
        ("[1, 2, 3].slice(0, 2) == [1, 2]", 34),
        ("[1, 2, 3].slice(2, 1) == [1, 2]", 2**64 - 1),
        ("[[1], [2, 3]].flatten() == [1, 2, 3]", 54),
        ("[1, 2, 3].reverse() == [3, 2, 1]", 35),
        ("lists.range(3) == [0, 1, 2]", 25),
        (f'{A}.?model.optMap(m, m.startsWith("H")).orValue(false)', 24),
        ('device.capacity["d"].includes(1)', 35),
        ("device.capacity.includes(1)", 162),
        (f"{A}.includes(1)", 259),
        ("'1.0'.includes(device.driver)", 5),
        ("[].reverse().reverse() == []", 42),
        ('device.capacity["d"]["memory"].isInteger()', 5),
        (f"{A}.?links.optFlatMap(l, l.first()).orValue(0) == 1", 24),
    ],
)
def test_estimate(text, cost):
    selector = compile_selector(text)
    assert isinstance(selector, Selector), selector
    assert max_cost(selector.expression) == cost
