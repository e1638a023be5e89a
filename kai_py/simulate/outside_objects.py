"""Why an object of a cluster is part of no gang of this scheduler, in a clause.

It belongs to another scheduler or node pool, it has ended, or no pod uses it.
"""

from collections.abc import Iterator, Sequence

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.embedded.documents import is_deleting, is_finished
from kai_py.simulate.absent_gangs import has_ended, pods_below, workload_named
from kai_py.simulate.objects import Document


def why_outside(
    documents: Sequence[Document], configuration: Configuration, subject: Subject, name: str
) -> str:
    """Why ``name``, which exists, is in no gang; "" if that is not known."""
    if subject is Subject.CLAIM:
        return _why_claim(documents, configuration, name)
    if subject is Subject.POD:
        whose, pods = "it", list(_named(documents, "Pod", name))
    else:
        workload = workload_named(documents, subject, name)
        if workload is not None and has_ended(workload):
            return "it has ended"
        whose, pods = "its pod", [] if workload is None else pods_below(documents, workload)
    return next((f"{whose} {why}" for pod in pods if (why := _why_pod(pod, configuration))), "")


def _why_pod(pod: Document, configuration: Configuration) -> str:
    if is_finished(pod):
        return f"has ended ({pod['status']['phase']})"
    scheduler = pod["spec"].get("schedulerName", "")
    if scheduler not in (configuration.scheduler_name, *configuration.scheduler_aliases):
        return f"names another scheduler (schedulerName {scheduler})"
    key, ours = configuration.node_pool.label, configuration.node_pool.name
    pool = (pod["metadata"].get("labels") or {}).get(key, "")
    if pool != ours:
        placed = f"node pool {pool}" if pool else "the node pool without a name"
        return f"belongs to {placed} (label {key}), which has a scheduler of its own"
    return ""


def _why_claim(documents: Sequence[Document], configuration: Configuration, name: str) -> str:
    for claim in _named(documents, "ResourceClaim", name):
        if is_deleting(claim):
            kept = ", ".join(claim["metadata"].get("finalizers") or ())
            return f"it is being deleted{f' and kept by its finalizers ({kept})' if kept else ''}"
        users = [pod for pod in documents if pod["kind"] == "Pod" and _uses(pod, claim)]
        found = (f"its pod {why}" for pod in users if (why := _why_pod(pod, configuration)))
        return next(found, "" if users else "no pod uses it")
    return ""


def _uses(pod: Document, claim: Document) -> bool:
    meta = claim["metadata"]
    listed = (
        *(pod["spec"].get("resourceClaims") or ()),
        *((pod.get("status") or {}).get("resourceClaimStatuses") or ()),
    )
    named = (each.get("resourceClaimName") for each in listed)
    return pod["metadata"].get("namespace") == meta.get("namespace") and meta["name"] in named


def _named(documents: Sequence[Document], kind: str, name: str) -> Iterator[Document]:
    for each in documents:
        meta = each["metadata"]
        if each["kind"] == kind and f"{meta.get('namespace', 'default')}/{meta['name']}" == name:
            yield each
