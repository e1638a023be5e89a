"""Label and field selectors.

Label selectors come as text (`app=web,tier in (a,b),!old,size>3`) or as a LabelSelector document.
Field selectors compare the text of a field with `=` or `!=`; an absent field is the empty text.
In the value, a backslash is written before a comma, an equals sign and a backslash.

Source: k8s.io/apimachinery labels and fields packages.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import LabelSelector, SelectorRequirement
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import value_at
from kai_py.api.selectors import (
    is_label_key,
    is_label_value,
    label_selector_matches,
    requirement_matches,
)
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError, bad_request

LabelTest: TypeAlias = Callable[[Mapping[str, str]], bool]
ObjectTest: TypeAlias = Callable[[Json], bool]

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_TOKEN = re.compile(r"[ \t\r\n]*([=!]=|[=!(),<>]|[^ \t\r\n=!(),<>]+|$)")
_FIELD_TERM = re.compile(r"(?:\\.|[^\\,]|\\$)+", re.DOTALL)
_FIELD_OPERATOR = re.compile(r"(.*?)([=!]=|=)(.*)", re.DOTALL)
_FIELD_VALUE = re.compile(r"(?:\\[\\,=]|[^\\,=])*")
_ESCAPED = re.compile(r"\\(.)")
_SIGNS = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">", ""})
_EXACT = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_SETS = {"in": "In", "notin": "NotIn"}


def parse_labels(text: str) -> LabelTest:
    """Compile the text form of a label selector; raises RequestError 400 when it is malformed."""
    requirements = _LabelText(text).requirements()
    return lambda labels: all(_holds(each, labels.get(each.key)) for each in requirements)


def _holds(requirement: SelectorRequirement, value: str | None) -> bool:
    if requirement.operator not in ("Gt", "Lt"):
        return requirement_matches(requirement, value)
    number, bound = parse_int64(value or ""), parse_int64(requirement.values[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


class _LabelText:
    """The tokens of a label selector, ended by an empty one, which are taken one after another."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._position = 0

    @property
    def _next(self) -> str:
        return str(self._tokens[self._position])

    def requirements(self) -> list[SelectorRequirement]:
        found: list[SelectorRequirement] = []
        if self._next == "":
            return found
        while True:
            found.append(self._requirement())
            if self._take(",", "") == "":
                return found

    def _requirement(self) -> SelectorRequirement:
        is_absence = self._next == "!" and self._take("!") == "!"
        key = self._name()
        if not is_label_key(key):
            raise _malformed(f"{key!r} is no key of a label")
        if is_absence or self._next in ("", ","):
            return SelectorRequirement(key, "DoesNotExist" if is_absence else "Exists")
        sign = self._take(*_EXACT, *_SETS)
        values = self._set() if sign in _SETS else (self._value(),)
        operator = _SETS.get(sign) or _EXACT[sign]
        if operator in ("Gt", "Lt") and parse_int64(values[0]) is None:
            raise _malformed(f"{values[0]!r} is no integer, which {sign!r} needs")
        if not all(map(is_label_value, values)):
            raise _malformed(f"{', '.join(values)!r} are no values of a label")
        return SelectorRequirement(key, operator, values)

    def _set(self) -> tuple[str, ...]:
        self._take("(")
        values = []
        while True:
            values.append(self._value(")"))
            if self._take(",", ")") == ")":
                return tuple(values)

    def _value(self, *ends: str) -> str:
        """A value, which is empty where nothing is written."""
        return "" if self._next in ("", ",", *ends) else self._name()

    def _name(self) -> str:
        if self._next in _SIGNS:
            raise _malformed(f"found {self._next!r}, expected: identifier")
        return self._take(self._next)

    def _take(self, *expected: str) -> str:
        found = self._next
        if found not in expected:
            raise _malformed(f"found {found!r}, expected: {', '.join(map(repr, expected))}")
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return found


def _malformed(reason: str) -> RequestError:
    return bad_request(f"unable to parse requirement: {reason}")


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
    for part in filter(None, _FIELD_TERM.findall(text)):
        path, operator, value = _split_field(part)
        if path not in selectable:
            raise bad_request(f'"{path}" is not a known field selector')
        tests.append(_field_test(path, value, wanted=operator != "!="))
    return lambda document: all(test(document) for test in tests)


def _split_field(part: str) -> tuple[str, str, str]:
    term = _FIELD_OPERATOR.fullmatch(part)
    if term is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = term.groups()
    if not _FIELD_VALUE.fullmatch(value):
        raise bad_request(f"invalid field selector: '{value}' has a backslash or = to be escaped")
    return path, operator, _ESCAPED.sub(r"\1", value)


def _field_test(path: str, value: str, *, wanted: bool) -> ObjectTest:
    return lambda document: (_as_text(value_at(document, path)) == value) is wanted


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
