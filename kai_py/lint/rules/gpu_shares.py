"""Rules on the annotations that ask for parts of GPUs."""

from collections.abc import Iterator

import msgspec

from kai_py.api.gpu_share import SHARE_KEYS, GpuShareError, gpu_share
from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.api.records.core import Pod
from kai_py.api.records.decoding import convert_record
from kai_py.lint.finding import Finding
from kai_py.lint.manifest import Manifest, ManifestSet, mapping_at, move, set_key
from kai_py.lint.rules.workloads import pod_specs

_COPYING_NOTHING = ("apps", "batch")
"""Groups whose workloads do not pass their own annotations on to their pods."""


def gpu_shares(manifest: Manifest, manifests: ManifestSet) -> Iterator[Finding]:
    """Parts of GPUs are requested by annotations of the pod, with values that are valid."""
    del manifests
    for spec_path, spec in pod_specs(manifest):
        if spec_path[-1] != "spec":
            continue
        path = (*spec_path[:-1], "metadata")
        metadata = mapping_at(manifest.value, *path)
        yield from _as_labels(manifest, metadata, path)
        yield from _values(manifest, metadata, path, spec)
    if manifest.group in _COPYING_NOTHING:
        yield from _above_the_pods(manifest)


def _as_labels(manifest: Manifest, metadata: LineMapping, path: FieldPath) -> Iterator[Finding]:
    labels = mapping_at(metadata, "labels")
    for key in [key for key in labels if key in SHARE_KEYS]:
        message = f"{key} is an annotation; as a label it is ignored"
        yield manifest.error((*path, "labels", key), message, fixed=True)
        if "annotations" not in metadata:
            set_key(metadata, "annotations", LineMapping(metadata.line))
        move(labels, metadata["annotations"], key)
    if "labels" in metadata and not metadata["labels"]:
        del metadata["labels"]


def _values(
    manifest: Manifest, metadata: LineMapping, path: FieldPath, spec: LineMapping
) -> Iterator[Finding]:
    annotations = mapping_at(metadata, "annotations")
    asked = [key for key in annotations if key in SHARE_KEYS]
    if not asked:
        return
    try:
        gpu_share(convert_record({"metadata": {"annotations": annotations}, "spec": spec}, Pod))
    except GpuShareError as error:
        named = next((key for key in asked if f" {key}:" in str(error)), asked[0])
        message = str(error).removeprefix(f"annotation {named}: ")
        yield manifest.error((*path, "annotations", named), message)
    except msgspec.ValidationError:
        return  # Other rules tell which value is of another type.


def _above_the_pods(manifest: Manifest) -> Iterator[Finding]:
    for field in ("annotations", "labels"):
        for key in mapping_at(manifest.value, "metadata", field):
            if key in SHARE_KEYS:
                message = f"{key} is ignored here: write it among the annotations of the pods"
                yield manifest.error(("metadata", field, key), message)
