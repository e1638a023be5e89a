"""What selectors may cost, as the API server of Kubernetes 1.37 estimates them."""

import pytest

from kai_py.dra.selectors.cost import max_cost
from kai_py.dra.selectors.selector import Selector, compile_selector

A = 'device.attributes["d"]'


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
        (f"{A}.?links.optFlatMap(l, l.first()).orValue(0) == 1", 24),
    ],
)
def test_estimate(text, cost):
    selector = compile_selector(text)
    assert isinstance(selector, Selector), selector
    assert max_cost(selector.expression) == cost
