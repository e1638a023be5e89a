"""Rules on workloads: kinds with a pod template, and what each requires.

Jobs that fail if all of their pods are evicted are suspended by the scheduler instead.
"""

from collections.abc import Iterator
from functools import cache

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.api.records.job import Job
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import unstructured
from kai_py.dialects.grouping import KaiGrouping
from kai_py.dialects.kai.workloads import KaiQueueNaming
from kai_py.grouping.owner_chain import GroupKind, OwnerObject
from kai_py.grouping.rule_table import shipped_table
from kai_py.grouping.workload_gang import first_template, gang_of_workload
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    at,
    mapping_at,
    mapping_at_line,
    mappings_at,
    move,
    set_key,
    walk,
)

TEMPLATES: dict[tuple[str, str], FieldPath] = {
    ("", "Pod"): (),
    ("", "ReplicationController"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
}
"""Path of the pod template (metadata and spec) by kind."""
DEFAULT_SCHEDULER = "kai-scheduler"
DEFAULT_BACKOFF_LIMIT = 6
DISRUPTION_TARGET = "DisruptionTarget"
_SELECTOR_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
_POD_FIELDS = ("schedulerName", "resourceClaims", "containers", "restartPolicy", "nodeSelector")


def template_path(manifest: Manifest) -> FieldPath | None:
    """Path of the pod template of a built-in kind, else None."""
    group = manifest.group if manifest.group != "extensions" else "apps"
    return TEMPLATES.get((group, manifest.kind))


def pod_specs(manifest: Manifest) -> list[tuple[FieldPath, LineMapping]]:
    """Every pod spec in an object of any kind: each mapping with containers."""
    found = walk(mapping_at(manifest.value, "spec"), ("spec",))
    return [(path, spec) for path, spec in found if isinstance(spec.get("containers"), list)]


def misplaced_pod_fields(manifest: Manifest) -> Iterator[Finding]:
    """Fields of the pod are in the pod's spec, not in the workload's."""
    path = template_path(manifest)
    if not path:
        return
    spec, template = mapping_at(manifest.value, *path[:-1]), mapping_at(manifest.value, *path)
    pod = mapping_at(template, "spec")
    for key in _POD_FIELDS:
        if key in spec and pod:
            message = f"a {manifest.kind} has no {key}; it belongs to the pod, under template.spec"
            if key in pod:
                message = f"{message}, which has one"
            yield manifest.error((*path[:-1], key), message, fixed=True)
            if key in pod:
                del spec[key]
            else:
                move(spec, pod, key)


def restart_policy(manifest: Manifest) -> Iterator[Finding]:
    """A Job's pods restart OnFailure or Never; pods of other workloads Always."""
    path = template_path(manifest)
    if not path:
        return
    path = (*path, "spec")
    pod = mapping_at(manifest.value, *path)
    policy = pod.get("restartPolicy")
    is_job = manifest.kind in ("Job", "CronJob")
    if not pod or policy in (("OnFailure", "Never") if is_job else (None, "Always")):
        return
    expected = "OnFailure" if is_job else "Always"
    found = "is missing" if policy is None else f"{policy} is not allowed"
    policy_path = path if policy is None else (*path, "restartPolicy")
    message = f"restartPolicy {found} in a {manifest.kind}: write {expected}"
    yield manifest.error(policy_path, message, fixed=True)
    set_key(pod, "restartPolicy", expected)


def selector(manifest: Manifest) -> Iterator[Finding]:
    """A workload that selects its pods must select those of its own template."""
    if manifest.kind not in _SELECTOR_KINDS or not template_path(manifest):
        return
    spec = mapping_at(manifest.value, "spec")
    labels = mapping_at(spec, "template", "metadata", "labels")
    match_labels = mapping_at(spec, "selector", "matchLabels")
    if "selector" not in spec and labels:
        message = "has no selector: write matchLabels with the labels of its pods"
        yield manifest.error(("spec",), message, fixed=True)
        set_key(
            spec,
            "selector",
            mapping_at_line(spec.line, matchLabels=mapping_at_line(spec.line, **labels)),
        )
    for key, value in match_labels.items():
        if labels.get(key) != value:
            message = f"{key}={value} is not a label of the pods in template.metadata.labels"
            yield manifest.error(("spec", "selector", "matchLabels", key), message)


def gang(manifest: Manifest) -> Iterator[Finding]:
    """The pods of a workload are a gang that can start."""
    kind = GroupKind(manifest.group, manifest.kind)
    if not is_grouped(manifest) or not manifest.name:
        return
    try:
        found = gang_of_workload(
            manifest.api_version,
            manifest.kind,
            _owner(manifest, kind),
            grouping().identify,
            first_template(manifest.value.get("spec")),
        )
    except ValueError as error:
        yield manifest.error(("spec",), str(error))
        return
    if found is None:
        return
    for marker in found.ignored_markers:
        yield manifest.hint(("metadata",), f"has no effect where it stands: {marker}")
    if found.problem:
        yield manifest.error(("spec",), found.problem)


def is_grouped(manifest: Manifest) -> bool:
    """Whether a rule says how pods below objects of its kind are grouped."""
    return GroupKind(manifest.group, manifest.kind) in shipped_table().kinds()


def _owner(manifest: Manifest, kind: GroupKind) -> OwnerObject:
    """The workload as the scheduler reads it; raises ValueError where it cannot."""
    if kind == GroupKind("batch", "Job"):
        return convert_record(manifest.value, Job)
    return unstructured(manifest.value, shipped_table().paths(kind))


@cache
def grouping() -> KaiGrouping:
    """The shipped rules and all dialects."""
    return KaiGrouping(shipped_table(), KaiQueueNaming())


def survives_eviction(manifest: Manifest) -> Iterator[Finding]:
    """A Job whose pods are scheduled by us has a podFailurePolicy that ignores evictions."""
    for path, spec in _job_specs(manifest):
        pod = mapping_at(spec, "template", "spec")
        pods = _pods(spec)
        limit = spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
        ours = pod.get("schedulerName") == DEFAULT_SCHEDULER
        if not ours or not isinstance(limit, int) or pods <= limit or _ignores_evictions(spec):
            continue
        never = pod.get("restartPolicy") == "Never"
        able = never and "podFailurePolicy" not in spec
        counted = "pod" if pods == 1 else f"{pods} pods"
        message = (
            f"evicting its {counted} exceeds backoffLimit {limit}, so the whole Job is suspended "
            "instead, or else protected: ignore evictions by a podFailurePolicy"
        )
        if not never:
            message = f"{message}, which requires restartPolicy Never"
        yield manifest.hint(path, message, fixed=able)
        if able:
            set_key(spec, "podFailurePolicy", _policy(spec.line))


def _job_specs(manifest: Manifest) -> Iterator[tuple[FieldPath, LineMapping]]:
    if (manifest.group, manifest.kind) == ("batch", "Job"):
        yield ("spec",), mapping_at(manifest.value, "spec")
    elif (manifest.group, manifest.kind) == ("batch", "CronJob"):
        path = ("spec", "jobTemplate", "spec")
        yield path, mapping_at(manifest.value, *path)
    elif (manifest.group, manifest.kind) == ("jobset.x-k8s.io", "JobSet"):
        if at(manifest.value, "spec", "failurePolicy", "maxRestarts"):
            return
        for index, replicated in mappings_at(manifest.value, "spec", "replicatedJobs"):
            inner = ("spec", "replicatedJobs", index, "template", "spec")
            yield inner, mapping_at(replicated, "template", "spec")


def _pods(spec: LineMapping) -> int:
    """Pods that run at a time."""
    counts = [spec.get("parallelism", 1), spec.get("completions")]
    return min([each for each in counts if isinstance(each, int)], default=1)


def _ignores_evictions(spec: LineMapping) -> bool:
    for _, rule in mappings_at(spec, "podFailurePolicy", "rules"):
        conditions = [each for _, each in mappings_at(rule, "onPodConditions")]
        if any(each.get("type") == DISRUPTION_TARGET for each in conditions):
            return rule.get("action") == "Ignore"
    return False


def _policy(line: int) -> LineMapping:
    condition = mapping_at_line(line, type=DISRUPTION_TARGET)
    rule = mapping_at_line(line, action="Ignore", onPodConditions=[condition])
    return mapping_at_line(line, rules=[rule])
