"""Workloads that others create from a template, such as the Job of a CronJob.

The Job of a CronJob that was never applied is added, under the name of the CronJob, as if it had
come at the time of the objects. Of other kinds it is only said which gang the workload would be.

Source: batch/v1; batch.volcano.sh/v1alpha1, flow.volcano.sh/v1alpha1; ray.io/v1;
sparkoperator.k8s.io/v1beta2.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kai_py.api.records.unstructured import mapping_at
from kai_py.embedded.documents import owners_of
from kai_py.grouping.owner_chain import GroupKind
from kai_py.simulate.files.object_files import ObjectKey
from kai_py.simulate.files.objects import Document

CRON_JOB = GroupKind("batch", "CronJob")
VOLCANO_JOB = ("batch.volcano.sh/v1alpha1", "Job")


class _Template(NamedTuple):
    """Where the spec of what is created stands, and its labels and annotations, if anywhere."""

    api_version: str
    kind: str
    spec: str
    metadata: str = ""


TEMPLATES: Mapping[GroupKind, _Template] = {
    CRON_JOB: _Template("batch/v1", "Job", "spec.jobTemplate.spec", "spec.jobTemplate.metadata"),
    GroupKind("batch.volcano.sh", "CronJob"): _Template(
        *VOLCANO_JOB, "spec.jobTemplate.spec", "spec.jobTemplate.metadata"
    ),
    GroupKind("flow.volcano.sh", "JobTemplate"): _Template(*VOLCANO_JOB, "spec"),
    GroupKind("ray.io", "RayCronJob"): _Template("ray.io/v1", "RayJob", "spec.jobTemplate"),
    GroupKind("sparkoperator.k8s.io", "ScheduledSparkApplication"): _Template(
        "sparkoperator.k8s.io/v1beta2", "SparkApplication", "spec.template"
    ),
}


def created_workload(key: ObjectKey, document: Document) -> Document | None:
    """What an object creates, named and annotated like it; None if it has no template."""
    template = TEMPLATES.get(GroupKind(key.group, key.kind))
    spec = mapping_at(document, template.spec) if template else {}
    if template is None or not spec:
        return None
    own = document["metadata"]
    written = mapping_at(document, template.metadata) if template.metadata else {}
    merged = {
        field: {**_mapping(own, field), **_mapping(written, field)}
        for field in ("labels", "annotations")
    }
    metadata = {"name": key.name, "namespace": key.namespace, **merged}
    return {
        "apiVersion": template.api_version,
        "kind": template.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _mapping(metadata: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = metadata.get(field)
    return found if isinstance(found, dict) else {}


def add_jobs_of_cron_jobs(found: dict[ObjectKey, Document]) -> None:
    """Add the Job of each CronJob that was never applied, is not suspended and owns none."""
    owners = {
        (key.namespace, each.get("name"))
        for key, document in found.items()
        for each in owners_of(document)
        if isinstance(each, dict) and each.get("kind") == CRON_JOB.kind
    }
    for key, document in list(found.items()):
        if key[:2] != CRON_JOB or document["metadata"].get("uid"):
            continue
        made = created_workload(key, document)
        job = key._replace(kind="Job")
        is_suspended = mapping_at(document, "spec").get("suspend")
        if made is None or is_suspended or job in found or (key.namespace, key.name) in owners:
            continue
        owner = {
            "apiVersion": document["apiVersion"],
            "kind": CRON_JOB.kind,
            "name": key.name,
            "controller": True,
        }
        found[job] = {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}
