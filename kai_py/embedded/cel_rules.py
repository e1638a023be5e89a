"""The rules of a CRD's schema, x-kubernetes-validations: compiled, and checked at its write.

A rule is CEL with the variables ``self`` and ``oldSelf``. One that names ``oldSelf`` is a
transition rule: it applies only if there is an old value, unless ``optionalOldSelf`` makes
``oldSelf`` an optional.

Source: Kubernetes documentation "Validation rules" of CustomResourceDefinitions.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from kai_py.cel.check import Environment
from kai_py.cel.expression import CompileError, Expression, compile_expression
from kai_py.cel.types import Type, optional_of
from kai_py.embedded.cel_types import EMBEDDED, Fields, declare
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, forbidden_field, invalid_value, required, unsupported

RULES = "x-kubernetes-validations"
REASONS = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
_STEP = re.compile(r"\.(?P<field>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")


class ValidationRule(Struct, frozen=True):
    """A compiled rule."""

    name: str
    """The rule's name in error messages."""
    message: str
    message_expression: Expression | None
    expression: Expression
    is_transition: bool
    optional_old_self: bool
    reason: str
    path: str
    """The field at fault, below the value that the rule is about."""


def compile_rules(written: list[Json], schema: Json, *, root: bool) -> list[ValidationRule]:
    """Compile rules that have passed ``check_rules``; empty ones hold always."""
    fields: Fields = {}
    type_ = declare(schema, "self", fields, root=root)
    if type_ is None:
        return []
    found = (_compile(rule, schema, type_, fields) for rule in written if rule["rule"].strip())
    # Faulty rules were reported when the CRD was written.
    return [rule for rule in found if isinstance(rule, ValidationRule)]


def check_rules(schema: Json, path: str) -> list[FieldError]:
    """The errors in the rules of a version's schema."""
    return list(_check(schema, schema, path, root=True, uncorrelated=""))


def field_path(text: str, schema: Json) -> str | None:
    """Parse a rule's fieldPath; None if it is no path of fields in the schema."""
    position, path = 0, ""
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return None
        position = step.end()
        name = step["field"] or re.sub(r"\\(.)", r"\1", step["quoted"])
        inner = (schema.get("properties") or {}).get(name)
        path += f".{name}"
        if inner is None and "properties" not in schema:
            inner = schema.get("additionalProperties")
            path = f"{path[: -len(name) - 1]}[{name}]"
        if not isinstance(inner, dict):
            return None
        schema = inner
    return path


def _compile(rule: Json, schema: Json, type_: Type, fields: Fields) -> ValidationRule | FieldError:
    """Compile one rule; the path of an error is relative to the rule's."""
    old = optional_of(type_) if rule.get("optionalOldSelf") else type_
    environment = Environment({"self": type_, "oldSelf": old}, fields)
    text, message = rule["rule"], rule.get("messageExpression") or ""
    compiled = compile_expression(text, environment)
    if isinstance(compiled, CompileError):
        return invalid_value("rule", text, str(compiled))
    if compiled.checked.type.name != "bool":
        return invalid_value("rule", text, "cel expression must evaluate to a bool")
    message_compiled = compile_expression(message, environment) if message.strip() else None
    if isinstance(message_compiled, CompileError):
        detail = f"messageExpression {message_compiled}"
        return invalid_value("messageExpression", message, detail)
    if message_compiled and message_compiled.checked.type.name != "string":
        detail = "messageExpression must evaluate to a string"
        return invalid_value("messageExpression", message, detail)
    return ValidationRule(
        name=(rule.get("message") or text).strip(),
        message=(rule.get("message") or f"failed rule: {text.strip()}").strip(),
        message_expression=message_compiled,
        expression=compiled,
        is_transition=compiled.uses("oldSelf"),
        optional_old_self=bool(rule.get("optionalOldSelf")),
        reason=rule.get("reason") or "FieldValueInvalid",
        path=field_path(rule.get("fieldPath") or "", schema) or "",
    )


def _check(
    schema: Json, node: Json, path: str, *, root: bool, uncorrelated: str
) -> Iterator[FieldError]:
    """Check the rules of a schema and below it; ``node`` has the types of the same place."""
    if schema.get(RULES):
        yield from _check_rules(schema, node, path, root=root, uncorrelated=uncorrelated)
    for name, inner in (schema.get("properties") or {}).items():
        typed = (node.get("properties") or {}).get(name)
        if typed is not None:
            inner_path = f"{path}.properties[{name}]"
            yield from _check_inner(inner, typed, inner_path, uncorrelated)
    for word in ("additionalProperties", "items"):
        inner, typed = schema.get(word), node.get(word)
        if isinstance(inner, dict) and isinstance(typed, dict):
            is_atomic = word == "items" and node.get("x-kubernetes-list-type") != "map"
            outside = uncorrelated or (path if is_atomic else "")
            yield from _check_inner(inner, typed, f"{path}.{word}", outside)
    for index, inner in enumerate(schema.get("allOf") or ()):
        inner_path = f"{path}.allOf[{index}]"
        yield from _check(inner, node, inner_path, root=root, uncorrelated=uncorrelated)
    for word in ("anyOf", "oneOf", "not"):
        yield from _forbid(schema.get(word), f"{path}.{word}")


def _check_inner(inner: Json, typed: Json, path: str, uncorrelated: str) -> Iterator[FieldError]:
    root = bool(typed.get(EMBEDDED))
    yield from _check(inner, typed, path, root=root, uncorrelated=uncorrelated)


def _check_rules(
    schema: Json, node: Json, path: str, *, root: bool, uncorrelated: str
) -> Iterator[FieldError]:
    fields: Fields = {}
    type_ = declare(node, "self", fields, root=root)
    if type_ is None:
        detail = "rules need a schema with a type"
        yield invalid_value(f"{path}.{RULES}", node.get("type", ""), detail)
        return
    for index, rule in enumerate(schema[RULES]):
        rule_path = f"{path}.{RULES}[{index}]"
        if not isinstance(rule.get("rule"), str) or not rule["rule"].strip():
            yield required(f"{rule_path}.rule", "rule is not specified")
            continue
        errors = list(_check_texts(rule, node, rule_path))
        yield from errors
        if any(error.path == f"{rule_path}.message" for error in errors):
            continue
        compiled = _compile(rule, node, type_, fields)
        if isinstance(compiled, FieldError):
            yield FieldError(f"{rule_path}.{compiled.path}", compiled.kind, compiled.message)
        elif compiled.is_transition and uncorrelated:
            detail = (
                "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                f"{uncorrelated}"
            )
            yield invalid_value(f"{rule_path}.rule", rule["rule"], detail)
        elif not compiled.is_transition and rule.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{rule_path}.optionalOldSelf", rule["optionalOldSelf"], detail)


def _check_texts(rule: Json, node: Json, path: str) -> Iterator[FieldError]:
    message, reason, fault_path = rule.get("message"), rule.get("reason"), rule.get("fieldPath")
    if message and "\n" in message.strip():
        yield invalid_value(f"{path}.message", message, "must not contain line breaks")
    if not message and not rule.get("messageExpression") and "\n" in rule["rule"].strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if reason and reason not in REASONS:
        yield unsupported(f"{path}.reason", reason, REASONS)
    if fault_path and field_path(fault_path, node) is None:
        detail = "must be a valid path"
        yield invalid_value(f"{path}.fieldPath", fault_path, detail)


def _forbid(schemas: Json | list[Json] | None, path: str) -> Iterator[FieldError]:
    """Forbid rules in schemas of anyOf, oneOf and not, which a structural schema may not have."""
    if isinstance(schemas, dict):
        for word, inner in schemas.items():
            if word == RULES:
                yield forbidden_field(f"{path}.{RULES}", "must be empty to be structural")
            elif word not in ("default", "enum", "example"):
                yield from _forbid(inner, f"{path}.{word}")
    elif isinstance(schemas, list):
        for index, inner in enumerate(schemas):
            yield from _forbid(inner, f"{path}[{index}]")
