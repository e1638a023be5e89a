"""Node selectors over label columns: one boolean array per selector, for all nodes at once.

Semantics are those of k8s.io/component-helpers nodeaffinity: terms are OR-ed, the requirements of a
term AND-ed, an empty term and one that can't be parsed match nothing, ``Gt`` and ``Lt`` compare
integers, ``NotIn`` and ``DoesNotExist`` hold where the label is absent.
"""

from collections.abc import Callable, Mapping

import numpy as np

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.api.selectors import can_be_parsed
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.tables.topology import LabelColumn


def matches_selector(selector: NodeSelector, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: any term matches."""
    matched = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.node_selector_terms:
        matched |= matches_term(term, nodes)
    return matched


def matches_term(term: NodeSelectorTerm, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every requirement of the term holds."""
    is_empty = not term.match_expressions and not term.match_fields
    if is_empty or not can_be_parsed(term):
        return np.zeros(len(nodes), dtype=np.bool_)
    matched = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.match_expressions:
        matched &= _matches(requirement, nodes.label(requirement.key))
    for requirement in term.match_fields:
        matched &= _matches(requirement, nodes.name_column())
    return matched


def matches_labels(wanted: Mapping[str, str], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every label has the given value (pod.spec.nodeSelector)."""
    matched = np.ones(len(nodes), dtype=np.bool_)
    for key, value in wanted.items():
        matched &= nodes.label(key).matches((value,))
    return matched


def _matches(requirement: SelectorRequirement, column: LabelColumn) -> Bools:
    present: Bools = np.not_equal(column.codes, 0)
    matched = np.zeros_like(present)
    match requirement.operator:
        case "In":
            matched = column.matches(requirement.values)
        case "NotIn":
            matched = np.logical_not(column.matches(requirement.values))
        case "Exists":
            matched = present
        case "DoesNotExist":
            matched = np.logical_not(present)
        case "Gt":
            matched = _compares(requirement, column, int.__gt__)
        case "Lt":
            matched = _compares(requirement, column, int.__lt__)
    return matched


def _compares(
    requirement: SelectorRequirement, column: LabelColumn, holds: Callable[[int, int], bool]
) -> Bools:
    bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
    chosen = np.zeros(len(column.values), dtype=np.bool_)
    if bound is not None:
        for code, text in enumerate(column.values):
            value = parse_int64(text) if code else None
            chosen[code] = value is not None and holds(value, bound)
    return chosen[column.codes]
