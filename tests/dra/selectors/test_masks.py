import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.quantity import parse_quantity
from kai_py.cel import expression
from kai_py.cel.expression import CompileError
from kai_py.cel.parse import parse
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.selectors import masks
from kai_py.dra.selectors.columns import columns_of
from kai_py.dra.selectors.device import CELDevice, attribute_value
from kai_py.dra.selectors.masks import conjunct_masks, conjuncts, mask
from kai_py.dra.selectors.selector import compile_selector
from kai_py.dra.selectors.table import DeviceBlock, DeviceTable, Encoding
from tests.dra.selectors.expressions import attributes, common_atoms, devices, own_atoms, selectors
from tests.dra.selectors.expressions import versions as version_values
from tests.support.examples import examples

A = 'device.attributes["gpu.example.com"]'
any_device = devices(st.one_of(attributes, version_values, st.just(attribute_value())))


def answers(selector, found):
    values, errors = [], []
    for device in found:
        try:
            values.append(selector.matches(device))
            errors.append(False)
        except CELRuntimeError:
            values.append(False)
            errors.append(True)
    return values, errors


def selector_of(text):
    selector = compile_selector(text)
    assert not isinstance(selector, CompileError), selector
    return selector


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    texts=st.lists(selectors(common_atoms | own_atoms), min_size=1, max_size=3),
    generations=st.lists(st.lists(any_device, max_size=8), min_size=1, max_size=3),
)
def test_a_mask_says_what_the_selector_says_of_each_device(texts, generations):
    encoding = Encoding()
    blocks = []
    for generation in generations:
        blocks.append(DeviceBlock(generation))
        table = DeviceTable(blocks, encoding)
        for text in texts:
            selector = selector_of(text)
            value, error = mask(selector, table)
            assert (value.tolist(), error.tolist()) == answers(selector, table.devices)


@settings(max_examples=examples(100), deadline=None)
@given(
    text=selectors(common_atoms | own_atoms),
    found=st.lists(any_device, min_size=1, max_size=6),
)
def test_the_conjuncts_together_are_the_selector(text, found):
    table = DeviceTable.of(found)
    selector = selector_of(text)
    parts = [part for _, part in conjunct_masks(selector, table)]
    value, _ = mask(selector, table)
    assert np.logical_and.reduce([part.value for part in parts]).tolist() == value.tolist()


def device(index, model="H100", **more):
    return CELDevice("gpu.example.com", {"model": model, "index": index, **more})


def test_what_was_evaluated_once_is_not_evaluated_again(monkeypatch):
    evaluated = []
    attempt = expression.Program.attempt
    monkeypatch.setattr(
        expression.Program,
        "attempt",
        lambda self, activation: evaluated.append(self) or attempt(self, activation),
    )
    selector = selector_of(f'{A}.model == "H100" && {A}.index < 2')
    encoding = Encoding()
    old = DeviceBlock([device(index) for index in range(4)])
    mask(selector, DeviceTable([old], encoding))
    assert len(evaluated) == 1 + 4  # one model, four indices
    new = DeviceBlock([device(index, serial=f"s{index}") for index in range(5)])
    value, _ = mask(selector, DeviceTable([old, new], encoding))
    assert len(evaluated) == 1 + 5  # only index 4 is new; serials do not matter
    assert value.tolist() == [True, True, False, False, True, True, False, False, False]


def test_a_table_remembers_its_masks():
    table = DeviceTable.of([device(1)])
    selector = selector_of("true")
    assert mask(selector, table) is mask(selector, table)
    with pytest.raises(ValueError, match="read-only"):
        mask(selector, table).value[0] = False


def test_an_empty_table_has_an_empty_mask():
    value, error = mask(selector_of(f"{A}.x == 1"), DeviceTable.of([]))
    assert value.shape == error.shape == (0,)


def test_conjuncts_carry_their_source_text():
    text = f'device.driver == "gpu.example.com" && ({A}.index > 1 ||\n  {A}.index < 0) && true'
    assert [part.text for part in conjuncts(selector_of(text))] == [
        'device.driver == "gpu.example.com"',
        f"({A}.index > 1 || {A}.index < 0)",
        "true",
    ]
    bound = f'cel.bind(d, {A}, d.model == "H100" && (d.index == 1 && has(d.x)))'
    found = conjunct_masks(selector_of(bound), DeviceTable.of([device(1), device(2)]))
    assert [(each.text, part.value.tolist()) for each, part in found] == [
        ('d.model == "H100"', [True, True]),
        ("d.index == 1", [True, False]),
        ("has(d.x)", [False, False]),
    ]
    assert found[1][0].columns == (("attributes", "gpu.example.com", "index"),)


@pytest.mark.parametrize(
    "inner", ['["x", "y"].exists(d, d == "y")', "cel.bind(d, d.index, d == 2)"]
)
def test_a_name_that_is_bound_again_hides_the_outer_one(inner):
    text = f'cel.bind(d, {A}, {inner} && d.model == "H100")'
    found = [device(1), device(2), device(2, "A100")]
    value, error = mask(selector_of(text), DeviceTable.of(found))
    assert (value.tolist(), error.tolist()) == answers(selector_of(text), found)
    assert any(value)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("true", []),
        ("device.driver == 'x'", [("driver",)]),
        (f"{A}.x == {A}['y']",
         [("attributes", "gpu.example.com", "x"), ("attributes", "gpu.example.com", "y")]),
        (f"{A}.?x.orValue(1) == 1", [("attributes", "gpu.example.com", "x")]),
        ("device.attributes[?'d'].?x.hasValue()", [("attributes", "d", "x")]),
        (f"has({A}.x)", [("has", "attributes", "gpu.example.com", "x")]),
        ("'x' in device.capacity['d']", [("has", "capacity", "d", "x")]),
        ("'d' in device.capacity", [("has", "capacity", "d")]),
        (f"{A}.exists(k, k == 'x') && {A}.x == 1", [("attributes", "gpu.example.com")]),
        ("device.attributes[device.driver].x == 1", [("attributes",), ("driver",)]),
        (f"{A}.links[0].x == 1", [("attributes", "gpu.example.com", "links")]),
    ],
)  # fmt: skip
def test_an_expression_depends_on_its_columns(text, columns):
    assert list(columns_of(parse(text))) == columns


def test_true_and_one_are_different_values():
    found = [device(True), device(1), device(attribute_value(bools=(True,))),
             device(attribute_value(ints=(1,)))]  # fmt: skip
    value, _ = mask(selector_of(f"{A}.index == 1 || {A}.index == [1]"), DeviceTable.of(found))
    assert value.tolist() == [False, True, False, True]


def test_quantities_compare_by_value_in_masks():
    found = [CELDevice("d", {}, {"m": parse_quantity(text)}) for text in ("1Gi", "1024Mi", "1G")]
    value, _ = mask(selector_of("device.capacity['d'].m == quantity('1Gi')"), DeviceTable.of(found))
    assert value.tolist() == [True, True, False]


LOOP = "lists.range(100).all(a, lists.range(100).all(b, lists.range(60).all(c, a >= 0)))"


@pytest.mark.slow
def test_a_part_above_the_cost_limit_does_not_count_where_it_is_never_reached():
    selector = selector_of(f'device.driver == "none" && {LOOP}')
    table = DeviceTable.of([device(1)])
    found = mask(selector, table)
    assert (found.value.tolist(), found.error.tolist()) == ([False], [False])
    assert len(conjunct_masks(selector, table)) == 1


@pytest.mark.slow
def test_parts_that_exceed_the_cost_limit_only_together_are_judged_as_a_whole():
    half = "lists.range(100).all(a, lists.range(100).all(b, lists.range(10).all(c, a >= 0)))"
    table = DeviceTable.of([device(1)])
    assert mask(selector_of(half), table).value.tolist() == [True]
    together = selector_of(f"{half} && {half.replace('a >= 0', 'b >= 0')}")
    found = mask(together, table)
    assert (found.value.tolist(), found.error.tolist()) == ([False], [True])
    assert answers(together, table.devices) == ([False], [True])


def test_a_new_encoding_costs_only_time():
    blocks = [DeviceBlock([device(1), device(2)])]
    table = DeviceTable(blocks, Encoding())
    selector = selector_of(f"{A}.index == 2")
    before = mask(selector, table).value.tolist()
    again = DeviceTable([*blocks, DeviceBlock([device(2), device(1)])], Encoding())
    assert mask(selector, again).value.tolist() == [*before, *before[::-1]]
    assert masks.mask(selector, table).value.tolist() == before
