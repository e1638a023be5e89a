"""Structural schemas (a CRD's openAPIV3Schema): pruning, defaults, validation.

Unknown fields are dropped, absent ones get their defaults, and the rest is validated: type,
required, enum, bounds, lengths, patterns, nullability, allOf/anyOf/oneOf/not.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema and validation.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from kai_py.embedded.documents import Json, clone
from kai_py.embedded.errors import FieldError, duplicate, invalid_value, required, unsupported

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_ROOT_FIELDS = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def prune(value: Any, schema: Json, *, root: bool = False) -> None:
    """Drop, in place, the fields that are not in the schema."""
    for path, holder, name in _unknown(value, schema, "", root=root):
        del path
        del holder[name]


def unknown_fields(value: Any, schema: Json) -> list[str]:
    """The dotted paths of a whole object's fields that are not in the schema."""
    return [path for path, _, _ in _unknown(value, schema, "", root=True)]


def apply_defaults(value: Any, schema: Json) -> None:
    """Set, in place, the defaults of absent fields."""
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if name not in value and "default" in inner:
                value[name] = clone(inner["default"])
            if name in value:
                apply_defaults(value[name], inner)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for item in value.values():
                apply_defaults(item, extra)
    elif isinstance(value, list):
        for item in value:
            apply_defaults(item, schema.get("items") or {})


def validate(value: Any, schema: Json, path: str) -> list[FieldError]:
    """The errors in a value at `path`."""
    if value is None:
        if schema.get("nullable") or not schema.get("type"):
            return []
        return [_wrong_type(path, value, schema["type"])]
    if not _has_type(value, schema):
        return [_wrong_type(path, value, schema.get("type", "integer or string"))]
    errors = []
    if "enum" in schema and value not in schema["enum"]:
        errors.append(unsupported(path, value, schema["enum"]))
    if isinstance(value, dict):
        errors += _validate_object(value, schema, path)
    elif isinstance(value, list):
        errors += _validate_list(value, schema, path)
    elif isinstance(value, str):
        errors += _validate_text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        errors += _validate_number(value, schema, path)
    return errors + _validate_junctors(value, schema, path)


def _unknown(
    value: Any, schema: Json, path: str, *, root: bool = False
) -> Iterator[tuple[str, Json, str]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items") or {}, f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        return
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    keep_all = schema.get(_PRESERVE) or extra is True
    embedded = root or schema.get("x-kubernetes-embedded-resource")
    for name in list(value):
        field_path = f"{path}.{name}" if path else name
        if embedded and name in _ROOT_FIELDS:
            continue
        if name in known:
            yield from _unknown(value[name], known[name], field_path)
        elif isinstance(extra, dict):
            yield from _unknown(value[name], extra, field_path)
        elif not keep_all:
            yield field_path, value, name


def _has_type(value: Any, schema: Json) -> bool:
    if schema.get(_INT_OR_STRING):
        return _TYPES["integer"](value) or _TYPES["string"](value)
    expected = schema.get("type")
    return expected is None or _TYPES[expected](value)


def _wrong_type(path: str, value: Any, wanted: str) -> FieldError:
    found = next((name for name, test in _TYPES.items() if test(value)), "null")
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return FieldError(path, "FieldValueTypeInvalid", text)


def _validate_object(value: Json, schema: Json, path: str) -> list[FieldError]:
    errors = [
        required(f"{path}.{name}".lstrip("."))
        for name in schema.get("required") or ()
        if name not in value
    ]
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, item in value.items():
        field_path = f"{path}.{name}".lstrip(".")
        if name in known:
            errors += validate(item, known[name], field_path)
        elif isinstance(extra, dict):
            errors += validate(item, extra, field_path)
    return errors + _validate_size(len(value), schema, path, "Properties", "properties")


def _validate_list(value: list[Any], schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, item in enumerate(value):
        errors += validate(item, schema.get("items") or {}, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    is_set = schema.get("x-kubernetes-list-type") == "set"
    if keys or is_set:
        seen: set[str] = set()
        for index, item in enumerate(value):
            if keys and not isinstance(item, dict):
                continue  # its type is reported already
            mark = {key: item.get(key) for key in keys} if keys else item
            text = json.dumps(mark, sort_keys=True)
            if text in seen:
                errors.append(duplicate(f"{path}[{index}]", mark))
            seen.add(text)
    return errors + _validate_size(len(value), schema, path, "Items", "items")


def _validate_text(value: str, schema: Json, path: str) -> list[FieldError]:
    errors = _validate_size(len(value), schema, path, "Length", "chars long")
    pattern = schema.get("pattern")
    if pattern and not re.search(pattern, value):
        errors.append(invalid_value(path, value, f"{path} in body should match '{pattern}'"))
    return errors


def _validate_size(size: int, schema: Json, path: str, limit: str, unit: str) -> list[FieldError]:
    errors = []
    minimum, maximum = schema.get(f"min{limit}"), schema.get(f"max{limit}")
    if minimum is not None and size < minimum:
        rule = f"{path} in body should have at least {minimum} {unit}"
        errors.append(invalid_value(path, size, rule))
    if maximum is not None and size > maximum:
        text = f"Too many: {size}: must have at most {maximum} {unit}"
        errors.append(FieldError(path, "FieldValueTooMany", text))
    return errors


def _validate_number(value: float, schema: Json, path: str) -> list[FieldError]:
    errors = []
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None and (
        value < minimum or (schema.get("exclusiveMinimum") and value == minimum)
    ):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errors.append(invalid_value(path, value, f"{path} in body should be {word} {minimum}"))
    if maximum is not None and (
        value > maximum or (schema.get("exclusiveMaximum") and value == maximum)
    ):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errors.append(invalid_value(path, value, f"{path} in body should be {word} {maximum}"))
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        errors.append(
            invalid_value(path, value, f"{path} in body should be a multiple of {multiple}")
        )
    return errors


def _validate_junctors(value: Any, schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for branch in schema.get("allOf") or ():
        errors += validate(value, branch, path)
    for word, at_most in (("anyOf", None), ("oneOf", 1)):
        branches = schema.get(word)
        if not branches or schema.get(_INT_OR_STRING):
            continue
        valid = sum(not validate(value, branch, path) for branch in branches)
        if valid == 0 or (at_most is not None and valid > at_most):
            how_many = "one and only one" if at_most else "at least one"
            rule = f'"{path}" must validate {how_many} schema ({word})'
            errors.append(invalid_value(path, value, rule))
    if "not" in schema and not validate(value, schema["not"], path):
        errors.append(invalid_value(path, value, f'"{path}" must not validate the schema (not)'))
    return errors
