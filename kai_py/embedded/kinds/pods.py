"""Pods and pod templates: defaults, validation, immutable fields.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go and pkg/apis/core/validation.
"""

from kai_py.embedded.documents import Json, set_default
from kai_py.embedded.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    label_errors,
    required,
    unsupported,
)
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS, missing_limits, pod_amount_errors
from kai_py.embedded.kinds.pod_defaults import admit_pod, default_from_other_fields
from kai_py.embedded.kinds.pod_scheduling import scheduling_errors

_UPDATABLE_FIELDS = ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations)"
)


GATED_CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def default_pod_spec(spec: Json) -> None:
    """Set the defaults of a pod spec, in a pod or in a template."""
    set_default(spec, "restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    set_default(spec, "dnsPolicy", "ClusterFirst")
    set_default(spec, "schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for field in CONTAINER_LISTS:
        for container in spec.get(field) or ():
            _default_container(container)


def validate_pod_spec(spec: Json, path: str) -> list[FieldError]:
    """The errors in a pod spec at `path`."""
    errors: list[FieldError] = []
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        allowed = ("Always", "OnFailure", "Never")
        errors.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], allowed))
    errors += scheduling_errors(spec, path)
    names: set[str] = set()
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            item_path = f"{path}.{field}[{index}]"
            errors += _validate_container(container, item_path)
            if container.get("name") in names:
                errors.append(duplicate(f"{item_path}.name", container["name"]))
            names.add(container.get("name", ""))
    return errors + pod_amount_errors(spec, path)


def _default_container(container: Json) -> None:
    image = container.get("image", "")
    pull = "Always" if image.endswith(":latest") or ":" not in image else "IfNotPresent"
    set_default(container, "imagePullPolicy", pull)
    set_default(container, "terminationMessagePath", "/dev/termination-log")
    set_default(container, "terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        set_default(port, "protocol", "TCP")


def _validate_container(container: Json, path: str) -> list[FieldError]:
    errors = label_errors(container.get("name"), f"{path}.name")
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    return errors + missing_limits(container["resources"], f"{path}.resources")


def _prepare(pod: Json) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [dict(GATED_CONDITION)]


def _qos_class(spec: Json) -> str:
    containers = [each for field in CONTAINER_LISTS for each in spec.get(field) or ()]
    all_resources = [each.get("resources") or {} for each in containers]
    if not any(each.get("requests") or each.get("limits") for each in all_resources):
        return "BestEffort"
    for each in all_resources:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        if any(name not in limits for name in ("cpu", "memory")):
            return "Burstable"
        if any(limits[name] != requests.get(name, limits[name]) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def _default(pod: Json) -> None:
    spec = pod["spec"]
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    default_from_other_fields(spec)


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_pod_spec(new["spec"], "spec")
    gates = [gate["name"] for gate in old["spec"].get("schedulingGates") or ()]
    for index, gate in enumerate(new["spec"].get("schedulingGates") or ()):
        if gate["name"] not in gates:
            item_path = f"spec.schedulingGates[{index}]"
            errors.append(
                forbidden_field(
                    item_path, "only deletion is allowed, but found new scheduling gate"
                )
            )
    tolerations = new["spec"].get("tolerations") or []
    if any(each not in tolerations for each in old["spec"].get("tolerations") or ()):
        errors.append(
            forbidden_field(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    if _immutable_part(new["spec"], gated=bool(gates)) != _immutable_part(
        old["spec"], gated=bool(gates)
    ):
        errors.append(forbidden_field("spec", _UPDATE_RULE))
    return errors


def _immutable_part(spec: Json, *, gated: bool) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _UPDATABLE_FIELDS}
    for field in ("tolerations", "schedulingGates"):
        fixed.pop(field, None)
    if gated:
        for field in ("nodeSelector", "affinity"):
            fixed.pop(field, None)
    for field in CONTAINER_LISTS:
        fixed[field] = [{**each, "image": ""} for each in spec.get(field) or ()]
    return fixed


POD_RULES = KindRules(
    prepare=_prepare,
    default=_default,
    admit=admit_pod,
    validate=lambda pod: validate_pod_spec(pod["spec"], "spec"),
    validate_update=_validate_update,
)
