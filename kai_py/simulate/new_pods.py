"""Pods as an API server completes them when they are created.

Their priority and whether they may preempt follow from their PriorityClass, overhead and
constraints on nodes from their RuntimeClass, and amounts that containers leave open from the
LimitRanges of their namespace. The classes that Kubernetes and KAI install exist.
"""

import contextlib
from collections.abc import Mapping

from kai_py.dialects.kai.priority import CLASS_VALUES
from kai_py.embedded.documents import clone
from kai_py.embedded.errors import FieldError, RequestError, invalid
from kai_py.embedded.in_process import DEFAULT_NAMESPACES, SYSTEM_PRIORITIES, InProcessCluster
from kai_py.embedded.kinds.pod_defaults import (
    default_from_other_fields,
    follow_runtime_class,
    set_default_amounts,
    set_priority,
)
from kai_py.embedded.kinds.pod_scheduling import scheduling_errors
from kai_py.embedded.resources import LIMIT_RANGES, PRIORITY_CLASSES, RUNTIME_CLASSES
from kai_py.embedded.store import Store
from kai_py.simulate.object_files import ObjectKey
from kai_py.simulate.objects import Document

_COMPLETING = {
    (each.group, each.kind) for each in (PRIORITY_CLASSES, RUNTIME_CLASSES, LIMIT_RANGES)
}


def create_surroundings(
    cluster: InProcessCluster, found: Mapping[ObjectKey, Document], namespaces: set[str]
) -> None:
    """Create what completes new pods in ``namespaces``.

    Objects that depend on what is refused here say so themselves.
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
    """An object as its manifest; uids of the files must not meet those of the cluster."""
    meta = document["metadata"]
    return {
        **document,
        "metadata": {key: meta[key] for key in ("name", "namespace") if key in meta},
    }


def complete_pod(pod: Document, store: Store, *, is_new: bool) -> str:
    """Complete a pod; why an API server would refuse it, or "".

    ``is_new``: it was never applied. What cannot be read is left to the decoder to refuse.
    """
    problem, steps = "", [_set_amounts_of_new if is_new else _set_amounts]
    if pod["spec"].get("priority") is None:
        steps.insert(0, set_priority)
    for complete in steps:
        given = pod["spec"]
        pod["spec"] = clone(given)
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
            errors += scheduling_errors(pod["spec"], "spec")
    return invalid("Pod", "", meta["name"], errors).message if errors else ""


def complete_group(group: Document, store: Store) -> None:
    """Set the priority of a PodGroup of Kubernetes that names a PriorityClass, or has the default.

    What cannot be read is left to the decoder to refuse.
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
    status = pod.get("status")
    if isinstance(status, dict) and status.get("phase"):
        return
    phase = "Running" if pod["spec"].get("nodeName") else "Pending"
    pod["status"] = {**(status if isinstance(status, dict) else {}), "phase": phase}
