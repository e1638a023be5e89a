"""Rules on queues: the Queue itself, and the annotation or label that names it."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath, FieldProblem, closest_match
from kai_py.api.queue import API_VERSION, GROUP, QUEUE_NAME_KEY, InvalidQueueError, read_queue
from kai_py.dra.device_limits import selector_problem
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    at,
    mapping_at,
    move,
    rename,
    served_as,
    set_key,
)
from kai_py.lint.rules.workloads import DEFAULT_SCHEDULER, pod_specs, template_path

KAI_QUEUE_LABEL = "kai.scheduler/queue"
SCHEDULER_FIELDS = {
    ("argoproj.io", "Workflow"): ("spec.schedulerName",),
    ("apps.nvidia.com", "NIMService"): ("spec.schedulerName",),
    ("batch.volcano.sh", "Job"): ("spec.schedulerName",),
    ("flink.apache.org", "FlinkDeployment"): ("spec.podTemplate.spec.schedulerName",),
    ("serving.kserve.io", "InferenceService"): ("spec.predictor.schedulerName",),
    ("sparkoperator.k8s.io", "SparkApplication"): (
        "spec.driver.schedulerName",
        "spec.executor.schedulerName",
    ),
}
"""Where kinds have it whose manifests need no pod template; together they hold for all pods."""
_OPERATORS = {"ray.io": "KubeRay sets it (batchScheduler.name)"}
"""What may set the schedulerName of all pods, by the group of the manifest."""
_METADATA_FIELDS = ("annotations", "labels")
_PODLESS_KINDS = (
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "Queue",
    "Service",
    "ConfigMap",
    "Secret",
    "PersistentVolumeClaim",
    "PriorityClass",
    "ServiceAccount",
)
_MISSPELT_KEYS = {
    f"{group}/{name}"
    for group in (GROUP, "kai.io", "kai.scheduler")
    for name in ("queue", "queueName", "queuename", "queue_name", "queue-name")
} - {QUEUE_NAME_KEY, KAI_QUEUE_LABEL}


def queue(manifest: Manifest) -> Iterator[Finding]:
    """A Queue obeys the rules of its API."""
    if not manifest.is_a(GROUP, "Queue"):
        return
    yield from served_as(manifest, API_VERSION)
    yield from _limit_selectors(manifest)
    reported: set[FieldProblem] = set()
    # A correction may reveal further problems; what was reported is not reported again.
    while problems := [problem for problem in _problems(manifest) if problem not in reported]:
        for problem in problems:
            reported.add(problem)
            finding = manifest.error(problem.path, problem.message)
            yield replace(finding, fixed=_corrected(manifest, problem))


def _limit_selectors(manifest: Manifest) -> Iterator[Finding]:
    """Selectors of limits compile."""
    limits = at(manifest.value, "spec", "limits")
    for number, entry in enumerate(limits if isinstance(limits, list) else ()):
        selector = at(entry, "selector")
        problem = selector_problem(selector) if isinstance(selector, str) else ""
        if problem:
            yield manifest.error(("spec", "limits", number, "selector"), problem)


def queue_keys(manifest: Manifest) -> Iterator[Finding]:
    """A queue is named by a key that the scheduler reads, on an object that creates pods."""
    for path in _metadata_paths(manifest):
        metadata = mapping_at(manifest.value, *path)
        for field in _METADATA_FIELDS:
            values = mapping_at(metadata, field)
            for key in [key for key in values if key in _MISSPELT_KEYS]:
                message = f"this key is not used: write {QUEUE_NAME_KEY}"
                yield manifest.error((*path, field, key), message, fixed=True)
                rename(values, key, QUEUE_NAME_KEY)
            if QUEUE_NAME_KEY in values and manifest.kind in _PODLESS_KINDS:
                message = f"a {manifest.kind} has no pods: name the queue on the workload"
                yield manifest.error((*path, field, QUEUE_NAME_KEY), message)
        if KAI_QUEUE_LABEL in mapping_at(metadata, "annotations"):
            message = f"{KAI_QUEUE_LABEL} is a label; as an annotation it is ignored"
            yield manifest.error((*path, "annotations", KAI_QUEUE_LABEL), message, fixed=True)
            if "labels" not in metadata:
                set_key(metadata, "labels", LineMapping(metadata.line))
            move(metadata["annotations"], metadata["labels"], KAI_QUEUE_LABEL)
            if not metadata["annotations"]:
                del metadata["annotations"]
        yield from _conflict(manifest, metadata, path)


def queue_exists(manifest: Manifest) -> Iterator[Finding]:
    """The named queue exists among the manifests and admits the namespace."""
    queues = {found.name: found for found in manifest.all_of(GROUP, "Queue")}
    for path in _metadata_paths(manifest):
        for place in _METADATA_FIELDS:
            name = at(manifest.value, *path, place, QUEUE_NAME_KEY)
            if not isinstance(name, str) or not queues:
                continue
            field = (*path, place, QUEUE_NAME_KEY)
            if name not in queues:
                suggestion = closest_match(name, queues)
                advice = f": did you mean {suggestion}?" if suggestion else ""
                yield manifest.hint(field, f"queue {name} is not among these manifests{advice}")
                continue
            names = at(queues[name].value, "spec", "namespaces", "names")
            selector = at(queues[name].value, "spec", "namespaces", "selector")
            if names and not selector and manifest.namespace and manifest.namespace not in names:
                message = f"queue {name} does not admit namespace {manifest.namespace}"
                yield manifest.error(field, message)


def scheduler(manifest: Manifest) -> Iterator[Finding]:
    """Pods with a queue are scheduled by us only with our schedulerName."""
    named = [name for path in _metadata_paths(manifest) for name in _queue_names(manifest, path)]
    fields = SCHEDULER_FIELDS.get((manifest.group, manifest.kind), ())
    missing = [each for each in fields if "schedulerName" not in _parent(manifest, each)]
    if fields and not missing:
        return
    specs = pod_specs(manifest)
    if named and missing and not specs:
        where = f"write {DEFAULT_SCHEDULER} as {' and '.join(missing)}"
        yield manifest.hint(("spec",), f"without schedulerName the queue is ignored: {where}")
    for path, spec in specs:
        if "schedulerName" in spec:
            continue
        if named:
            message = f"without schedulerName the queue is ignored: write {DEFAULT_SCHEDULER}"
            if operator := _OPERATORS.get(manifest.group):
                yield manifest.hint(path, f"{message}, unless {operator}", fixed=True)
            else:
                yield manifest.error(path, message, fixed=True)
            set_key(spec, "schedulerName", DEFAULT_SCHEDULER)
        elif "resourceClaims" in spec:
            message = (
                "has no schedulerName, so kube-scheduler places it; that of kai-py: "
                f"{DEFAULT_SCHEDULER}"
            )
            yield manifest.hint(path, message)


def _parent(manifest: Manifest, field: str) -> LineMapping:
    return mapping_at(manifest.value, *field.split(".")[:-1])


def _problems(manifest: Manifest) -> tuple[FieldProblem, ...]:
    try:
        read_queue(manifest.value, unknown="forbid")
    except InvalidQueueError as error:
        return error.problems
    return ()


def _corrected(manifest: Manifest, problem: FieldProblem) -> bool:
    """Correct a misspelt field or a number written as text; returns whether that was possible.

    A value that is still wrong as a number stays as it was written.
    """
    *above, key = problem.path or ("",)
    parent = at(manifest.value, *above)
    if not isinstance(parent, LineMapping) or not isinstance(key, str) or key not in parent:
        return False
    if problem.suggestion and problem.suggestion not in parent:
        rename(parent, key, problem.suggestion)
        return True
    written = parent[key]
    number = _number(written)
    if number is None:
        return False
    parent[key] = number
    if problem.path in {remaining.path for remaining in _problems(manifest)}:
        parent[key] = written
        return False
    return True


def _number(value: Any) -> int | float | str | None:
    """A number for a text, and a text for a float, which the API takes as text only."""
    if isinstance(value, float):
        return str(value)
    if not isinstance(value, str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _metadata_paths(manifest: Manifest) -> list[FieldPath]:
    """Paths of the metadata that may name a queue."""
    template = template_path(manifest)
    return [("metadata",), *([(*template, "metadata")] if template else [])]


def _queue_names(manifest: Manifest, path: FieldPath) -> list[Any]:
    metadata = mapping_at(manifest.value, *path)
    keys = ((field, key) for field in _METADATA_FIELDS for key in (QUEUE_NAME_KEY, KAI_QUEUE_LABEL))
    return [found for field, key in keys if (found := at(metadata, field, key))]


def _conflict(manifest: Manifest, metadata: LineMapping, path: FieldPath) -> Iterator[Finding]:
    names = dict.fromkeys(at(metadata, field, QUEUE_NAME_KEY) for field in _METADATA_FIELDS)
    names.pop(None, None)
    if len(names) > 1:
        message = f"annotation and label name different queues: {' and '.join(map(str, names))}"
        yield manifest.error(path, message)
