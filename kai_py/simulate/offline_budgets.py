"""PodDisruptionBudgets in files: their status, and what evictions take from it."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from kai_py.embedded.controllers.disruption import budget_counts
from kai_py.embedded.controllers.runtime import is_active, is_ready
from kai_py.embedded.documents import is_finished
from kai_py.embedded.errors import RequestError
from kai_py.embedded.selectors import label_selector
from kai_py.embedded.subresources import counts_for_budgets, is_exempt
from kai_py.simulate.object_files import ObjectKey
from kai_py.simulate.objects import Document

BUDGET = ("policy", "PodDisruptionBudget")
_ALLOWED = "disruptionsAllowed"


def complete_budgets(found: Mapping[ObjectKey, Document]) -> None:
    """Give budgets without a status the numbers that their controller would write.

    A running pod that says nothing of its conditions is healthy. What cannot be read is left to the
    decoder to refuse.
    """
    missing = [
        (key, document)
        for key, document in found.items()
        if key[:2] == BUDGET and not document.get("status")
    ]
    if not missing:
        return
    by_uid = {document["metadata"]["uid"]: document for document in found.values()}
    pods_of = defaultdict[str, list[Document]](list)
    for key, document in found.items():
        if key[:2] == ("", "Pod"):
            pods_of[key.namespace].append(document)
    for key, budget in missing:
        try:
            selects = _selection(budget["spec"])
            pods = [p for p in pods_of[key.namespace] if selects(p) and not is_finished(p)]
            healthy = sum(map(_is_healthy, pods))
            budget["status"] = budget_counts(budget, pods, healthy, by_uid.get)[0]
        except (AttributeError, KeyError, TypeError, ValueError):
            continue


def _selection(spec: Document) -> Callable[[Document], bool]:
    """The pods that a budget selects: none if no API server accepts its selector."""
    try:
        selects = label_selector(spec.get("selector"))
    except RequestError:
        return lambda _pod: False
    return lambda pod: selects(pod["metadata"].get("labels") or {})


def _is_healthy(pod: Document) -> bool:
    return is_active(pod) and (_is_silent(pod) or is_ready(pod))


def _is_silent(pod: Document) -> bool:
    return pod["status"]["phase"] == "Running" and not pod["status"].get("conditions")


def spent_budget(budget: Document, pod: Document) -> Document | None:
    """A budget once ``pod`` is evicted, as the API server writes it; None if it stays as it is."""
    status, spec = budget.get("status") or {}, budget.get("spec") or {}
    allowed = status.get(_ALLOWED) or 0
    if allowed <= 0 or not _selection(spec)(pod) or not counts_for_budgets(pod):
        return None
    if not _is_silent(pod) and is_exempt(pod, budget):
        return None
    return {**budget, "status": {**status, _ALLOWED: allowed - 1}}
