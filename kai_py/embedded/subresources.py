"""Subresources: binding, eviction, scale and finalize.

binding assigns a pod to a node, once. eviction deletes a pod, or is refused (429) if its
PodDisruptionBudget allows no disruption. scale reads and writes `spec.replicas`. finalize writes a
namespace's finalizers.

Source: k8s.io/kubernetes pkg/registry/core/pod/storage.
"""

from kai_py.api.pod_phases import FINISHED_PHASES
from kai_py.api.times import format_time
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import (
    Json,
    is_deleting,
    is_ready,
    name_of,
    namespace_of,
    with_condition,
)
from kai_py.embedded.errors import RequestError, bad_request, conflict, invalid, required
from kai_py.embedded.resources import BUDGETS, NAMESPACES, PODS, ServedResource
from kai_py.embedded.selectors import label_selector

RETRY_EVICTION_SECONDS = 10


def bind(api: ApiServer, name: str, namespace: str, binding: Json) -> Json:
    """Assign a pod to the node that a v1 Binding names; return the pod.

    Raises RequestError 409 when the pod is already on a node, gated, being deleted, or not the one
    that the binding means.
    """
    target = binding.get("target") or {}
    if not target.get("name"):
        raise invalid("Binding", "", name, [required("target.name")])
    if target.get("kind", "Node") not in ("", "Node"):
        raise bad_request("target.kind must be Node or empty")
    pod = api.stored(PODS, name, namespace)
    api.check_preconditions(PODS, pod, binding.get("metadata") or {})
    if reason := _unbindable_reason(pod):
        raise conflict("pods/binding", name, f"pod {name} {reason}")
    meta = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        added = (binding.get("metadata") or {}).get(field)
        if added:
            meta[field] = (meta.get(field) or {}) | added
    scheduled = {"type": "PodScheduled", "status": "True"}
    new = {
        **pod,
        "metadata": meta,
        "spec": {**pod["spec"], "nodeName": target["name"]},
        "status": with_condition(pod["status"], scheduled, now=api.clock.now()),
    }
    return api.commit(PODS, pod, new)


def _unbindable_reason(pod: Json) -> str:
    if is_deleting(pod):
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return ""


def evict(api: ApiServer, name: str, namespace: str, eviction: Json) -> None:
    """Delete a pod if its disruption budget allows it; raises RequestError 429 if not."""
    pod = api.stored(PODS, name, namespace)
    options_body = eviction.get("deleteOptions") or {}
    options = DeleteOptions(
        grace_seconds=options_body.get("gracePeriodSeconds"),
        preconditions=options_body.get("preconditions") or {},
        dry_run=bool(options_body.get("dryRun")),
    )
    api.check_preconditions(PODS, pod, options.preconditions)
    if counts_for_budgets(pod):
        _use_budget(api, pod)
    if not options.dry_run and not is_deleting(pod):
        mark_disrupted(api, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
    delete(api, PODS, name, namespace, options)


def counts_for_budgets(pod: Json) -> bool:
    """Whether budgets count the eviction of a pod: only if it has started and not ended."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in (*FINISHED_PHASES, "Pending") and not is_deleting(pod)


def _use_budget(api: ApiServer, pod: Json) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        each
        for each in api.list(BUDGETS, namespace_of(pod))
        if label_selector(each["spec"].get("selector"))(labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
        raise RequestError(500, "InternalError", message)
    budget = budgets[0]
    if is_exempt(pod, budget):
        return
    status = budget["status"]
    observed = status.get("observedGeneration", 0)
    if observed < budget["metadata"]["generation"]:
        raise _over_budget(
            f"The disruption budget {name_of(budget)} is still being processed by the server.",
            retry_after=RETRY_EVICTION_SECONDS,
        )
    if status["disruptionsAllowed"] <= 0:
        raise _over_budget(
            f"The disruption budget {name_of(budget)} needs {status['desiredHealthy']} healthy "
            f"pods and has {status['currentHealthy']} currently"
        )
    disrupted = (status.get("disruptedPods") or {}) | {name_of(pod): format_time(api.clock.now())}
    spent = {"disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
    api.patch_status(BUDGETS, budget, spent)


def is_exempt(pod: Json, budget: Json) -> bool:
    """Whether a budget allows the eviction of a pod without counting it, as it is not ready."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _over_budget(explanation: str, *, retry_after: int | None = None) -> RequestError:
    return RequestError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": explanation}]},
        retry_after=retry_after,
    )


def mark_disrupted(api: ApiServer, pod: Json, reason: str, message: str) -> None:
    """Write the condition by which a pod that is about to be deleted says why."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
    }
    status = with_condition(pod["status"], condition, now=api.clock.now())
    api.patch_status(PODS, pod, {"conditions": status["conditions"]})


def scale_of(document: Json) -> Json:
    """The autoscaling/v1 Scale of a workload."""
    meta = document["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (document["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in fields},
        "spec": {"replicas": document["spec"].get("replicas", 0)},
        "status": {
            "replicas": (document.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in labels.items()),
        },
    }


def set_scale(
    api: ApiServer, resource: ServedResource, name: str, namespace: str, scale: Json
) -> Json:
    """Write `spec.replicas` of a workload from a Scale; return the new Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    revision = (scale.get("metadata") or {}).get("resourceVersion")

    def change(present: Json) -> Json:
        api.check_preconditions(resource, present, {"resourceVersion": revision})
        return {**present, "spec": {**present["spec"], "replicas": replicas}}

    return scale_of(api.edit(resource, name, namespace, change))


def finalize_namespace(api: ApiServer, name: str, namespace: Json) -> Json:
    """Write a namespace's spec.finalizers; without any, a deleted namespace is removed."""
    current = api.stored(NAMESPACES, name, "")
    api.check_preconditions(NAMESPACES, current, namespace.get("metadata") or {})
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    return api.commit(NAMESPACES, current, {**current, "spec": {"finalizers": finalizers}})
