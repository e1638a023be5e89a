"""Which values an update of a custom resource leaves unchanged, so that they may break rules.

Values are compared with the old ones by position; elements of a list only if its type is map, by
their keys. An object with fields that its schema preserves but does not name never counts as
unchanged.

Source: Kubernetes documentation "Validation ratcheting" of CustomResourceDefinitions;
k8s.io/apiserver/pkg/cel/common, ``CorrelatedObject``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from kai_py.embedded.documents import Json


class Correlation(Struct, frozen=True):
    """A value, the old value at the same position, and their schema."""

    value: Any
    before: Any
    schema: Json

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing in the value has changed."""
        return _is_same(self.value, self.before, self.schema)


def _is_same(value: Any, before: Any, schema: Json) -> bool:
    """Whether two values are equal in all that can be compared position by position."""
    if isinstance(value, dict) and isinstance(before, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        return len(value) == len(before) and all(
            isinstance(inner := properties.get(name, extra), dict)
            and name in before
            and _is_same(each, before[name], inner)
            for name, each in value.items()
        )
    if not isinstance(value, list) or not isinstance(before, list):
        return type(value) is type(before) and bool(value == before)
    if len(value) != len(before) or schema.get("x-kubernetes-list-type") != "map":
        return value == before
    return all(
        _is_same(each, old, schema["items"]) for each, old in correlated(schema, value, before)
    )


def correlated(schema: Json, new: list[Any], old: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each new element with the old element of equal keys; with None if the list has no keys."""
    is_map = schema.get("x-kubernetes-list-type") == "map"
    keys = schema.get("x-kubernetes-list-map-keys") or () if is_map else ()
    known = {_key(element, keys): element for element in old if keys}
    return ((element, known.get(_key(element, keys))) for element in new)


def _key(element: Any, keys: Sequence[str]) -> str:
    return repr([element.get(key) for key in keys]) if isinstance(element, dict) else ""
