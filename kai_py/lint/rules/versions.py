"""Rule on API versions that Kubernetes 1.36 does not serve by default."""

from collections.abc import Iterator

from kai_py.lint.finding import Finding
from kai_py.lint.manifest import RESOURCE_GROUP, Manifest, ManifestSet

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


def served_version(manifest: Manifest, manifests: ManifestSet) -> Iterator[Finding]:
    """Replace a version that is not served; runs last, once the fields have the new shape."""
    del manifests
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
