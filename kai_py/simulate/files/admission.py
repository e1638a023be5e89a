"""What an API server does to objects in files when they are created: it completes or refuses them.

The priority of pods and whether they may preempt follow from their PriorityClass, overhead and
constraints on nodes from their RuntimeClass, and amounts that containers leave open from the
LimitRanges of their namespace. The classes that Kubernetes and KAI install exist. In requests for
devices, a count of 0 or an allocation mode that is empty or null is one that is not given.

Refused are pods, objects of devices, budgets and PriorityClasses with errors. Objects with a
resourceVersion come from an API server, which has accepted them. So do claims that are allocated:
their allocations may not be lost. Whether a namespace allows adminAccess is known only if it is
among the objects; a template's claims are made in the future, so that it needs the label at any
time. The rules are those of the embedded API server, without those for the form of names and the
length of lists: the meaning is clear without them, and the test tables of Kubernetes' own allocator
have such names.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from kai_py.api.records.unstructured import mapping_at
from kai_py.dialects.kai.priority import CLASS_VALUES
from kai_py.embedded.documents import Json, clone, with_typed_nulls
from kai_py.embedded.errors import FieldError, RequestError, invalid
from kai_py.embedded.in_process import DEFAULT_NAMESPACES, SYSTEM_PRIORITIES, InProcessCluster
from kai_py.embedded.kinds.claims import (
    admin_access_errors,
    default_claim_spec,
    default_device_request,
    validate_claim_spec,
)
from kai_py.embedded.kinds.pod_defaults import (
    default_from_other_fields,
    follow_runtime_class,
    set_default_amounts,
    set_priority,
)
from kai_py.embedded.kinds.pod_scheduling import scheduling_errors
from kai_py.embedded.resources import (
    CHECKED_KINDS,
    LIMIT_RANGES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    kind_errors,
)
from kai_py.embedded.store import Store
from kai_py.simulate.files.object_files import ObjectKey, RejectedObject
from kai_py.simulate.files.objects import Document
from kai_py.watch.kinds import unsupported_version

_COMPLETING = {
    (each.group, each.kind) for each in (PRIORITY_CLASSES, RUNTIME_CLASSES, LIMIT_RANGES)
}
GROUP = "resource.k8s.io"
FLAT_VERSION = f"{GROUP}/v1beta1"
FORMS = re.compile(
    r"(\.name|\.counterSet|\.(attributes|capacity)\[[^]]*\]|\.counters|\.requestPolicy)$"
)
"""Paths at which a value that is present and unique can only be wrong in its form."""
LENGTHS = ("FieldValueTooMany", "FieldValueTooLong")
FLAT_FIELDS = ("name", "firstAvailable")
"""Fields of a request that ``exactly``, which in v1beta1 is the request itself, does not have."""


def create_surroundings(
    cluster: InProcessCluster, found: Mapping[ObjectKey, Document], namespaces: set[str]
) -> None:
    """Create the objects that complete new pods in ``namespaces``.

    One that is refused is left out: objects that depend on it are reported.
    """
    needed = {key: document for key, document in found.items() if key[:2] in _COMPLETING}
    spaces = {*namespaces, *(key.namespace for key in needed)} - {"", *DEFAULT_NAMESPACES}
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in sorted(spaces)
    ]
    documents += [_without_identity(each) for each in needed.values()]
    documents += [
        {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": PRIORITY_CLASSES.kind,
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in CLASS_VALUES.items()
    ]
    for document in documents:
        if document["metadata"]["name"] not in SYSTEM_PRIORITIES:
            with contextlib.suppress(RequestError):
                cluster.create(document)


def _without_identity(document: Document) -> Document:
    """An object as its manifest: uids of the files must not be those of objects of the cluster."""
    meta = document["metadata"]
    return {
        **document,
        "metadata": {key: meta[key] for key in ("name", "namespace") if key in meta},
    }


def complete_pod(pod: Document, store: Store, *, is_new: bool) -> str:
    """Complete a pod; why an API server would refuse it, or "".

    ``is_new``: it was never applied. Fields that cannot be read are left for the decoder to refuse.
    """
    problem = ""
    # A step gets a copy to change: of the whole spec if it changes what is in its fields.
    steps: list[tuple[Callable[[Document, Store], None], Callable[[Document], Document]]] = [
        (_set_amounts_of_new, clone) if is_new else (_set_amounts, dict)
    ]
    if pod["spec"].get("priority") is None:
        steps.insert(0, (set_priority, dict))
    for complete, copied in steps:
        given = pod["spec"]
        pod["spec"] = copied(given)
        try:
            complete(pod, store)
        except RequestError as error:
            problem = problem or error.message
        except (AttributeError, TypeError):
            pod["spec"] = given
    _set_phase(pod)
    if pod["spec"].get("nodeName"):
        return ""
    return problem if is_new and problem else _refusal(pod)


def _refusal(pod: Document) -> str:
    """Why an API server that has not accepted a pod would refuse what its scheduler reads."""
    meta, errors = pod["metadata"], list[FieldError]()
    if not meta.get("resourceVersion"):
        with contextlib.suppress(AttributeError, TypeError):
            errors += scheduling_errors(with_typed_nulls(pod["spec"]), "spec")
    return invalid("Pod", "", meta["name"], errors).message if errors else ""


def complete_group(group: Document, store: Store) -> None:
    """Set the priority of a PodGroup of Kubernetes that names a PriorityClass, or has the default.

    Fields that cannot be read are left for the decoder to refuse.
    """
    spec = group.get("spec")
    if not isinstance(spec, dict) or spec.get("priority") is not None:
        return
    completed = {**group, "spec": dict(spec)}
    with contextlib.suppress(RequestError, TypeError):
        set_priority(completed, store)
        if completed["spec"].get("priorityClassName"):
            group["spec"] = completed["spec"]


def _set_amounts(pod: Document, _store: Store) -> None:
    default_from_other_fields(pod["spec"])


def _set_amounts_of_new(pod: Document, store: Store) -> None:
    default_from_other_fields(pod["spec"])
    set_default_amounts(pod, store)
    follow_runtime_class(pod, store)


def _set_phase(pod: Document) -> None:
    status = mapping_at(pod, "status")
    if not status.get("phase"):
        phase = "Running" if pod["spec"].get("nodeName") else "Pending"
        pod["status"] = {**status, "phase": phase}


def refused_objects(found: Mapping[ObjectKey, Document]) -> Iterator[RejectedObject]:
    """Objects that would be refused, each with the API server's message.

    ``found``: as given, with a namespace where their kinds have one.
    """
    for key, document in found.items():
        if key[:2] not in CHECKED_KINDS:
            continue
        if problem := unsupported_version(document):
            yield RejectedObject(str(key), problem)
            continue
        if key.kind != "ResourceClaimTemplate" and document["metadata"].get("resourceVersion"):
            continue
        try:
            errors = list(filter(_leaves_doubt, _errors(key, with_typed_nulls(document), found)))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # it has fields of other types, so that it cannot be read
        if errors:
            yield RejectedObject(str(key), invalid(key.kind, key.group, key.name, errors).message)


def _leaves_doubt(error: FieldError) -> bool:
    if error.kind in LENGTHS:
        return False
    if error.kind == "FieldValueDuplicate":
        return ".firstAvailable" not in error.path  # these are tried in their order
    is_absent = error.kind == "FieldValueRequired" and not error.path.endswith(".counters")
    return is_absent or not FORMS.search(error.path)


def _errors(
    key: ObjectKey, document: Document, found: Mapping[ObjectKey, Document]
) -> list[FieldError]:
    namespace = found.get(ObjectKey("", "Namespace", "", key.namespace))
    if key.kind == "ResourceClaimTemplate":
        template = {**document, "spec": document["spec"].get("spec") or {}}
        errors = _claim_errors(template, "spec.spec", namespace)
        is_accepted = bool(document["metadata"].get("resourceVersion"))
        return [each for each in errors if each.path.endswith(".adminAccess") or not is_accepted]
    if key.kind == "ResourceClaim":
        is_allocated = (document.get("status") or {}).get("allocation")
        return [] if is_allocated else _claim_errors(document, "spec", namespace)
    checked = _nested_slice(document) if key.kind == "ResourceSlice" else document
    return kind_errors(key.group, checked)


def _claim_errors(claim: Document, path: str, namespace: Json | None) -> list[FieldError]:
    spec: Json = claim["spec"]
    requests = (spec.get("devices") or {}).get("requests") or ()
    if claim["apiVersion"] == FLAT_VERSION and requests:
        spec = {**spec, "devices": {**spec["devices"], "requests": list(map(_nested, requests))}}
    default_claim_spec(spec)
    for request in (spec.get("devices") or {}).get("requests") or ():
        for each in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if each and each.get("allocationMode") == "All":
                each.pop("count", None)  # it means nothing there
    denied = admin_access_errors(spec, path, namespace) if namespace is not None else []
    return [*validate_claim_spec(spec, path), *denied]


def _nested(request: Json) -> Json:
    """A request of v1beta1 as in v1."""
    exactly = {name: each for name, each in request.items() if name not in FLAT_FIELDS}
    own = {name: each for name, each in request.items() if name in FLAT_FIELDS}
    return {**own, "exactly": exactly} if exactly else own


def _nested_slice(document: Document) -> Document:
    """A slice of v1beta1 as in v1."""
    spec: Json = document["spec"]
    if document["apiVersion"] != FLAT_VERSION or not spec.get("devices"):
        return document
    devices = [{"name": each.get("name"), **(each.get("basic") or {})} for each in spec["devices"]]
    return {**document, "spec": {**spec, "devices": devices}}


CLAIM, TEMPLATE = (GROUP, "ResourceClaim"), (GROUP, "ResourceClaimTemplate")


def default_requests(found: dict[ObjectKey, Document]) -> None:
    """Replace claims and templates that were never applied by such with the defaults set.

    What cannot be read is left to the decoder to refuse.
    """
    for key, document in found.items():
        if key[:2] not in (CLAIM, TEMPLATE) or document["metadata"].get("resourceVersion"):
            continue
        completed = {**document, "spec": clone(document.get("spec"))}
        try:
            for request in _device_requests(key, completed):
                default_device_request(request)
        except (AttributeError, KeyError, TypeError):
            continue
        found[key] = completed


def _device_requests(key: ObjectKey, document: Document) -> Iterator[Json]:
    spec = document["spec"]["spec"] if key[:2] == TEMPLATE else document["spec"]
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("firstAvailable"):
            yield from request["firstAvailable"]
        else:
            yield request.get("exactly") or request  # in v1beta1 the request itself
