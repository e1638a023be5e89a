"""Label and field selectors.

Label selectors come as text (`app=web,tier in (a,b),!old`) or as a LabelSelector document. Field
selectors compare the text of a field with `=` or `!=`; an absent field is the empty text.

Source: k8s.io/apimachinery labels and fields packages.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from kai_py.embedded.documents import Json, lookup
from kai_py.embedded.errors import bad_request

LabelTest: TypeAlias = Callable[[Mapping[str, str]], bool]
ObjectTest: TypeAlias = Callable[[Json], bool]

_KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET_REQUIREMENT = re.compile(_KEY + r"\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY_REQUIREMENT = re.compile(_KEY + r"\s*(?P<op>==|!=|=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
_EXISTENCE_REQUIREMENT = re.compile(r"(?P<not>!?)\s*" + _KEY + r"$")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


def parse_labels(text: str) -> LabelTest:
    """Compile the text form of a label selector; raises RequestError 400 when it is malformed."""
    parts = [part.strip() for part in _COMMA_OUTSIDE_PARENTHESES.split(text) if part.strip()]
    return _all_of([_requirement(part) for part in parts])


def label_selector(document: Json | None) -> LabelTest:
    """Compile a LabelSelector document; None matches nothing, an empty one everything."""
    if document is None:
        return lambda _labels: False
    tests = [_one_of(key, (value,)) for key, value in (document.get("matchLabels") or {}).items()]
    tests += [_expression(entry) for entry in document.get("matchExpressions") or ()]
    return _all_of(tests)


def parse_fields(text: str, selectable: Collection[str]) -> ObjectTest:
    """Compile a field selector over `selectable` fields; raises RequestError 400 if invalid."""
    tests: list[ObjectTest] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        path, operator, value = _split_field(part)
        if path not in selectable:
            raise bad_request(f'"{path}" is not a known field selector')
        tests.append(_field_test(path, value, wanted=operator != "!="))
    return lambda document: all(test(document) for test in tests)


def _requirement(text: str) -> LabelTest:
    if match := _SET_REQUIREMENT.fullmatch(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        test = _one_of(match["key"], values)
        return test if match["op"] == "in" else _negate(test)
    if match := _EQUALITY_REQUIREMENT.fullmatch(text):
        test = _one_of(match["key"], (match["value"],))
        return _negate(test) if match["op"] == "!=" else test
    if match := _EXISTENCE_REQUIREMENT.fullmatch(text):
        test = _exists(match["key"])
        return _negate(test) if match["not"] else test
    raise bad_request(f"unable to parse requirement: {text!r}")


def _expression(entry: Json) -> LabelTest:
    key, operator, values = entry["key"], entry["operator"], entry.get("values") or ()
    match operator:
        case "In":
            return _one_of(key, values)
        case "NotIn":
            return _negate(_one_of(key, values))
        case "Exists":
            return _exists(key)
        case "DoesNotExist":
            return _negate(_exists(key))
    raise bad_request(f'"{operator}" is not a valid label selector operator')


def _one_of(key: str, values: Iterable[str]) -> LabelTest:
    allowed = frozenset(values)
    return lambda labels: labels.get(key) in allowed


def _exists(key: str) -> LabelTest:
    return lambda labels: key in labels


def _negate(test: LabelTest) -> LabelTest:
    return lambda labels: not test(labels)


def _all_of(tests: list[LabelTest]) -> LabelTest:
    return lambda labels: all(test(labels) for test in tests)


def _split_field(part: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, found, value = part.partition(operator)
        if found:
            return path.strip(), operator, value.strip()
    raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")


def _field_test(path: str, value: str, *, wanted: bool) -> ObjectTest:
    return lambda document: (_as_text(lookup(document, path)) == value) is wanted


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
