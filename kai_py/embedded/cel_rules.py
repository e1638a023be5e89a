"""Do a custom resource's own rules (x-kubernetes-validations) hold?

Rules are CEL, evaluated by cel-python with `self` and, on updates, `oldSelf`. Of Kubernetes' extra
libraries only quantities are there, `optionalOldSelf` is not; a rule that does not compile refuses
its CRD, one that fails for want of a function refuses the write with 501.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import celpy
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from kai_py.embedded.cel_quantities import QUANTITY_FUNCTIONS
from kai_py.embedded.errors import FieldError, invalid_value, not_implemented

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kai_py.embedded.documents import Json

RULES = "x-kubernetes-validations"
_OLD_SELF = re.compile(r"\boldSelf\b")


@dataclass(frozen=True)
class _Site:
    """A rule, the value it is about and the value of the same place before, if there was one."""

    rule: Json
    path: str
    value: Any
    before: Any


def check_rules(schema: Json) -> list[FieldError]:
    """Return an error for every rule in a schema that does not compile."""
    errors = []
    for rule in _all_rules(schema):
        if "optionalOldSelf" in rule:
            raise not_implemented("optionalOldSelf in x-kubernetes-validations")
        try:
            _program(rule["rule"])
        except CELParseError as error:
            errors.append(invalid_value(RULES, rule["rule"], f"compilation failed: {error}"))
    return errors


def broken_rules(value: Any, schema: Json, before: Any = None) -> list[FieldError]:
    """Return an error for every rule that a whole object breaks; `before` is set on updates."""
    errors = []
    for site in _sites(value, schema, before, ""):
        transition = bool(_OLD_SELF.search(site.rule["rule"]))
        if transition and site.before is None:
            continue
        if why := _failure(site, transition=transition):
            path = f"{site.path}{site.rule.get('fieldPath', '')}" or "<nil>"
            errors.append(invalid_value(path.lstrip("."), _shown(site.value), why))
    return errors


def _failure(site: _Site, *, transition: bool) -> str:
    rule = site.rule["rule"]
    variables = {"self": json_to_cel(site.value)}
    if transition:
        variables["oldSelf"] = json_to_cel(site.before)
    try:
        holds = _program(rule).evaluate(variables)
    except CELEvalError as error:
        reason = str(error.args[0]) if error.args else "unknown"
        if reason.startswith(("no such overload", "undeclared")):
            why = reason.partition(" (in activation")[0]
            raise not_implemented(f"what the rule {rule!r} needs: {why}") from error
        return f"rule evaluation error: {reason}"
    if holds:
        return ""
    return str(_message(site.rule, variables) or f"failed rule: {rule}")


def _message(rule: Json, variables: dict[str, Any]) -> str:
    if expression := rule.get("messageExpression"):
        try:
            return str(_program(expression).evaluate(variables))
        except CELEvalError:
            pass
    return str(rule.get("message", ""))


@lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions=QUANTITY_FUNCTIONS)


def _sites(value: Any, schema: Json, before: Any, path: str) -> Iterator[_Site]:
    if value is None:
        return
    for rule in schema.get(RULES) or ():
        yield _Site(rule, path, value, before)
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, extra)
            if isinstance(inner, dict):
                yield from _sites(item, inner, old.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _sites(item, schema.get("items") or {}, None, f"{path}[{index}]")


def _all_rules(schema: Any) -> Iterator[Json]:
    if isinstance(schema, dict):
        yield from schema.get(RULES) or ()
        for name, inner in schema.items():
            if name not in (RULES, "default", "enum"):
                yield from _all_rules(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _all_rules(inner)


def _shown(value: Any) -> Any:
    return "object" if isinstance(value, dict) else value
