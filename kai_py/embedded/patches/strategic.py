"""Strategic merge patch: a merge patch that knows which lists are maps.

A list named in `MERGE_KEYS` is merged entry by entry on its key; `finalizers` is merged as a set;
any other list is replaced whole. Understood directives: `$patch: delete|replace|merge`,
`$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`. Source:
kubernetes/community, contributors/devel/sig-api-machinery/strategic-merge-patch.md, and the
`patchMergeKey` tags of k8s.io/api.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kai_py.embedded.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_py.embedded.documents import Json

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
"""List field -> the key of its entries; of several the first that an entry carries counts."""

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
        if not key.startswith("$"):
            _merge_field(base, key, value)
    _apply_list_directives(base, patch)
    return base


def merge_key(name: str, entries: Sequence[Any]) -> str | None:
    """Return the key by which the entries of list `name` are told apart, None if replaced whole."""
    for key in MERGE_KEYS.get(name, ()):
        if all(isinstance(entry, dict) and key in entry for entry in entries):
            return key
    return None


def _merge_field(base: Json, key: str, value: Any) -> None:
    if value is None:
        base.pop(key, None)
    elif isinstance(value, dict):
        if value.get("$patch") == "delete":
            base.pop(key, None)
        else:
            base[key] = apply_strategic_patch(base.get(key), value)
    elif isinstance(value, list):
        base[key] = _merge_list(key, base.get(key) or [], value)
    else:
        base[key] = value


def _merge_list(name: str, present: list[Any], patch: list[Any]) -> list[Any]:
    if name in SETS:
        return present + [item for item in patch if item not in present]
    if {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    key = merge_key(name, [*present, *patch])
    if key is None:
        if any(isinstance(item, dict) and "$patch" in item for item in patch):
            raise bad_request(f"map: list {name} has no merge key, $patch cannot be used in it")
        return patch
    merged = {entry[key]: entry for entry in present}
    for entry in patch:
        if entry.get("$patch") == "delete":
            merged.pop(entry[key], None)
        else:
            merged[entry[key]] = apply_strategic_patch(merged.get(entry[key]), entry)
    return list(merged.values())


def _apply_list_directives(base: Json, patch: Json) -> None:
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            name = key.removeprefix(_DELETE_PRIMITIVES)
            base[name] = [item for item in base.get(name) or [] if item not in value]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if base.get(name):
                base[name] = _ordered(name, base[name], value)


def _ordered(name: str, present: list[Any], order: list[Any]) -> list[Any]:
    key = merge_key(name, order)
    wanted = [entry[key] if key else entry for entry in order]
    position = {item: index for index, item in enumerate(wanted)}

    def rank(entry: Any) -> int:
        return position.get(entry[key] if key else entry, len(position))

    return sorted(present, key=rank)
