"""Selectors on one device: what they see of it, and what makes them fail.

Costly expressions on devices: one evaluation per values, with the value and cost of each.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.quantity import parse_quantity
from kai_py.cel import expression
from kai_py.cel.expression import CompileError
from kai_py.cel.values import CELRuntimeError
from kai_py.dra import expressions as allocator_expressions
from kai_py.dra.device_kinds import COST_OF_CLASS
from kai_py.dra.expressions import CompiledExpressions, attempt
from kai_py.dra.selectors.device import CELDevice, attribute_value
from kai_py.dra.selectors.selector import SelectorFeatures, compile_selector, explain
from kai_py.dra.spending import SelectorAllowance, SelectorsTooExpensiveError
from tests.dra.selectors.expressions import common_atoms, devices, own_atoms, selectors
from tests.support.examples import examples

DEVICE = CELDevice(
    driver="gpu.example.com",
    attributes={
        "model": "H100",
        "index": 3,
        "healthy": True,
        "driverVersion": attribute_value(version="580.65.6"),
        "links": attribute_value(ints=(1, 2, 3)),
        "none": attribute_value(strings=()),
        "resource.kubernetes.io/numaNode": 1,
    },
    capacity={"memory": parse_quantity("80Gi"), "cores": parse_quantity("1500m")},
)
A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "gpu.example.com"',
        f'{A}.model == "H100" && {A}["model"] == "H100"',
        'device.attributes["resource.kubernetes.io"].numaNode == 1',
        "device.allowMultipleAllocations == false",
        '"gpu.example.com" in device.attributes && !("other.example.com" in device.attributes)',
        'size(device.attributes["other.example.com"]) == 0',
        f"has({A}.model) && !has({A}.nothing)",
        'has(device.attributes["other.example.com"].x) == false',
        f'"memory" in {C} && !("disk" in {C})',
        f'cel.bind(a, {A}, a.model == "H100" && a.index == 3)',
        f"cel.bind(a, {A}.missing, true)",
        "device.attributes.all(domain, size(domain) > 5)",
        "device.attributes.exists(domain, attributes, attributes.exists(name, name == 'model'))",
        'device.attributes[?"d"].?x.orValue("none") == "none"',
        f'{A}.?model.orValue("") == "H100" && {A}.?missing.orValue("x") == "x"',
        f"{A}.links.includes(3) && {A}.index.includes(3) && !{A}.links.includes(9)",
        f"{A}.none.size() == 0 && {A}.links == [1, 2, 3]",
        f"{C}.memory == quantity('81920Mi') && {C}.memory.compareTo(quantity('40Gi')) == 1",
        f"{A}.driverVersion.isGreaterThan(semver('570.0.0')) && {A}.driverVersion.major() == 580",
    ],
)
def test_matches(text):
    assert compile_selector(text).matches(DEVICE) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("int(\"x\")", "must evaluate to bool or the unknown type, not int"),
        ("[true]", "must evaluate to bool or the unknown type, not list(bool)"),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
        ("duration('1s')", "not google.protobuf.Duration"),
        ("device.nothing", "undefined field 'nothing'"),
        ("device.capacity['d'].x > 1",
         "found no matching overload for '_>_' applied to '(kubernetes.Quantity, int)'"),
    ],
)  # fmt: skip
def test_does_not_compile(text, message):
    compiled = compile_selector(text)
    assert isinstance(compiled, CompileError)
    assert message in compiled.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{A}.missing == 1", "no such key: missing"),
        ('device.attributes["d"].x == 1', "no such key: x"),
        (f"{A}.driverVersion.exists(x, true)", "got 'cel.Semver', expected iterable type"),
    ],
)
def test_fails(text, message):
    with pytest.raises(CELRuntimeError) as caught:
        compile_selector(text).matches(DEVICE)
    assert message in caught.value.reason


def test_a_missing_key_comes_with_advice():
    with pytest.raises(CELRuntimeError) as caught:
        compile_selector(f"{A}.missing").matches(DEVICE)
    assert explain(caught.value) == (
        "no such key: missing. consider using CEL optional chaining (.? followed by orValue()) "
        "or guarding the check with has() for optional fields"
    )


def test_a_result_that_is_no_boolean_is_an_error():
    with pytest.raises(CELRuntimeError, match="CEL result of type string could not be converted"):
        compile_selector(f"{A}.model").matches(DEVICE)


def test_an_unreadable_attribute_fails_every_selector():
    device = CELDevice("d", {"version": attribute_value(version="v1"), "empty": attribute_value()})
    with pytest.raises(CELRuntimeError) as caught:
        compile_selector("true").matches(device)
    assert str(caught.value) == "attribute empty: unsupported attribute value"


def test_a_name_without_a_domain_is_the_drivers():
    device = CELDevice("d", {"d/x": 1, "x": 2, "e/x": 3})
    assert compile_selector('device.attributes["d"].x == 2').matches(device)
    assert compile_selector('device.attributes["e"].x == 3').matches(device)


WITHOUT_LISTS = SelectorFeatures(list_attributes=False)


@pytest.mark.parametrize(
    "text",
    [
        f"{A}.x.all(v, v == 1)",
        f"{A}.x.map(v, v).size() > 0",
        f"[{A}.x][0].exists(v, true)",
        f"cel.bind(v, {A}.x, v.all(w, true))",
        f"{A}.?x.orValue([1]).all(v, true)",
        f"{A}.exists(k, {A}[k].all(v, true))",
    ],
)
def test_an_attribute_of_any_type_is_no_range_of_a_comprehension(text):
    found = compile_selector(text, WITHOUT_LISTS)
    assert isinstance(found, CompileError)
    said = "expression of type 'any' cannot be range of a comprehension (must be list, map, or"
    assert said in str(found)
    assert not isinstance(compile_selector(text), CompileError), "with lists it is dynamic"


@pytest.mark.parametrize(
    "text",
    [
        f"{A}.x > 3 && {A}.x + 1 == 2 && !{A}.y",
        f"{A}.x.y == 1 && {A}.x['y'] == 1 && {A}.x[0] == 1",
        f"{A}.x in [1] && 1 in {A}.x && size({A}.x) > 1 && {A}.x.startsWith('a')",
        f"({A}.x ? 1 : 2) == 1 && (true ? {A}.x : 1) == 1",
        f"dyn({A}.x).all(v, true) && [{A}.x].all(v, v == 1)",
        f"[{A}.x, {A}.y].size() == 2",
    ],
)
def test_an_attribute_of_any_type_is_assignable_to_everything(text):
    assert not isinstance(compile_selector(text, WITHOUT_LISTS), CompileError)


LOOP = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
COSTLY = f"{LOOP}.all(a, {LOOP}.all(b, a + b > {A}.index))"


def shown(outcome):
    value, cost = outcome
    return (str(value) if isinstance(value, CELRuntimeError) else value), cost


@settings(max_examples=examples(150), deadline=None)
@given(text=selectors(common_atoms | own_atoms), found=st.lists(devices(), max_size=6))
def test_an_outcome_is_that_of_an_evaluation(text, found):
    expression = compile_selector(text).expression
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(allocator_expressions, "COSTLY", 0)
        for device in (*found, *found):
            each = shown(expression.program.attempt(device.activation))
            assert shown(attempt(expression, device)) == each


def test_the_order_of_attributes_counts_where_an_expression_loops_over_them():
    names = ("a", "b", "c")
    first, last = (
        CELDevice("gpu.example.com", dict.fromkeys(order, 1)) for order in (names, names[::-1])
    )
    text = f"{A}.exists(name, name == 'a' && {LOOP}.all(a, {LOOP}.all(b, a + b > 0)))"
    expression = compile_selector(text).expression
    costs = [attempt(expression, each)[1] for each in (first, last)]
    assert costs == [expression.program.run(each.activation)[1] for each in (first, last)]
    assert costs[0] < costs[1]


class Row:
    """A row with as much as an evaluation reads."""

    def __init__(self, index, serial):
        attributes = {"index": index, "serial": serial}
        self.cel = CELDevice("gpu.example.com", attributes)


@pytest.fixture
def evaluated(monkeypatch):
    found, run = [], expression.Program.attempt
    monkeypatch.setattr(
        expression.Program,
        "attempt",
        lambda self, activation: found.append(self) or run(self, activation),
    )
    return found


def test_what_is_costly_is_evaluated_once_per_value_and_always_paid_for(evaluated):
    expressions = CompiledExpressions(SelectorAllowance(COST_OF_CLASS))
    matches = [expressions.matches(COSTLY, Row(n % 2 * 5, f"s{n}")) for n in range(100)]
    assert matches == [n % 2 == 0 for n in range(100)]
    assert len(evaluated) <= 3
    expression = compile_selector(COSTLY).expression
    spent = sum(expression.program.run(Row(n % 2 * 5, "").cel.activation)[1] for n in range(100))
    assert expressions.allowance._in_cycle - 10 * len(COSTLY) == spent


def test_an_allowance_ends_although_nothing_is_evaluated(evaluated):
    expressions = CompiledExpressions(SelectorAllowance(20_000))
    rows = [Row(0, f"s{number}") for number in range(100)]
    with pytest.raises(SelectorsTooExpensiveError):
        [expressions.matches(COSTLY, row) for row in rows]
    assert len(evaluated) <= 2
