"""Records of objects of which some fields cannot be read: what they hold must still be counted.

A pod on a node takes capacity of it whether or not we understand its tolerations. So a field that
cannot be decoded is left out, the next one is looked for, and the record says which are missing
(``ObjectMeta.unreadable``): readers take the worst of what these fields could have said.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, Pod

MAX_UNREADABLE = 64
"""Fields that are left out at most; each costs another attempt."""

_PATH = re.compile(r"`\$\.?([^`]*)`$")
_STEP = re.compile(r"[^.\[\]]+")
_REQUESTS = re.compile(
    r"spec|spec\.(overhead|resources)\b.*"
    r"|spec\.(containers|initContainers)(\[\d+\])?(\.(resources\b.*|restartPolicy))?"
)


T = TypeVar("T")


def read_partly(
    decode: Callable[[bytes | msgspec.Raw], T], data: bytes | msgspec.Raw
) -> tuple[T, dict[str, Any]] | None:
    """An object without the fields that cannot be read: its record, and its document.

    None if that leaves none.
    """
    document, unreadable = msgspec.json.decode(data), list[str]()
    while len(unreadable) < MAX_UNREADABLE:
        try:
            record = decode(msgspec.json.encode(document))
        except msgspec.ValidationError as error:
            path = _remove(document, str(error))
            if not path:
                return None
            unreadable.append(path)
        else:
            return with_unreadable(record, tuple(unreadable)), document
    return None


def unreadable_fields(metadata: ObjectMeta) -> str:
    """The fields that could not be read, as a sentence; "" if all could."""
    return f"{', '.join(metadata.unreadable)} cannot be read" if metadata.unreadable else ""


def has_unreadable_requests(pod: Pod) -> bool:
    """Whether it is unknown what the pod requests."""
    return any(_REQUESTS.fullmatch(path) for path in pod.metadata.unreadable)


def with_unreadable(record: T, unreadable: tuple[str, ...]) -> T:
    """The record of an object of which these fields could not be read."""
    described = cast("Pod", record)
    metadata = replace(described.metadata, unreadable=unreadable)
    return cast("T", replace(described, metadata=metadata))


def _remove(document: Any, error: str) -> str:
    """Remove the field that the error names; its path, or "" where nothing would be left."""
    found = _PATH.search(error)
    # The error does not say which entry of a map is wrong, so the whole map goes.
    path = found.group(1).partition("[...]")[0] if found else ""
    steps: list[str | int] = [int(s) if s.isdigit() else s for s in _STEP.findall(path)]
    if not steps or steps == ["metadata"]:
        return ""
    parent = document
    for step in steps[:-1]:
        parent = parent[step]
    del parent[steps[-1]]
    return path
