"""Costly expressions on devices: one evaluation per values, with the value and cost of each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.cel import evaluate
from kai_py.cel.values import CELRuntimeError
from kai_py.dra import expressions as allocator_expressions
from kai_py.dra.device_kinds import COST_OF_CLASS
from kai_py.dra.expressions import CompiledExpressions, attempt
from kai_py.dra.selectors.device import CELDevice
from kai_py.dra.selectors.selector import compile_selector
from kai_py.dra.spending import SelectorAllowance, SelectorsTooExpensiveError
from tests.dra.selectors.expressions import common_atoms, devices, own_atoms, selectors
from tests.support.examples import examples

A = 'device.attributes["gpu.example.com"]'
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
    found, run = [], evaluate.Program.attempt
    monkeypatch.setattr(
        evaluate.Program,
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
