"""Evaluation of a CRD's rules on an object.

Rules may be at any depth of a schema and apply to every value there. Values that an update leaves
unchanged may break rules (``cel_ratcheting``), but not those in ``allOf``.

Source: Kubernetes documentation "Validation rules" and "Validation ratcheting" of
CustomResourceDefinitions.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from kai_py.cel.closures import Activation
from kai_py.cel.expression import Expression
from kai_py.cel.values import NONE, CELRuntimeError, CostLimitError, Optional, Value
from kai_py.embedded.cel_ratcheting import Correlation, correlated
from kai_py.embedded.cel_rules import RULES, ValidationRule, compile_rules
from kai_py.embedded.cel_types import EMBEDDED, declare, to_value
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, forbidden_field, required

COST_BUDGET = 10_000_000
"""Limit of the cost of all rules of one object together."""
MAX_MESSAGE_BYTES = 5 * 1024


def _invalid(path: str, shown: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown}{detail}")


def _duplicate(path: str, shown: str, _: str) -> FieldError:
    text = f"Duplicate value: {shown}".removesuffix(": ")
    return FieldError(path, "FieldValueDuplicate", text)


_REPORTS: dict[str, Callable[[str, str, str], FieldError]] = {
    "FieldValueInvalid": _invalid,
    "FieldValueDuplicate": _duplicate,
    "FieldValueForbidden": lambda path, _, detail: forbidden_field(path, detail),
    "FieldValueRequired": lambda path, _, detail: required(path, detail),
}


class Validator(Struct, frozen=True):
    """The rules of a schema and of its subschemas."""

    schema: Json
    root: bool
    rules: tuple[ValidationRule, ...]
    properties: "dict[str, Validator]"
    additional: "Validator | None"
    items: "Validator | None"
    all_of: "tuple[Validator, ...]"

    def validate(self, document: Json, before: Json | None = None) -> list[FieldError]:
        """An error for every rule that an object breaks; `before` is set on updates."""
        evaluation = _Evaluation()
        with suppress(CostLimitError):
            known = None if before is None else Correlation(document, before, self.schema)
            evaluation.visit(self, _Place(document, before, "", known, None))
        return evaluation.errors


def make_validator(schema: Json) -> Validator | None:
    """Compile the rules of a version's schema; None if there are none."""
    return _make(schema, schema, root=True)


def _make(schema: Json, node: Json, *, root: bool) -> Validator | None:
    # A value of unknown type can have no rules at any depth.
    if declare(node, "self", {}, root=root) is None:
        return None
    typed = node.get("properties") or {}
    validator = Validator(
        node,
        root,
        tuple(compile_rules(schema.get(RULES) or [], node, root=root)),
        {
            name: found
            for name, inner in (schema.get("properties") or {}).items()
            if name in typed and (found := _make_inner(inner, typed[name]))
        },
        _make_inner(schema.get("additionalProperties"), node.get("additionalProperties")),
        _make_inner(schema.get("items"), node.get("items")),
        tuple(
            found for inner in schema.get("allOf") or () if (found := _make(inner, node, root=root))
        ),
    )
    parts = (
        validator.rules,
        validator.properties,
        validator.additional,
        validator.items,
        validator.all_of,
    )
    return validator if any(parts) else None


def _make_inner(schema: Any, node: Any) -> Validator | None:
    if not isinstance(schema, dict) or not isinstance(node, dict):
        return None
    return _make(schema, node, root=bool(node.get(EMBEDDED)))


class _Place(Struct, frozen=True):
    """A value in an object, and the old value at the same position, if there is one.

    ``correlation``: of the value, or of the nearest that contains it and has an old value;
    ``outer``: that of what contains the value.
    """

    value: Any
    before: Any
    path: str
    correlation: Correlation | None
    outer: Correlation | None

    @property
    def is_unchanged(self) -> bool:
        return self.correlation is not None and self.correlation.is_unchanged

    @property
    def of_all_of(self) -> "_Place":
        return _Place(self.value, self.before, self.path, self.outer, self.outer)

    def below(self, value: Any, before: Any, step: str, schema: Json) -> "_Place":
        # What is below a value without an old one, or in ``allOf``, has none that counts.
        known = self.correlation if before is None or self.correlation is self.outer else None
        found = known or (None if self.correlation is None else Correlation(value, before, schema))
        return _Place(value, before, f"{self.path}{step}".lstrip("."), found, self.correlation)


class _Evaluation(Struct):
    """Evaluation of the rules of one object.

    A ``CostLimitError`` ends it: the errors found until then are the result.
    """

    errors: list[FieldError] = field(default_factory=list)
    budget: int = COST_BUDGET
    kind: str = ""
    """The type in the schema of the present value."""

    def visit(self, validator: Validator, place: _Place) -> None:
        if place.value is None:
            return
        self._evaluate_all(validator, place)
        for each in validator.all_of:
            self.visit(each, place.of_all_of)
        if isinstance(place.value, dict):
            self._visit_fields(validator, place)
        elif isinstance(place.value, list) and validator.items is not None:
            for inner in _elements(validator.schema, validator.items.schema, place):
                self.visit(validator.items, inner)

    def _visit_fields(self, validator: Validator, place: _Place) -> None:
        old = place.before if isinstance(place.before, dict) else {}
        for name, value in place.value.items():
            if name in validator.properties:
                found = validator.properties[name]
                self.visit(found, place.below(value, old.get(name), f".{name}", found.schema))
            elif validator.additional is not None:
                found = validator.additional
                self.visit(found, place.below(value, old.get(name), f"[{name}]", found.schema))

    def _evaluate_all(self, validator: Validator, place: _Place) -> None:
        applicable = [
            rule
            for rule in validator.rules
            if not rule.is_transition or rule.optional_old_self or place.before is not None
        ]
        if not applicable:
            return
        self.kind = str(validator.schema.get("type", ""))
        try:
            new, old = _values(validator, place)
        except CELRuntimeError as error:
            self._report(place, f"{error.reason} evaluating rule: {applicable[0].name}")
            return
        for rule in applicable:
            if rule.optional_old_self:
                old_self = NONE if place.before is None else Optional(present=True, value=old)
            else:
                old_self = old
            self._evaluate(rule, place, {"self": new, "oldSelf": old_self})

    def _evaluate(self, rule: ValidationRule, place: _Place, activation: Activation) -> None:
        result = self._run(rule.expression, place, activation)
        if isinstance(result, CostLimitError):
            detail = (
                f"'{result.reason}': no further validation rules will be run due to call cost "
                f"exceeds limit for rule: {rule.name}"
            )
            self._stop(place, detail)
        if isinstance(result, CELRuntimeError):
            detail = f"{result.reason} evaluating rule: {rule.name}"
            if result.reason.startswith("no such overload"):
                detail = (
                    f"'{result.reason}': call arguments did not match a supported operator, "
                    f"function or macro signature for rule: {rule.name}"
                )
            self._report(place, detail)
        # Ratcheting does not exempt transition rules: they are about the change itself.
        elif result is not True and (rule.is_transition or not place.is_unchanged):
            message = self._message(rule, place, activation)
            path = f"{place.path}{rule.path}".lstrip(".") or "<nil>"
            self.errors.append(_REPORTS[rule.reason](path, _shown(place.value), message))

    def _message(self, rule: ValidationRule, place: _Place, activation: Activation) -> str:
        if rule.message_expression is None:
            return rule.message
        found = self._run(rule.message_expression, place, activation)
        if isinstance(found, CostLimitError):
            detail = (
                "no further validation rules will be run due to call cost exceeds limit for "
                f'messageExpression: "{rule.message_expression.text}"'
            )
            self._stop(place, detail)
        text = found.strip() if isinstance(found, str) else ""
        usable = text and "\n" not in text and len(text.encode()) <= MAX_MESSAGE_BYTES
        return text if usable else rule.message

    def _run(self, expression: Expression, place: _Place, activation: Activation) -> Value:
        result, cost = expression.program.attempt(activation)
        self.budget -= cost
        if self.budget < 0:
            detail = (
                "validation failed due to running out of cost budget, no further validation rules "
                "will be run"
            )
            self._stop(place, detail)
        return result

    def _stop(self, place: _Place, detail: str) -> None:
        self._report(place, detail)
        raise CostLimitError

    def _report(self, place: _Place, detail: str) -> None:
        self.errors.append(_invalid(place.path or "<nil>", f'"{self.kind}": ', detail))


def _shown(value: Any) -> str:
    """The beginning of a message with the value; objects and lists are left out."""
    return "" if isinstance(value, dict | list) else f"{json.dumps(value)}: "


def _values(validator: Validator, place: _Place) -> tuple[Value, Value]:
    own = to_value(place.value, validator.schema, root=validator.root)
    if place.before is None or not any(rule.is_transition for rule in validator.rules):
        return own, None
    return own, to_value(place.before, validator.schema, root=validator.root)


def _elements(schema: Json, items: Json, place: _Place) -> Iterator[_Place]:
    """The elements of a list, each with the old element of equal keys if the list has keys."""
    old = place.before if isinstance(place.before, list) else []
    for index, (element, before) in enumerate(correlated(schema, place.value, old)):
        yield place.below(element, before, f"[{index}]", items)
