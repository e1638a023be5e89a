"""JSON patch (RFC 6902): a list of operations on JSON pointers; all succeed or none does.

JSON merge patch (RFC 7396): objects merge, null removes, everything else replaces.
"""

from collections.abc import Sequence
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
