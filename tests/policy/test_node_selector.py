"""Node selectors over columns must agree with reading one node after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.dra.rows import node_selector_matches
from kai_py.policy.node_filters import matches_labels, matches_selector
from kai_py.snapshot.nodes import node_columns
from kai_py.snapshot.resources import ResourceIndex
from tests.support.scenario import node

KEYS = ("zone", "gen")
VALUES = ("a", "b", "3", "12")


def columns(labels):
    nodes = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    return node_columns(nodes, ResourceIndex(), 1)


def holds(requirement, labels):
    value = labels.get(requirement.key)
    if requirement.operator in ("Gt", "Lt"):
        if value is None or not value.isdecimal() or not requirement.values[0].isdecimal():
            return False
        left, right = int(value), int(requirement.values[0])
        return left > right if requirement.operator == "Gt" else left < right
    return {
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[requirement.operator]


labels = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=6
)
requirements = st.one_of(
    st.builds(
        lambda key, operator, values: SelectorRequirement(
            key=key, operator=operator, values=tuple(values)
        ),
        st.sampled_from(KEYS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: SelectorRequirement(key=key, operator=operator),
        st.sampled_from(KEYS),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: SelectorRequirement(
            key=key, operator=operator, values=(value,)
        ),
        st.sampled_from(KEYS),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(VALUES),
    ),
)
terms = st.lists(st.lists(requirements, max_size=3), max_size=3)


@given(labels, terms)
def test_columns_equal_one_by_one(labels, terms):
    selector = NodeSelector(
        node_selector_terms=tuple(NodeSelectorTerm(match_expressions=tuple(term)) for term in terms)
    )
    expected = [
        any(term and all(holds(each, node_labels) for each in term) for term in terms)
        for node_labels in labels
    ]
    assert list(matches_selector(selector, columns(labels))) == expected


def test_fields_select_by_name_and_unknown_fields_select_nothing():
    def by(key):
        field = SelectorRequirement(key=key, operator="In", values=("n1",))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))

    nodes = columns([{}, {}])
    assert list(matches_selector(by("metadata.name"), nodes)) == [False, True]
    assert not matches_selector(by("spec.anything"), nodes).any()


def test_labels_must_all_be_equal():
    nodes = columns([{"zone": "a"}, {"zone": "a", "gen": "3"}, {}])
    assert list(matches_labels({"zone": "a", "gen": "3"}, nodes)) == [False, True, False]
    assert np.all(matches_labels({}, nodes))


def test_numbers_are_compared_with_one_bound():
    nodes = columns([{"gen": "3"}, {"gen": "12"}, {"gen": "a"}, {}])

    def found(operator, *values):
        each = SelectorRequirement(key="gen", operator=operator, values=values)
        term = NodeSelectorTerm(match_expressions=(each,))
        return list(matches_selector(NodeSelector(node_selector_terms=(term,)), nodes))

    assert found("Gt", "3") == [False, True, False, False]
    assert found("Lt", "12") == [True, False, False, False]
    assert not any(found("Gt", "1", "2"))
    assert not any(found("Lt"))


def of_labels(key, operator, *values):
    each = SelectorRequirement(key=key, operator=operator, values=values)
    return NodeSelectorTerm(match_expressions=(each,))


def of_fields(operator, *values):
    each = SelectorRequirement(key="metadata.name", operator=operator, values=values)
    return NodeSelectorTerm(match_fields=(each,))


@pytest.mark.parametrize(
    "term",
    [
        of_labels("zone", "NotIn", "no label: ___@#$%^"),
        of_labels("zone", "NotIn", "a" * 64),
        of_labels("zone", "NotIn"),
        of_labels("zone", "Exists", "a"),
        of_labels("gen", "DoesNotExist", "a"),
        of_labels("not a key", "DoesNotExist"),
        of_labels("Example.com/gen", "DoesNotExist"),
        of_labels("example.com/", "DoesNotExist"),
        of_labels("zone", "Like", "a"),
        of_fields("In", "n0", "n1"),
        of_fields("NotIn"),
        of_fields("Exists"),
    ],
)
def test_a_term_that_kube_scheduler_cannot_parse_matches_no_node(term):
    valid = of_labels("zone", "In", "a")
    alone = NodeSelector(node_selector_terms=(term,))
    with_valid = NodeSelector(node_selector_terms=(term, valid))
    nodes = [node(name, labels={"zone": "a"}) for name in ("n0", "n1")]
    assert not matches_selector(alone, node_columns(nodes, ResourceIndex(), 1)).any()
    assert matches_selector(with_valid, node_columns(nodes, ResourceIndex(), 1)).all()
    assert not any(node_selector_matches(alone, each) for each in nodes)
    assert all(node_selector_matches(with_valid, each) for each in nodes)


def test_keys_with_a_prefix_and_empty_values_are_parsed():
    nodes = node_columns([node("n0", labels={"example.com/zone": ""})], ResourceIndex(), 1)
    for term in (of_labels("example.com/zone", "In", ""), of_fields("NotIn", "n1")):
        assert matches_selector(NodeSelector(node_selector_terms=(term,)), nodes).all()
