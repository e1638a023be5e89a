"""Patch formats of the API, chosen by content type.

JSON patch (RFC 6902): a list of operations on JSON pointers; all succeed or none does. JSON merge
patch (RFC 7396): objects merge, null removes, everything else replaces.

Strategic merge patch: a merge patch that knows which lists are maps. A list named in `MERGE_KEYS`
is merged entry by entry on its key; `finalizers` is merged as a set; any other list is replaced
whole. Understood directives: `$patch: delete|replace|merge`, `$retainKeys`,
`$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.

Server-side apply, in a simple form: the fields of one manager's last apply are remembered (not
shown as managedFields). A new apply merges its fields, removes those that the same manager applied
before and no longer mentions, and conflicts where another manager applied a different value, unless
forced. Fields written by other means than apply have no owner here and are overwritten without a
conflict.

Source of strategic merge patch: kubernetes/community,
contributors/devel/sig-api-machinery/strategic-merge-patch.md, and the `patchMergeKey` tags of
k8s.io/api.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kai_py.embedded.documents import Json, clone
from kai_py.embedded.errors import RequestError, bad_request


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` changed by `patch`, sharing what did not change."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_json_patch(target: Any, operations: Sequence[Json]) -> Any:
    """A changed copy of `target`; raises RequestError 422 if an operation does not apply."""
    box = {"": clone(target)}
    for operation in operations:
        try:
            _apply(box, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            text = f"the server rejected our request due to an error in our request: {operation}"
            raise RequestError(422, "Invalid", text) from error
    return box[""]


def _apply(box: Json, operation: Json) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(box, path, clone(operation["value"]))
        case "remove":
            _remove(box, path)
        case "replace":
            _get(box, path)
            _set(box, path, clone(operation["value"]))
        case "test":
            if _get(box, path) != operation["value"]:
                raise ValueError(f"test of {path} failed")
        case "copy":
            _add(box, path, clone(_get(box, operation["from"])))
        case "move":
            value = _get(box, operation["from"])
            _remove(box, operation["from"])
            _add(box, path, value)
        case unknown:
            raise bad_request(f'unknown JSON patch operation "{unknown}"')


def _parent(box: Json, pointer: str) -> tuple[Any, str]:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    holder: Any = box
    for part in parts[:-1]:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    return holder, parts[-1]


def _get(box: Json, pointer: str) -> Any:
    holder, last = _parent(box, pointer)
    return holder[int(last)] if isinstance(holder, list) else holder[last]


def _set(box: Json, pointer: str, value: Any) -> None:
    holder, last = _parent(box, pointer)
    if isinstance(holder, list):
        holder[int(last)] = value
    else:
        holder[last] = value


def _add(box: Json, pointer: str, value: Any) -> None:
    holder, last = _parent(box, pointer)
    if not isinstance(holder, list):
        holder[last] = value
        return
    index = len(holder) if last == "-" else int(last)
    if not 0 <= index <= len(holder):
        raise IndexError(pointer)
    holder.insert(index, value)


def _remove(box: Json, pointer: str) -> None:
    holder, last = _parent(box, pointer)
    if isinstance(holder, list):
        del holder[int(last)]
    else:
        del holder[last]


MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "reservedFor": ("uid",),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Key of the entries by list field; of several the first that an entry has is used."""

SETS = frozenset({"finalizers"})
"""Lists of texts that are merged as sets."""

_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def apply_strategic_patch(target: Any, patch: Json) -> Json:
    """Return `target` changed by `patch`, sharing what did not change."""
    base = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    retained = patch.get("$retainKeys")
    if retained is not None:
        base = {key: value for key, value in base.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            name = key.removeprefix(_DELETE_PRIMITIVES)
            base[name] = [item for item in base.get(name) or [] if item not in value]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if name not in patch and base.get(name):
                base[name] = _merge_list(name, base[name], [], value)
        elif not key.startswith("$"):
            _merge_field(base, key, value, patch.get(_ORDER + key) or [])
    return base


def merge_key(name: str, entries: Sequence[Any]) -> str | None:
    """The key of the entries of list `name`, None if the list is replaced as a whole."""
    for key in MERGE_KEYS.get(name, ()):
        if all(isinstance(entry, dict) and key in entry for entry in entries):
            return key
    return None


def _merge_field(base: Json, key: str, value: Any, order: list[Any]) -> None:
    if value is None:
        base.pop(key, None)
    elif isinstance(value, dict):
        if value.get("$patch") == "delete":
            base.pop(key, None)
        else:
            base[key] = apply_strategic_patch(base.get(key), value)
    elif isinstance(value, list):
        base[key] = _merge_list(key, base.get(key) or [], value, order)
    else:
        base[key] = value


def _merge_list(name: str, present: list[Any], patch: list[Any], order: list[Any]) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    key = None if name in SETS else merge_key(name, [*present, *patch])
    if key is None and name not in SETS:
        if any(isinstance(item, dict) and "$patch" in item for item in patch):
            raise bad_request(f"list {name} has no merge key, $patch cannot be used in it")
        return patch

    def mark(item: Any) -> Any:
        return item[key] if key else item

    merged = {mark(item): item for item in present}
    for item in patch:
        if key and item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[mark(item)] = apply_strategic_patch(merged.get(item[key]), item) if key else item
    wanted = [mark(item) for item in order or patch]
    marks = _merged_order(merged, [mark(item) for item in present], wanted)
    return [merged[each] for each in marks]


def _merged_order(merged: Json, present: list[Any], patch: list[Any]) -> list[Any]:
    """Order the keys of a merged list as the API server does.

    Patch entries keep their order among themselves and so do the others; an entry of the server
    comes first only where both were present before and it was in front.
    """
    position = {mark: index for index, mark in enumerate(present)}
    patched = dict.fromkeys(patch)
    theirs = [mark for mark in patched if mark in merged]
    ours = [mark for mark in present if mark in merged and mark not in patched]
    ordered: list[Any] = []
    while ours and theirs:
        server_first = theirs[0] in position and position[ours[0]] < position[theirs[0]]
        ordered.append((ours if server_first else theirs).pop(0))
    return ordered + ours + theirs


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
