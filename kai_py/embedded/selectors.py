"""Label and field selectors.

Label selectors come as text (`app=web,tier in (a,b),!old`) or as a LabelSelector document. Field
selectors compare the text of a field with `=` or `!=`; an absent field is the empty text.

Source: k8s.io/apimachinery labels and fields packages.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

from kai_py.api.records.core import LabelSelector, SelectorRequirement
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import value_at
from kai_py.api.selectors import label_selector_matches
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import bad_request

LabelTest: TypeAlias = Callable[[Mapping[str, str]], bool]
ObjectTest: TypeAlias = Callable[[Json], bool]

_KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET_REQUIREMENT = re.compile(_KEY + r"\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY_REQUIREMENT = re.compile(_KEY + r"\s*(?P<op>==|!=|=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
_EXISTENCE_REQUIREMENT = re.compile(r"(?P<not>!?)\s*" + _KEY + r"$")
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


def parse_labels(text: str) -> LabelTest:
    """Compile the text form of a label selector; raises RequestError 400 when it is malformed."""
    parts = [part.strip() for part in _COMMA_OUTSIDE_PARENTHESES.split(text) if part.strip()]
    selector = LabelSelector(match_expressions=tuple(map(_requirement, parts)))
    return partial(label_selector_matches, selector)


def label_selector(document: Json | None) -> LabelTest:
    """Compile a LabelSelector document; None matches nothing, an empty one everything.

    Raises RequestError 400 when it is malformed.
    """
    try:
        selector = convert_record(document, LabelSelector) if document is not None else None
    except ValueError as error:
        raise bad_request(str(error)) from None
    for each in selector.match_expressions if selector is not None else ():
        if each.operator not in _OPERATORS:
            raise bad_request(f'"{each.operator}" is not a valid label selector operator')
    return partial(label_selector_matches, selector)


def parse_fields(text: str, selectable: Collection[str]) -> ObjectTest:
    """Compile a field selector over `selectable` fields; raises RequestError 400 if invalid."""
    tests: list[ObjectTest] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        path, operator, value = _split_field(part)
        if path not in selectable:
            raise bad_request(f'"{path}" is not a known field selector')
        tests.append(_field_test(path, value, wanted=operator != "!="))
    return lambda document: all(test(document) for test in tests)


def _requirement(text: str) -> SelectorRequirement:
    if match := _SET_REQUIREMENT.fullmatch(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        operator = "In" if match["op"] == "in" else "NotIn"
        return SelectorRequirement(key=match["key"], operator=operator, values=values)
    if match := _EQUALITY_REQUIREMENT.fullmatch(text):
        operator = "NotIn" if match["op"] == "!=" else "In"
        return SelectorRequirement(key=match["key"], operator=operator, values=(match["value"],))
    if match := _EXISTENCE_REQUIREMENT.fullmatch(text):
        operator = "DoesNotExist" if match["not"] else "Exists"
        return SelectorRequirement(key=match["key"], operator=operator)
    raise bad_request(f"unable to parse requirement: {text!r}")


def _split_field(part: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, found, value = part.partition(operator)
        if found:
            return path.strip(), operator, value.strip()
    raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")


def _field_test(path: str, value: str, *, wanted: bool) -> ObjectTest:
    return lambda document: (_as_text(value_at(document, path)) == value) is wanted


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
