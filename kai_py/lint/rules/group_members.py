"""Rule on pods that name their group: the subgroup that they name is a leaf of it.

Groups are those among the manifests, in any scheduler's API; others are unknown.
"""

import contextlib
from collections.abc import Iterator
from functools import partial

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.api.records.core import Pod
from kai_py.api.records.decoding import convert_record
from kai_py.api.records.kai import KaiPodGroup
from kai_py.api.records.unstructured import unstructured
from kai_py.dialects.kai.pod_groups import POD_GROUP_COLLECTION
from kai_py.grouping.owner_chain import KnownOwners
from kai_py.lint.manifest import Finding, Manifest, ManifestSet, mapping_at, walk
from kai_py.lint.rules.references import DEFAULT_NAMESPACE
from kai_py.lint.rules.workloads import grouping


def subgroups(manifest: Manifest, manifests: ManifestSet) -> Iterator[Finding]:
    """A pod that names a group among the manifests names a subgroup that this group has."""
    groups = KnownOwners(find_named=partial(_group, manifests))
    for path, template in _templates(manifest):
        metadata = mapping_at(template, "metadata")
        marks = {key: metadata.get(key) or {} for key in ("labels", "annotations")}
        named = {"name": manifest.name, "namespace": manifest.namespace or DEFAULT_NAMESPACE}
        group = mapping_at(template, "spec").get("schedulingGroup")
        value = {"metadata": named | marks, "spec": {"schedulingGroup": group} if group else {}}
        with contextlib.suppress(ValueError):  # values of other types are reported elsewhere
            found = grouping().identify(convert_record(value, Pod), groups)
            if found.pod_problem:
                yield manifest.error(
                    (*path, "metadata"), f"{found.pod_problem}; the pod stays pending until then"
                )


def _templates(manifest: Manifest) -> Iterator[tuple[FieldPath, LineMapping]]:
    """The pod itself, or the templates of pods below the object."""
    for path, value in walk(manifest.value):
        if isinstance(mapping_at(value, "spec").get("containers"), list):
            yield path, value


def _group(manifests: ManifestSet, collection: str, namespace: str, name: str) -> object | None:
    plural, _, group = collection.partition(".")
    for each in manifests.manifests:
        if (
            (each.group, each.name) == (group, name)
            and f"{each.kind.lower()}s" == plural
            and namespace in ("", each.namespace or DEFAULT_NAMESPACE)
        ):
            return _record(each, collection, namespace)
    return None


def _record(manifest: Manifest, collection: str, namespace: str) -> object:
    metadata = {**mapping_at(manifest.value, "metadata"), "namespace": namespace}
    value = {**manifest.value, "metadata": metadata}
    if collection == POD_GROUP_COLLECTION:
        return convert_record(value, KaiPodGroup)
    return unstructured(value, ("spec", "status"))
