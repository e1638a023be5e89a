"""Strategic merge patch: a merge patch that knows which lists are maps.

A list named in `MERGE_KEYS` is merged entry by entry on its key; `finalizers` is merged as a set;
any other list is replaced whole. Understood directives: `$patch: delete|replace|merge`,
`$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`. Source:
kubernetes/community, contributors/devel/sig-api-machinery/strategic-merge-patch.md, and the
`patchMergeKey` tags of k8s.io/api.
"""

from collections.abc import Sequence
from typing import Any

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import bad_request

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
    theirs = [mark for mark in dict.fromkeys(patch) if mark in merged]
    ours = [mark for mark in present if mark in merged and mark not in theirs]
    ordered: list[Any] = []
    while ours and theirs:
        server_first = theirs[0] in position and position[ours[0]] < position[theirs[0]]
        ordered.append((ours if server_first else theirs).pop(0))
    return ordered + ours + theirs
