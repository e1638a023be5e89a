"""Namespaces, nodes, priority classes, budgets, events, volumes: defaults and validation.

Events are stored as core/v1 and served as events.k8s.io/v1, too.
"""

from collections.abc import Iterable

from kai_py.api.records.storage import BETA_CLASS, DEFAULT_CLASS
from kai_py.api.records.unstructured import mapping_at
from kai_py.embedded.documents import Json, clone, name_of
from kai_py.embedded.errors import FieldError, changed, invalid_value, required
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.kinds.amounts import node_amount_errors
from kai_py.embedded.store import Store

STORAGE_CLASSES = "storageclasses.storage.k8s.io"
MAX_USER_PRIORITY = 1_000_000_000


def _prepare_namespace(namespace: Json) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _label_namespace(namespace: Json) -> None:
    meta = namespace["metadata"]
    label = {"kubernetes.io/metadata.name": name_of(namespace)}
    meta["labels"] = (meta.get("labels") or {}) | label


def _keep_finalizers(new: Json, old: Json) -> list[FieldError]:
    new["spec"] = clone(old["spec"])
    return []


def _default_node(node: Json) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", clone(status["capacity"]))


def _validate_node(node: Json) -> list[FieldError]:
    return node_amount_errors(node["status"])


def _default_priority_class(priority_class: Json) -> None:
    priority_class.setdefault("value", 0)
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _validate_priority_class(priority_class: Json) -> list[FieldError]:
    value, name = priority_class["value"], name_of(priority_class)
    if value > MAX_USER_PRIORITY and not name.startswith("system-"):
        return [invalid_value("value", value, f"must be at most {MAX_USER_PRIORITY}")]
    return []


def _validate_priority_class_update(new: Json, old: Json) -> list[FieldError]:
    return list(changed(new, old, ("value", "preemptionPolicy")))


def _prepare_budget(budget: Json) -> None:
    budget["status"] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def _default_budget(budget: Json) -> None:
    if budget.get("spec") is None:
        budget["spec"] = {}


def _validate_budget(budget: Json) -> list[FieldError]:
    spec = budget["spec"]
    if None not in (spec.get("minAvailable"), spec.get("maxUnavailable")):
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def _validate_event(event: Json) -> list[FieldError]:
    involved = event.get("involvedObject") or {}
    namespace = event["metadata"].get("namespace")
    if involved.get("namespace") and involved["namespace"] != namespace:
        rule = "does not match event.namespace"
        return [invalid_value("involvedObject.namespace", involved["namespace"], rule)]
    return []


_NEW_NAME = {
    "involvedObject": "regarding",
    "message": "note",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "source": "deprecatedSource",
    "reportingComponent": "reportingController",
}
_OLD_NAME = {new: old for old, new in _NEW_NAME.items()}


def to_events_group(event: Json) -> Json:
    """A core/v1 event as events.k8s.io/v1 shows it."""
    renamed = {_NEW_NAME.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1"}


def from_events_group(event: Json) -> Json:
    """An events.k8s.io/v1 event in its stored core/v1 form."""
    renamed = {_OLD_NAME.get(key, key): value for key, value in event.items()}
    # Clients find these in core/v1 even where they were not set: `--sort-by` looks for them.
    unset: Json = {"firstTimestamp": None, "lastTimestamp": None, "source": {}}
    return unset | renamed | {"apiVersion": "v1"}


def _validate_storage_class(storage_class: Json) -> list[FieldError]:
    return [] if storage_class.get("provisioner") else [required("provisioner")]


def _default_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _pending(document: Json) -> None:
    document["status"] = {"phase": "Pending"}


def _default_volume_claim(claim: Json) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _set_storage_class(claim: Json, store: Store) -> None:
    """Give a claim that names no class the default one (DefaultStorageClass admission plugin)."""
    if has_storage_class(claim):
        return
    name = default_storage_class(store.list(STORAGE_CLASSES))
    if name:
        claim["spec"]["storageClassName"] = name


def has_storage_class(claim: Json) -> bool:
    """Whether a claim names its class, or states that it has none."""
    by_annotation = BETA_CLASS in mapping_at(claim, "metadata.annotations")
    return by_annotation or claim["spec"].get("storageClassName") is not None


def default_storage_class(classes: Iterable[Json]) -> str:
    """The default StorageClass, of several the newest and of these the first by name; or ""."""
    defaults = [each["metadata"] for each in classes if _is_default_class(each)]
    newest = max((str(meta["creationTimestamp"]) for meta in defaults), default="")
    names = (meta["name"] for meta in defaults if str(meta["creationTimestamp"]) == newest)
    return min(names, default="")


def _is_default_class(storage_class: Json) -> bool:
    annotations = mapping_at(storage_class, "metadata.annotations")
    return bool(annotations.get(DEFAULT_CLASS) == "true")


NAMESPACE_RULES = KindRules(
    prepare=_prepare_namespace, default=_label_namespace, validate_update=_keep_finalizers
)
NODE_RULES = KindRules(
    default=_default_node,
    validate=_validate_node,
    validate_status=lambda new, _old: _validate_node(new),
)
PRIORITY_CLASS_RULES = KindRules(
    default=_default_priority_class,
    validate=_validate_priority_class,
    validate_update=_validate_priority_class_update,
)
BUDGET_RULES = KindRules(
    prepare=_prepare_budget,
    default=_default_budget,
    validate=_validate_budget,
    validate_update=lambda new, _old: _validate_budget(new),
)
EVENT_RULES = KindRules(validate=_validate_event)
STORAGE_CLASS_RULES = KindRules(default=_default_storage_class, validate=_validate_storage_class)
VOLUME_RULES = KindRules(prepare=_pending)
VOLUME_CLAIM_RULES = KindRules(
    prepare=_pending, default=_default_volume_claim, admit=_set_storage_class
)
