"""Rules on references to other objects, and on API versions that are not served.

They refer to classes, claims and templates, and pods to subgroups of their group, in any
scheduler's API. Objects outside the manifests are unknown. Versions served are those of Kubernetes
1.36 by default.
"""

import contextlib
from collections.abc import Iterator
from functools import partial

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.api.records.core import Pod
from kai_py.api.records.kai import KaiPodGroup
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import unstructured
from kai_py.dialects.kai.group_trees import POD_GROUP_COLLECTION
from kai_py.grouping.owner_chain import KnownOwners
from kai_py.lint.cel.published import DRIVER_OF_CLASS
from kai_py.lint.manifest import (
    RESOURCE_GROUP,
    Finding,
    Manifest,
    mapping_at,
    mappings_at,
    text_at,
    walk,
)
from kai_py.lint.rules.claims import spec_path
from kai_py.lint.rules.workloads import grouping, pod_specs

_KINDS = {
    "resourceClaimName": "ResourceClaim",
    "resourceClaimTemplateName": "ResourceClaimTemplate",
}
_OTHER_SOURCE = {
    "ResourceClaim": "resourceClaimTemplateName",
    "ResourceClaimTemplate": "resourceClaimName",
}
_COMPUTE_DOMAIN = ("resource.nvidia.com", "ComputeDomain")
"""Its controller creates the ResourceClaimTemplate that it names, in its namespace."""
DEFAULT_NAMESPACE = "default"
"""The current namespace of kubectl, unless it was changed."""
_DEFAULT_NAMESPACES = (DEFAULT_NAMESPACE, "kube-system", "kube-public", "kube-node-lease")


def classes_exist(manifest: Manifest) -> Iterator[Finding]:
    """A DeviceClass that neither the manifests nor a known driver bring must exist already."""
    path = spec_path(manifest)
    if path is None:
        return
    known = {found.name for found in manifest.all_of(RESOURCE_GROUP, "DeviceClass")} | set(
        DRIVER_OF_CLASS
    )
    path = (*path, "devices", "requests")
    for index, request in mappings_at(manifest.value, *path):
        options = [
            ((*path, index, "exactly"), mapping_at(request, "exactly")),
            *(
                ((*path, index, "firstAvailable", number), entry)
                for number, entry in mappings_at(request, "firstAvailable")
            ),
        ]
        for option_path, fields in options:
            name = text_at(fields, "deviceClassName")
            if name and name not in known:
                message = (
                    f"DeviceClass {name} is not among these manifests: it must exist in the cluster"
                )
                yield manifest.hint((*option_path, "deviceClassName"), message)


def claims_exist(manifest: Manifest) -> Iterator[Finding]:
    """A pod's claim or template must be in the pod's namespace, and of the right kind."""
    for path, spec in pod_specs(manifest):
        for index, claim in mappings_at(spec, "resourceClaims"):
            for key, kind in _KINDS.items():
                name = text_at(claim, key)
                if name:
                    claim_path = (*path, "resourceClaims", index, key)
                    yield from _exists(manifest, kind, name, claim_path)


def namespaces_exist(manifest: Manifest) -> Iterator[Finding]:
    """A namespace must exist before its objects; reported once, at its first object."""
    name = manifest.namespace
    if not name or name in _DEFAULT_NAMESPACES:
        return
    namespaces = {found.name for found in manifest.all_of("", "Namespace")}
    first = next(other for other in manifest.together if other.namespace == name)
    if first is manifest and name not in namespaces:
        message = f"namespace {name} is not among these manifests: kubectl create namespace {name}"
        yield manifest.hint(("metadata", "namespace"), message)


def _exists(
    manifest: Manifest, kind: str, name: str, path: tuple[str | int, ...]
) -> Iterator[Finding]:
    sources = manifest.all_of(RESOURCE_GROUP, *_OTHER_SOURCE)
    found = [other for other in sources if other.name == name]
    of_kind = [other for other in found if other.kind == kind]
    if kind == "ResourceClaimTemplate":
        domains = manifest.all_of(*_COMPUTE_DOMAIN)
        of_kind += [each for each in domains if _template_of(each) == name]
    own_namespace = manifest.namespace or DEFAULT_NAMESPACE
    if any((other.namespace or DEFAULT_NAMESPACE) == own_namespace for other in of_kind):
        return
    if of_kind:
        namespace = of_kind[0].namespace or "(none)"
        own = manifest.namespace or "(none)"
        message = (
            f"{kind} {name} is in namespace {namespace}, the pod in {own}; they must be in one"
        )
        yield manifest.error(path, message)
    elif found:
        yield manifest.error(path, f"{name} is a {found[0].kind}: write {_OTHER_SOURCE[kind]}")
    else:
        message = f"{kind} {name} is not among these manifests: pods stay pending until it exists"
        yield manifest.hint(path, message)


def _template_of(compute_domain: Manifest) -> str:
    return text_at(compute_domain.value, "spec", "channel", "resourceClaimTemplate", "name")


_MOVED = {
    ("extensions/v1beta1", "Deployment"): "apps/v1",
    ("extensions/v1beta1", "DaemonSet"): "apps/v1",
    ("extensions/v1beta1", "ReplicaSet"): "apps/v1",
    ("apps/v1beta1", "Deployment"): "apps/v1",
    ("apps/v1beta1", "StatefulSet"): "apps/v1",
    ("apps/v1beta2", "Deployment"): "apps/v1",
    ("apps/v1beta2", "StatefulSet"): "apps/v1",
    ("apps/v1beta2", "DaemonSet"): "apps/v1",
    ("apps/v1beta2", "ReplicaSet"): "apps/v1",
    ("batch/v1beta1", "CronJob"): "batch/v1",
    ("v1", "Job"): "batch/v1",
    ("v1", "Deployment"): "apps/v1",
    ("apps/v1", "Job"): "batch/v1",
    ("batch/v1", "Deployment"): "apps/v1",
    ("policy/v1beta1", "PodDisruptionBudget"): "policy/v1",
    ("scheduling.k8s.io/v1beta1", "PriorityClass"): "scheduling.k8s.io/v1",
}
_RESOURCE_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_NOT_CONVERTIBLE = ("v1alpha1", "v1alpha2")


def served_version(manifest: Manifest) -> Iterator[Finding]:
    """Replace a version that is not served; runs last, once the fields have the new shape."""
    written, kind = manifest.api_version, manifest.kind
    version = written.rpartition("/")[2]
    target = _MOVED.get((written, kind))
    if manifest.group == RESOURCE_GROUP and kind in _RESOURCE_KINDS and version != "v1":
        if version in _NOT_CONVERTIBLE or (kind == "ResourceSlice" and version != "v1beta2"):
            message = f"{written} was removed and its fields differ: rewrite {kind} for v1"
            yield manifest.error(("apiVersion",), message)
            return
        target = f"{RESOURCE_GROUP}/v1"
    if target:
        yield manifest.error(
            ("apiVersion",),
            f"Kubernetes does not serve {written} {kind} by default: write {target}",
            fixed=True,
        )
        manifest.value["apiVersion"] = target


def subgroups_exist(manifest: Manifest) -> Iterator[Finding]:
    """A pod that names a group among the manifests names a subgroup that this group has."""
    groups = KnownOwners(find_named=partial(_group, manifest))
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


def _group(manifest: Manifest, collection: str, namespace: str, name: str) -> object | None:
    plural, _, group = collection.partition(".")
    for each in manifest.together:
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
