"""Amounts in objects of files that no API server would have accepted.

A pod that asks for less than nothing would give its queue and node what is not there. One rule
of the server is not applied: a request for GPUs without a limit is read as the limit, too, as lists
made for comparisons often have it.
"""

from kai_py.embedded.errors import invalid
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS, node_amount_errors, pod_amount_errors
from kai_py.simulate.object_files import ObjectKey
from kai_py.simulate.objects import Document
from kai_py.simulate.written_objects import with_spec


def refused_amounts(key: ObjectKey, document: Document) -> str:
    """Why an API server refuses the amounts of a pod or node, in its words; "" if it does not.

    The types of fields are those of the API.
    """
    match key[:2]:
        case ("", "Pod"):
            errors = pod_amount_errors(document.get("spec") or {}, "spec")
        case ("", "Node"):
            errors = node_amount_errors(document.get("status") or {})
        case _:
            return ""
    return invalid(key.kind, key.group, key.name, errors).message if errors else ""


def without_amounts(key: ObjectKey, document: Document) -> Document:
    """A pod with fields that cannot be read in place of its amounts; a node that has nothing."""
    if key.kind == "Node":
        return {**document, "status": {**document["status"], "capacity": {}, "allocatable": {}}}
    lists = {
        field: [
            {**(each or {}), "resources": "refused"} for each in document["spec"].get(field) or ()
        ]
        for field in CONTAINER_LISTS
    }
    return with_spec(document, {**lists, "resources": None, "overhead": {}})
