"""Server-side apply in a simple form: fields by manager, and the effect of a new apply.

The fields of one manager's last apply are remembered (not shown as managedFields). A new apply
merges its fields, removes those that the same manager applied before and no longer mentions, and
conflicts where another manager applied a different value, unless forced. Fields written by other
means than apply have no owner here and are overwritten without a conflict.
"""

from collections.abc import Iterator
from typing import Any

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError
from kai_py.embedded.patches.strategic import apply_strategic_patch, merge_key

Path = tuple[str, ...]
"""Steps to a field: names, and `[key=value]` for an entry of a list that is a map."""

_IDENTITY: frozenset[Path] = frozenset(
    {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
)


class AppliedFields:
    """The fields that each manager applied to each object (by uid)."""

    def __init__(self) -> None:
        self._applied: dict[str, dict[str, dict[Path, Any]]] = {}

    def merge(self, present: Json, applied: Json, *, manager: str, force: bool) -> Json:
        """Return `present` with `applied` by `manager`; raises RequestError 409 on a conflict."""
        managers = self._applied.get(present["metadata"].get("uid", ""), {})
        fields = dict(_leaf_paths(applied))
        others = {name: theirs for name, theirs in managers.items() if name != manager}
        if not force:
            _refuse_conflicts(fields, others)
        result = apply_strategic_patch(present, applied)
        kept = set(fields).union(*others.values())
        for path in managers.get(manager, {}):
            if path not in kept:
                result = _without_path(result, path)
        return result

    def remember(self, uid: str, applied: Json, *, manager: str) -> None:
        """Record that `manager` owns the fields of `applied` from now on."""
        fields = dict(_leaf_paths(applied))
        managers = self._applied.setdefault(uid, {})
        for name, theirs in managers.items():
            if name != manager:
                managers[name] = {
                    path: value
                    for path, value in theirs.items()
                    if fields.get(path, value) == value
                }
        managers[manager] = fields

    def forget(self, uid: str) -> None:
        """Drop the records of a deleted object."""
        self._applied.pop(uid, None)


def _refuse_conflicts(fields: dict[Path, Any], others: dict[str, dict[Path, Any]]) -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{name}"',
            "field": "." + ".".join(path),
        }
        for name, theirs in others.items()
        for path, value in fields.items()
        if path in theirs and theirs[path] != value
    ]
    if causes:
        word = "conflict" if len(causes) == 1 else "conflicts"
        listed = ", ".join(f"{each['message']}: {each['field']}" for each in causes)
        message = f"Apply failed with {len(causes)} {word}: {listed}"
        raise RequestError(409, "Conflict", message, details={"causes": causes})


def _leaf_paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if path in _IDENTITY:
        return
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaf_paths(item, (*path, name))
        return
    key = merge_key(path[-1], value) if isinstance(value, list) and value and path else None
    if key is None:
        yield path, value
        return
    for entry in value:
        yield from _leaf_paths(entry, (*path, f"[{key}={entry[key]}]"))


def _without_path(value: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if step.startswith("[") and isinstance(value, list):
        key, _, wanted = step[1:-1].partition("=")
        changed = [
            _without_path(entry, rest) if rest and str(entry.get(key)) == wanted else entry
            for entry in value
        ]
        return [entry for entry in changed if (entry and set(entry) != {key}) or entry in value]
    if not isinstance(value, dict) or step not in value:
        return value
    inner = _without_path(value[step], rest) if rest else None
    remaining = {name: item for name, item in value.items() if name != step}
    return remaining if inner in (None, {}, []) else {**remaining, step: inner}
