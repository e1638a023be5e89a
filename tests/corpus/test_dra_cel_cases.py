"""Kubernetes' own table of CEL expressions: what compiles, what matches, what errors say."""

import json

import pytest

from kai_py.api.quantity import parse_quantity
from kai_py.cel.expression import CompileError
from kai_py.cel.library.versions import Semver
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.selectors.cost import max_cost
from kai_py.dra.selectors.device import AttributeList, CELDevice, attribute_value
from kai_py.dra.selectors.selector import (
    SelectorFeatures,
    as_bool,
    compile_attribute,
    compile_selector,
    evaluate_on,
    explain,
)

TABLE = "dra-cel-cases"
FIELDS = {"int": "int_", "bool": "bool_"}
ALL_FEATURES = [
    [], ["ConsumableCapacity"], ["ListTypeAttributes"], ["ConsumableCapacity", "ListTypeAttributes"]
]  # fmt: skip


def read_cases(data):
    cases = json.loads((data / f"{TABLE}.json").read_text())["cases"]
    return {f"{case['kind']}:{case['name']}": case for case in cases}


def device_of(case):
    given = case["device"] or {"driver": "", "attributes": {}, "capacity": {}}
    attributes = {
        name: attribute_value(**{FIELDS.get(kind, kind): value for kind, value in typed.items()})
        for name, typed in given["attributes"].items()
    }
    capacity = {name: parse_quantity(held["value"]) for name, held in given["capacity"].items()}
    shared = bool(given.get("allowMultipleAllocations"))
    return CELDevice(given["driver"], attributes, capacity, shared)


def environments(case):
    """Every way of compiling that the case speaks about."""
    mixes = ALL_FEATURES if case["onlyFeatures"] is None else [case["onlyFeatures"]]
    kinds = [case["onlyEnv"]] if case["onlyEnv"] else ["NewExpressions", "StoredExpressions"]
    for features in mixes:
        for kind in kinds:
            stored = kind == "StoredExpressions"
            yield SelectorFeatures(
                consumable_capacity=stored or "ConsumableCapacity" in features,
                list_attributes=stored or "ListTypeAttributes" in features,
            )


def as_json(value):
    if isinstance(value, AttributeList):
        return {value.kind: [as_json(element) for element in value]}
    if isinstance(value, Semver):
        return {"version": str(value)}
    names = {bool: "bool", int: "int", str: "string"}
    return {names[type(value)]: value}


def plain(attribute):
    """Versions in a list are compared by their text."""
    for kind, value in attribute.items():
        if kind == "versions":
            return {kind: [{"version": text} for text in value]}
        if kind in ("ints", "bools", "strings"):
            names = {"ints": "int", "bools": "bool", "strings": "string"}
            return {kind: [{names[kind]: element} for element in value]}
    return attribute


def test_case(case, match_errors):
    for number, environment in enumerate(environments(case)):
        # The environment decides what compiles; what an expression gives does not depend on it.
        check(case, environment, match_errors, run=number == 0)


def check(case, environment, match_errors, *, run):
    expect = case["expect"]
    compile_text = compile_selector if case["kind"] == "selector" else compile_attribute
    compiled = compile_text(case["expression"], environment)
    if expect.get("compileErrorSubstring") is not None:
        assert isinstance(compiled, CompileError)
        assert expect["compileErrorSubstring"] in compiled.message
        return
    assert not isinstance(compiled, CompileError), compiled
    if expect.get("maxCost"):
        assert max_cost(compiled.expression) == expect["maxCost"]
    if not run:
        return
    if case["kind"] == "selector" and expect["matchErrorSubstring"] is not None:
        assert expect["matchErrorSubstring"] in match_error(case, compiled, match_errors)
    elif case["kind"] == "selector":
        assert compiled.matches(device_of(case)) is expect["match"]
    elif case["kind"] == "derived-eval":
        check_value(compiled, device_of(case), expect)


@pytest.fixture(scope="module")
def match_errors():
    """What selectors that fail say, by name of the case: the most expensive one runs once."""
    return {}


def match_error(case, selector, known):
    if case["name"] not in known:
        with pytest.raises(CELRuntimeError) as caught:
            selector.matches(device_of(case))
        known[case["name"]] = explain(caught.value)
    return known[case["name"]]


def check_value(attribute, device, expect):
    if expect["evalErrorSubstring"] is not None:
        with pytest.raises(CELRuntimeError) as caught:
            attribute.value(device)
        assert expect["evalErrorSubstring"] in explain(caught.value)
        return
    assert as_json(attribute.value(device)) == plain(expect["attribute"])


def test_what_upstream_observed(case, match_errors):
    """The table's ``observed`` part is finer: types, costs and full error texts."""
    for observed in case["observed"]:
        for number, combo in enumerate(observed["combos"]):
            stored = combo["env"] == "StoredExpressions"
            environment = SelectorFeatures(
                consumable_capacity=stored or "ConsumableCapacity" in combo["features"],
                list_attributes=stored or "ListTypeAttributes" in combo["features"],
            )
            compare(case, environment, observed["result"], match_errors, run=number == 0)


def compare(case, environment, wanted, match_errors, *, run):
    compile_text = compile_selector if case["kind"] == "selector" else compile_attribute
    compiled = compile_text(case["expression"], environment)
    if wanted["compileError"] is not None:
        assert str(compiled) == wanted["compileError"]
        return
    assert not isinstance(compiled, CompileError), compiled
    expression = compiled.expression
    assert str(expression.checked.type) == wanted["outputType"]
    assert max_cost(expression) == wanted["maxCost"]
    if not run:
        return
    if wanted.get("match") is not None:
        value, cost = evaluate_on(expression, device_of(case))
        assert (as_bool(value), cost) == (wanted["match"], wanted["actualCost"])
    if wanted.get("matchErrorEnhanced") is not None:
        assert match_error(case, compiled, match_errors) == wanted["matchErrorEnhanced"]
    if wanted.get("evalError") is not None:
        with pytest.raises(CELRuntimeError) as caught:
            compiled.value(device_of(case))
        assert caught.value.reason == wanted["evalError"]
