"""Problems of a document by field, from pydantic's errors.

A problem names the field as the user wrote it and, where a field does not exist, the closest that
does.
"""

import difflib
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct
from pydantic import BaseModel, ValidationError

from kai_py.api.model import (
    HTTP_PATTERN,
    LABEL_VALUE_PATTERN,
    NAME_PATTERN,
    QUALIFIED_NAME_PATTERN,
)

FieldPath = tuple[str | int, ...]
"""Keys and indices from a document's root."""

_MESSAGES = {
    "model_type": "must be a mapping of fields",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "missing": "is required",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "path_type": "must be the path of a file",
}
_PATTERN_MESSAGES = {
    NAME_PATTERN: "must be lower-case letters, digits, - and ., with a letter or digit at each end",
    LABEL_VALUE_PATTERN: "must be letters, digits, -, _ and ., with a letter or digit at each end",
    QUALIFIED_NAME_PATTERN: "must be a label key: NAME or DOMAIN/NAME",
    HTTP_PATTERN: "must begin with http:// or https:// and a host",
}
_ADVICE = re.compile(r"^\w+ should ")
"""How pydantic begins: ``Input should be less than 1``, ``String should have …``."""


class FieldProblem(Struct, frozen=True):
    """One problem of one field."""

    path: FieldPath
    message: str
    suggestion: str | None = None
    """The key that was probably meant, when the last key of the path does not exist."""

    def __str__(self) -> str:
        return f"{field_path(self.path)}: {self.message}" if self.path else self.message


def field_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """The problems of a pydantic error for a document of this model.

    To pydantic a list of which each entry has a problem is also too short; that is left out.
    """
    details = error.errors(include_url=False, include_input=False)
    paths = {tuple(detail["loc"]) for detail in details}
    outer = {path[:length] for path in paths for length in range(len(path))}
    return tuple(
        _unknown_field(tuple(detail["loc"]), model)
        if detail["type"] == "extra_forbidden"
        else FieldProblem(
            tuple(detail["loc"]),
            _message(detail),
        )
        for detail in details
        if detail["type"] != "too_short" or tuple(detail["loc"]) not in outer
    )


def _message(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "string_pattern_mismatch":
        known = _PATTERN_MESSAGES.get(detail["ctx"]["pattern"])
        if known is not None:
            return known
    message = str(detail["msg"]).removeprefix("Value error, ").replace(" after validation", "")
    return _MESSAGES.get(detail["type"], _ADVICE.sub("must ", message))


def field_path(path: FieldPath) -> str:
    """The path in the usual notation: ``spec.devices[0].max``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


MAX_CANDIDATES = 500
"""Words that are compared: clusters have thousands of names, and a comparison is slow."""


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, ignoring case, or None.

    Of more than ``MAX_CANDIDATES`` words, only those that begin most alike are compared.
    """
    return _closest(word, tuple(known))


@lru_cache(maxsize=1024)
def _closest(word: str, known: tuple[str, ...]) -> str | None:
    """Cached, as gangs that stay pending ask for the same names in every cycle."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    if len(by_lower) > MAX_CANDIDATES:
        alike = sorted(by_lower, key=lambda each: (-_common_prefix(word.lower(), each), each))
        by_lower = {each: by_lower[each] for each in alike[:MAX_CANDIDATES]}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[matches[0]] if matches else None


def nearest_path(value: str, known: Sequence[str]) -> str:
    """Of NAMESPACE/KIND/NAME the known one that was probably meant; "" if none is like it.

    Only the last part is compared, else long namespaces would decide.
    """
    path, slash, last = value.rpartition("/")
    if last in (ends := {name.rpartition("/")[2]: name for name in known}):
        return ends[last]
    siblings = [name for name in known if f"/{name}".rpartition("/")[0].endswith(slash + path)]
    ends = {name.rpartition("/")[2]: name for name in siblings}
    nearest = closest_match(last, ends)
    return ends[nearest] if nearest else ""


MAX_EDITS = 2
MIN_LENGTH = 5
"""Shorter words differ by two letters without being misspelt."""


def is_misspelling(word: str, meant: str) -> bool:
    """Whether ``word`` is ``meant`` but for case, separators or two letters.

    Letters are those that are missing, added, changed, or swapped with the next one. Stricter than
    ``closest_match``: for words that may well be names of something else.
    """
    left, right = (each.lower().replace("-", "").replace("_", "") for each in (word, meant))
    if left == right:
        return word != meant
    if min(len(left), len(right)) < MIN_LENGTH or abs(len(left) - len(right)) > MAX_EDITS:
        return False
    return _edits(left, right) <= MAX_EDITS


def _edits(left: str, right: str) -> int:
    """The optimal string alignment distance (Damerau, 1964)."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _common_prefix(left: str, right: str) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no such thing, and which was probably meant or which there are."""
    names = tuple(known)
    nearest = closest_match(name, names)
    advice = f"did you mean {nearest}?" if nearest else f"known are {', '.join(names) or 'none'}"
    return f"there is no {kind} {name}; {advice}"


def _unknown_field(path: FieldPath, model: type[BaseModel]) -> FieldProblem:
    known = _keys_at(path[:-1], model)
    suggestion = closest_match(str(path[-1]), known)
    advice = f"did you mean {suggestion}?" if suggestion else f"known are {', '.join(known)}"
    return FieldProblem(path, f"no such field; {advice}", suggestion)


def _keys_at(path: FieldPath, model: type[BaseModel]) -> list[str]:
    """The keys that are valid at a path."""
    current: type[BaseModel] | None = model
    for part in path:
        fields = _fields(current)
        if part in fields:
            current = _model_within(fields[str(part)])
    return list(_fields(current))


def _fields(model: type[BaseModel] | None) -> dict[str, Any]:
    if model is None:
        return {}
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_within(annotation: Any) -> type[BaseModel] | None:
    """The model in a field's type, through optionals, lists and maps."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_model_within(argument) for argument in typing.get_args(annotation))
    return next((model for model in models if model is not None), None)
