"""Selectors of labels: what a metav1.LabelSelector matches, and terms that match no node.

kube-scheduler takes a term of a node selector that it cannot parse for one that matches nothing.
Older API servers admit label values in a node affinity that no label can have, and files may hold
anything. Source: NewRequirement of apimachinery's labels, nodeaffinity of component-helpers.
"""

import re
from collections.abc import Mapping

from kai_py.api.name_patterns import DNS_SUBDOMAIN, LABEL_NAME
from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import LabelSelector, NodeSelectorTerm, SelectorRequirement

NAME_FIELD = "metadata.name"
MAX_LABEL = 63
"""Longest value of a label, and longest name in its key."""
MAX_PREFIX = 253

_NAME = re.compile(LABEL_NAME, re.ASCII)
_PREFIX = re.compile(DNS_SUBDOMAIN, re.ASCII)


def can_be_parsed(term: NodeSelectorTerm) -> bool:
    """Whether kube-scheduler can parse every requirement of ``term``."""
    return all(map(_is_of_labels, term.match_expressions)) and all(
        map(_is_of_fields, term.match_fields)
    )


def _is_of_labels(requirement: SelectorRequirement) -> bool:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            fits = bool(values)
        case "Exists" | "DoesNotExist":
            fits = not values
        case "Gt" | "Lt":
            fits = len(values) == 1 and parse_int64(values[0]) is not None
        case _:
            fits = False
    return fits and is_label_key(requirement.key) and all(map(is_label_value, values))


def _is_of_fields(requirement: SelectorRequirement) -> bool:
    has_name = requirement.key == NAME_FIELD and len(requirement.values) == 1
    return has_name and requirement.operator in ("In", "NotIn")


def is_label_key(text: str) -> bool:
    """Whether a label may have this key."""
    prefix, slash, name = text.rpartition("/")
    has_prefix = len(prefix) <= MAX_PREFIX and _PREFIX.fullmatch(prefix) is not None
    return _is_name(name) and (has_prefix or not slash)


def is_label_value(text: str) -> bool:
    """Whether a label may have this value."""
    return not text or _is_name(text)


def _is_name(text: str) -> bool:
    return len(text) <= MAX_LABEL and _NAME.fullmatch(text) is not None


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` match; an empty selector matches everything, None matches nothing."""
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(
        requirement_matches(each, labels.get(each.key)) for each in selector.match_expressions
    )


def requirement_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    """Whether the value of the requirement's key, None if it is missing, is as required."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
