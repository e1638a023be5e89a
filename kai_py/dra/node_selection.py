"""Node selectors of slices, devices and allocations, for one node.

Semantics of k8s.io/component-helpers nodeaffinity: terms are OR-ed, requirements AND-ed, an empty
term matches nothing, ``Gt`` and ``Lt`` compare integers.
"""

from kai_py.api.records.core import Node, NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.snapshot.label_selector import requirement_matches


def node_selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Whether any term of ``selector`` matches ``node``."""
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    return all(
        _requirement_matches(requirement, labels.get(requirement.key))
        for requirement in term.match_expressions
    ) and all(
        requirement.key == "metadata.name" and _requirement_matches(requirement, node.metadata.name)
        for requirement in term.match_fields
    )


def _requirement_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    if requirement.operator in ("Gt", "Lt"):
        return _number_matches(requirement, value)
    return requirement_matches(requirement, value)


def _number_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(*requirement.values)
    except (ValueError, TypeError):
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
