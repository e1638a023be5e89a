"""Jobs, Deployments, ReplicaSets, StatefulSets: defaults and validation.

What their embedded controllers cannot do is refused on creation with 501, not ignored. Source:
k8s.io/kubernetes pkg/apis/{batch,apps}.
"""

from typing import Any

from kai_py.api.records.unstructured import value_at
from kai_py.embedded.documents import Json, name_of, set_default, uid_of
from kai_py.embedded.errors import (
    FieldError,
    changed,
    invalid_value,
    not_implemented,
    required,
    unsupported,
)
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.kinds.pods import default_pod_spec, validate_pod_spec
from kai_py.embedded.selectors import label_selector

_UNSUPPORTED_JOB_FIELDS = ("successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")


def _prepare_job(job: Json) -> None:
    spec = job["spec"]
    for field in _UNSUPPORTED_JOB_FIELDS:
        if spec.get(field) is not None:
            raise not_implemented(f"Job spec.{field}")
    job["status"] = {}
    if spec.get("manualSelector"):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": uid_of(job),
        "batch.kubernetes.io/job-name": name_of(job),
        "controller-uid": uid_of(job),
        "job-name": name_of(job),
    }
    meta = spec.setdefault("template", {}).setdefault("metadata", {})
    meta["labels"] = (meta.get("labels") or {}) | labels
    key = "batch.kubernetes.io/controller-uid"
    spec["selector"] = {"matchLabels": {key: uid_of(job)}}


def _default_job(job: Json) -> None:
    spec = job["spec"]
    if spec.get("parallelism") is None and spec.get("completions") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replacement = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replacement)
    default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def _validate_job(job: Json) -> list[FieldError]:
    spec = job["spec"]
    errors = [
        invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
        for field in ("parallelism", "completions", "backoffLimit")
        if spec.get(field) is not None and spec[field] < 0
    ]
    modes = ("NonIndexed", "Indexed")
    if spec["completionMode"] not in modes:
        errors.append(unsupported("spec.completionMode", spec["completionMode"], modes))
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        errors.append(required("spec.completions", "when completion mode is Indexed"))
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy not in ("OnFailure", "Never"):
        field_path = "spec.template.spec.restartPolicy"
        errors.append(required(field_path, 'valid values: "OnFailure", "Never"'))
    elif spec.get("podFailurePolicy") and policy != "Never":
        field_path = "spec.template.spec.restartPolicy"
        errors.append(
            invalid_value(
                field_path, policy, 'only "Never" is supported when podFailurePolicy is specified'
            )
        )
    return errors + validate_pod_spec(spec["template"]["spec"], "spec.template.spec")


def _validate_job_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_job(new)
    suspended = old["spec"].get("suspend") and not value_at(old, "status.startTime")
    fixed = ["selector", "completionMode", "podFailurePolicy"]
    if not suspended:
        fixed.append("template")
    if new["spec"].get("completionMode") != "Indexed":
        fixed.append("completions")
    return [*errors, *changed(new["spec"], old["spec"], fixed, "spec.")]


def _default_replicated(document: Json) -> None:
    spec = document["spec"]
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def _default_deployment(deployment: Json) -> None:
    _default_replicated(deployment)
    spec = deployment["spec"]
    strategy = spec.setdefault("strategy", {})
    set_default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _default_stateful_set(stateful_set: Json) -> None:
    _default_replicated(stateful_set)
    spec = stateful_set["spec"]
    set_default(spec, "podManagementPolicy", "OrderedReady")
    spec.setdefault("updateStrategy", {"type": "RollingUpdate"})


def _validate_replicated(document: Json) -> list[FieldError]:
    spec = document["spec"]
    errors: list[FieldError] = []
    if spec["replicas"] < 0:
        errors.append(
            invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
        )
    if not spec.get("selector"):
        errors.append(required("spec.selector"))
    labels = value_at(spec, "template.metadata.labels") or {}
    if spec.get("selector") and not label_selector(spec["selector"])(labels):
        rule = "`selector` does not match template `labels`"
        errors.append(invalid_value("spec.template.metadata.labels", labels, rule))
    pod_spec = spec["template"]["spec"]
    if pod_spec["restartPolicy"] != "Always":
        field_path = "spec.template.spec.restartPolicy"
        errors.append(unsupported(field_path, pod_spec["restartPolicy"], ("Always",)))
    return errors + validate_pod_spec(pod_spec, "spec.template.spec")


def _validate_replicated_update(new: Json, old: Json) -> list[FieldError]:
    return [
        *_validate_replicated(new),
        *changed(new["spec"], old["spec"], ("selector",), "spec."),
    ]


def _empty_status(status: dict[str, Any]) -> Any:
    def prepare(document: Json) -> None:
        document["status"] = dict(status)

    return prepare


JOB_RULES = KindRules(
    prepare=_prepare_job,
    default=_default_job,
    validate=_validate_job,
    validate_update=_validate_job_update,
)
DEPLOYMENT_RULES = KindRules(
    prepare=_empty_status({}),
    default=_default_deployment,
    validate=_validate_replicated,
    validate_update=_validate_replicated_update,
)
REPLICA_SET_RULES = KindRules(
    prepare=_empty_status({"replicas": 0}),
    default=_default_replicated,
    validate=_validate_replicated,
    validate_update=_validate_replicated_update,
)
STATEFUL_SET_RULES = KindRules(
    prepare=_empty_status({"replicas": 0}),
    default=_default_stateful_set,
    validate=_validate_replicated,
    validate_update=_validate_replicated_update,
)
