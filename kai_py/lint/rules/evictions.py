"""Rules on Jobs that fail if all of their pods are evicted: the scheduler suspends them instead."""

from collections.abc import Iterator

from kai_py.api.manifests import LineMapping
from kai_py.api.problems import FieldPath
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    at,
    mapping_at,
    mapping_at_line,
    mappings_at,
    set_key,
)
from kai_py.lint.rules.queues import DEFAULT_SCHEDULER

DEFAULT_BACKOFF_LIMIT = 6
DISRUPTION_TARGET = "DisruptionTarget"


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
