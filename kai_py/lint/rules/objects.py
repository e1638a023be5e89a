"""Rules on every object, whatever its kind: identity, scope, shapes."""

import re
from collections.abc import Iterator

from kai_py.api.model import NAME_PATTERN
from kai_py.api.numbers import shortened
from kai_py.api.problems import FieldPath
from kai_py.api.selectors import MAX_LABEL, is_label_key, is_label_value
from kai_py.lint.manifest import Finding, Manifest, mapping_at, set_key, walk

_CLUSTER_SCOPED = {
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceSlice"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("scheduling.kai.io", "Queue"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("", "Namespace"),
    ("", "Node"),
}
_NAMESPACED = {
    ("resource.k8s.io", "ResourceClaim"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
    ("", "Pod"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("grove.io", "PodCliqueSet"),
}
BUILT_IN = ("", "apps", "batch", "resource.k8s.io")
"""Groups whose fields are known; in other groups the same names may have other shapes."""
_MAPPINGS = ("metadata", "spec", "labels", "annotations", "template", "resources", "limits")
_LISTS = ("containers", "initContainers", "resourceClaims")
SHAPES = (*_MAPPINGS, *_LISTS)
"""Fields of which ``shapes`` says that they have another shape."""
_FREE_FORM = ("labels", "annotations", "matchLabels", "nodeSelector", "parameters", "data")
"""Mappings whose keys are the user's."""
_SELECTORS = (("nodeSelector",), ("matchLabels",))
_METADATA: tuple[FieldPath, ...] = (("metadata",), ("spec", "template", "metadata"))
_LABEL_FORM = f"letters, digits, '-', '_' and '.', at most {MAX_LABEL}"
_ANY_NAMES = "rbac.authorization.k8s.io"
"""The group whose objects may have any name that a path can have, as ``system:node``."""


def identity(manifest: Manifest) -> Iterator[Finding]:
    """An object has an API version, a kind and a name that the API accepts."""
    for key in ("apiVersion", "kind"):
        value = manifest.value.get(key)
        if not value:
            yield manifest.error((), f"has no {key}, so it is not an object of the API")
        elif not isinstance(value, str):
            yield manifest.error((key,), f"must be a string, is {value!r}")
    metadata = mapping_at(manifest.value, "metadata")
    name = metadata.get("name")
    if name is None and "generateName" not in metadata:
        yield manifest.error(("metadata",), "has no name")
    elif name is not None and not _is_name(name, manifest.group):
        message = f"{name!r} is not a valid name: lower-case letters, digits, '-' and '.' only"
        yield manifest.error(("metadata", "name"), message)


def _is_name(name: object, group: str) -> bool:
    if not isinstance(name, str):
        return False
    if group == _ANY_NAMES:
        return name not in (".", "..") and not {"/", "%"} & set(name)
    return re.match(NAME_PATTERN, name) is not None


def scope(manifest: Manifest) -> Iterator[Finding]:
    """A cluster-scoped object has no namespace; others land in the current one without."""
    kind = (manifest.group, manifest.kind)
    if kind in _CLUSTER_SCOPED and manifest.namespace:
        message = f"{manifest.kind} belongs to no namespace, the API drops this"
        yield manifest.error(("metadata", "namespace"), message, fixed=True)
        del manifest.value["metadata"]["namespace"]
    if kind in _NAMESPACED and not manifest.namespace:
        message = "names no namespace, so it goes to the current namespace of kubectl"
        yield manifest.hint(("metadata",), message)


def label_texts(manifest: Manifest) -> Iterator[Finding]:
    """Labels have keys and values that the API accepts."""
    for path in _METADATA:
        labels = mapping_at(manifest.value, *path, "labels")
        for key, value in labels.items():
            at = (*path, "labels", key)
            if not is_label_key(str(key)):
                message = f"{key!r} is not a valid key of a label: [PREFIX/]NAME, {_LABEL_FORM}"
                yield manifest.error(at, message)
            if isinstance(value, str) and not is_label_value(value):
                yield manifest.error(
                    at, f"{value!r} is not a valid value of a label: {_LABEL_FORM}"
                )


def text_values(manifest: Manifest) -> Iterator[Finding]:
    """Labels, annotations and what selects labels are texts; the API rejects 1 and true."""
    for path, values in walk(manifest.value):
        is_metadata = path[-2:-1] == ("metadata",) and path[-1] in ("labels", "annotations")
        is_text = is_metadata or path[-1:] in _SELECTORS
        if not is_text or any(part in _FREE_FORM for part in path[:-1]):
            continue
        for key, value in list(values.items()):
            if isinstance(value, bool | int | float):
                text = values.text_of(key)
                yield manifest.error((*path, key), f'must be a string: write "{text}"', fixed=True)
                set_key(values, key, text)


def shapes(manifest: Manifest) -> Iterator[Finding]:
    """Fields that are mappings or lists of mappings in the API are so in the manifest."""
    if manifest.group not in BUILT_IN:
        return
    for path, mapping in walk(manifest.value):
        if any(part in _FREE_FORM for part in path):
            continue
        for key, value in mapping.items():
            if key == "limits" and path[-1:] != ("resources",):
                continue  # those of a LimitRange are a list
            if key in _MAPPINGS and not isinstance(value, dict | None):
                message = f"must be a mapping of fields, is {described(value)}"
                yield manifest.error((*path, key), message)
            elif key in _LISTS or (*path[-1:], key) == ("devices", "requests"):
                yield from _items(manifest, value, (*path, key))


def _items(manifest: Manifest, items: object, path: FieldPath) -> Iterator[Finding]:
    if not isinstance(items, list):
        # A single mapping is corrected where its list is.
        if not isinstance(items, dict | None):
            yield manifest.error(path, f"must be a list, is {described(items)}")
        return
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"must be a mapping of fields, is {described(item)}"
            yield manifest.error((*path, index), message)


def described(value: object) -> str:
    """What a field is that should be something else: ``a list``, ``'text'``, ``true``."""
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(shortened(value)) if isinstance(value, str) else shortened(str(value).lower())
