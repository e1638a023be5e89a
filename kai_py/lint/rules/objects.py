"""Is it an object at all? What every object needs, whatever its kind."""

import re
from collections.abc import Iterator

from kai_py.api.model import NAME_PATTERN
from kai_py.lint.finding import Finding
from kai_py.lint.manifest import File, Manifest, mapping_at, put

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


def identity(manifest: Manifest, file: File) -> Iterator[Finding]:
    """An object has an API version, a kind and a name that the API accepts."""
    del file
    for key in ("apiVersion", "kind"):
        if not manifest.value.get(key):
            yield manifest.error((), f"has no {key}, so it is no object of the API")
    metadata = mapping_at(manifest.value, "metadata")
    name = metadata.get("name")
    if name is None and "generateName" not in metadata:
        yield manifest.error(("metadata",), "has no name")
    elif name is not None and not (isinstance(name, str) and re.match(NAME_PATTERN, name)):
        message = f"{name!r} is no name: lower-case letters, digits, '-' and '.' only"
        yield manifest.error(("metadata", "name"), message)


def scope(manifest: Manifest, file: File) -> Iterator[Finding]:
    """A cluster-scoped object has no namespace; others land in the current one without."""
    del file
    kind = (manifest.group, manifest.kind)
    if kind in _CLUSTER_SCOPED and manifest.namespace:
        message = f"{manifest.kind} belongs to no namespace, the API drops this"
        yield manifest.error(("metadata", "namespace"), message, fixed=True)
        del manifest.value["metadata"]["namespace"]
    if kind in _NAMESPACED and not manifest.namespace:
        message = "names no namespace, so it lands in the one kubectl happens to use"
        yield manifest.hint(("metadata",), message)


def text_values(manifest: Manifest, file: File) -> Iterator[Finding]:
    """Labels and annotations are texts; the API rejects a bare number or true."""
    del file
    for path in (("metadata",), ("spec", "template", "metadata")):
        for kind in ("labels", "annotations"):
            values = mapping_at(manifest.value, *path, kind)
            for key, value in list(values.items()):
                if isinstance(value, bool | int | float):
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    message = f'must be a text: write "{text}"'
                    yield manifest.error((*path, kind, key), message, fixed=True)
                    put(values, key, text)
