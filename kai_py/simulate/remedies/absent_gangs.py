"""Workloads that are no gang of this scheduler although they should be, and the correction.

Their pods almost name this scheduler, or the API server refuses to create them. A correction is
suggested if the workload starts with it. Other objects are no part of a gang for a good reason:
they belong to another scheduler or node pool, they have ended, or no pod uses them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from kai_py.api.choices import Subject
from kai_py.api.problems import closest_match
from kai_py.config import Configuration
from kai_py.embedded.documents import is_deleting, is_finished, named_claims, owners_of
from kai_py.observe.explanation import NO_PODS, OTHER_SCHEDULER, Explanation
from kai_py.observe.suggestion import Suggestion, SuggestionStep
from kai_py.simulate.changes import ApplySteps
from kai_py.simulate.files.objects import SERVICE_ACCOUNT, Document, account_of
from kai_py.simulate.remedies.manifests import Spec, edit_pod_spec, pod_specs
from kai_py.simulate.remedies.search import as_suggestion, create, patch, replace
from kai_py.simulate.stored_documents import was_never_applied
from kai_py.simulate.what_if import LoadedCluster, SettledCluster, compare

SUSPENDED = "it has no pods: it is suspended (spec.suspend)"
BUILT_IN_CLASSES = ("system-cluster-critical", "system-node-critical")


def explain_absent(
    documents: Sequence[Document], subject: Subject, name: str
) -> Explanation | None:
    """Why a workload has no pods; None if it has some, has ended or does not exist."""
    workload = workload_named(documents, subject, name)
    if workload is None or was_never_applied(workload) or has_ended(workload):
        return None
    if workload["spec"].get("suspend"):
        return Explanation(key_of(workload), NO_PODS, f"{SUSPENDED}.")
    if 0 in (workload["spec"].get("parallelism"), workload["spec"].get("replicas")):
        return None
    if pods_below(documents, workload):
        return None
    key = key_of(workload)
    wrong = _unknown_reference(documents, workload)
    if wrong is not None:
        nearest = wrong.nearest
        advice = f"did you mean {nearest}?" if nearest else "create it, or name another one."
        message = f'it has no pods: {wrong.kind} "{wrong.name}" does not exist; {advice}'
    elif _had_pods(workload):
        message = "it has no pods: its controller creates them again after a delay."
    else:
        described = f"kubectl describe {workload['kind'].lower()} {workload['metadata']['name']}"
        message = (
            "it has no pods: its controller pauses before it creates pods again (for a Job up to "
            "10 minutes after an eviction or failure), or a quota, an admission webhook or another "
            f"rule of the API server refuses them; {described} has the events of its controller."
        )
    return Explanation(key, NO_PODS, message)


def is_suspended(explanation: Explanation) -> bool:
    """Whether the workload has no pods as it is meant to have none for now."""
    return explanation.message.startswith(SUSPENDED)


def correct_absent(
    documents: Sequence[Document],
    cluster: LoadedCluster,
    baseline: SettledCluster,
    explanation: Explanation,
) -> tuple[Suggestion, ...]:
    """The correction with which a workload that is no gang starts; () if there is none."""
    workload = next((each for each in documents if key_of(each) == explanation.gang), None)
    if workload is None:
        return ()
    if is_suspended(explanation):
        steps = (patch(workload, {"spec": {"suspend": False}}),)
        text = f"resume {workload['kind']} {workload['metadata']['name']} (spec.suspend: false)"
        outcome = cluster.settled(ApplySteps(steps))
        if explanation.gang not in outcome.running:
            return ()
        return (as_suggestion(text, steps, compare(baseline, outcome)),)
    edits = _scheduler_edits if explanation.state == OTHER_SCHEDULER else _reference_edits
    for text, edit, created in edits(documents, cluster, workload):
        corrected = (*created, replace(workload, partial(edit_pod_spec, edit)))
        outcome = cluster.settled(ApplySteps(corrected))
        comparison = compare(baseline, outcome)
        if explanation.gang in outcome.running:
            return (as_suggestion(text, corrected, comparison),)
    return ()


Edits = Iterator[tuple[str, Callable[[Spec], object], tuple[SuggestionStep, ...]]]
"""Text, change of the pod spec, and what is created before."""


class _Reference(Struct, frozen=True):
    """A name in a pod spec, in ``field``, and the one that was probably meant, or ""."""

    kind: str
    field: str
    name: str
    nearest: str


def _scheduler_edits(
    _documents: Sequence[Document], cluster: LoadedCluster, workload: Document
) -> Edits:
    named = {spec.get("schedulerName") for spec in pod_specs([workload])}
    for each in cluster.snapshot.misnamed_schedulers:
        if each.named in named:
            text = f"correct schedulerName {each.named} to {each.meant}"
            yield text, partial(_set, "schedulerName", each.meant), ()
            return


def _reference_edits(
    documents: Sequence[Document], _cluster: LoadedCluster, workload: Document
) -> Edits:
    wrong = _unknown_reference(documents, workload)
    if wrong is None:
        return
    if wrong.nearest:
        text = f"correct {wrong.kind} {wrong.name} to {wrong.nearest}"
        yield text, partial(_set, wrong.field, wrong.nearest), ()
    elif wrong.kind == SERVICE_ACCOUNT:
        meta = {"name": wrong.name, "namespace": workload["metadata"]["namespace"]}
        account = create({"apiVersion": "v1", "kind": SERVICE_ACCOUNT, "metadata": meta})
        yield f"create ServiceAccount {wrong.name}", lambda _: None, (account,)


def _set(field: str, value: str, spec: Spec) -> None:
    spec[field] = value


def workload_named(documents: Sequence[Document], subject: Subject, name: str) -> Document | None:
    """The object with a template of pods that a subject is, None for other subjects."""
    if subject not in (Subject.JOB, Subject.GANG, Subject.WORKLOAD):
        return None
    *place, own_name = name.split("/")
    namespace = place[0] if place else "default"
    kind = place[1] if len(place) > 1 else "Job" if subject is Subject.JOB else ""
    return next(
        (
            each
            for each in documents
            if each["metadata"]["name"] == own_name
            and each["metadata"].get("namespace") == namespace
            and each["kind"] != "Pod"
            and kind.lower() in ("", each["kind"].lower())
            and pod_specs([each])
        ),
        None,
    )


def pods_below(documents: Sequence[Document], workload: Document) -> list[Document]:
    """The pods below the workload, directly or by other objects."""
    return [each for each in objects_below(documents, workload) if each["kind"] == "Pod"]


def objects_below(documents: Sequence[Document], workload: Document) -> list[Document]:
    """The objects that the workload owns, directly or by other objects."""
    owned: dict[str, list[Document]] = {}
    for each in documents:
        for owner in owners_of(each):
            owned.setdefault((owner or {}).get("uid", ""), []).append(each)
    uids, found = [workload["metadata"].get("uid")], list[Document]()
    while uids:
        below = owned.pop(uids.pop() or "", ())
        found += below
        uids += [each["metadata"].get("uid") for each in below]
    return found


def has_ended(workload: Document) -> bool:
    """Whether a Job, or another workload with its conditions, is complete or has failed."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    ended = {"Complete", "Failed"}
    return any(each["type"] in ended and each["status"] == "True" for each in conditions)


def _had_pods(workload: Document) -> bool:
    """Whether pods of a Job have failed or ended, so that the API server does not refuse them."""
    status = workload.get("status") or {}
    return bool(status.get("failed") or status.get("succeeded") or status.get("terminating"))


def _unknown_reference(documents: Sequence[Document], workload: Document) -> _Reference | None:
    """The first name that its pods have and that does not exist, as far as such are known."""
    namespace = workload["metadata"].get("namespace", "")
    classes = {each["metadata"]["name"] for each in documents if each["kind"] == "PriorityClass"}
    # Every namespace has an account: if none is here, they could not be read.
    accounts = {
        each["metadata"]["name"]
        for each in documents
        if each["kind"] == SERVICE_ACCOUNT and each["metadata"].get("namespace") == namespace
    }
    for spec in pod_specs([workload]):
        named = spec.get("priorityClassName") or ""
        if named and named not in classes and named not in BUILT_IN_CLASSES:
            nearest = closest_match(named, sorted(classes)) or ""
            return _Reference("PriorityClass", "priorityClassName", named, nearest)
        named = account_of(workload)
        if named and accounts and named not in accounts:
            nearest = closest_match(named, sorted(accounts)) or ""
            return _Reference(SERVICE_ACCOUNT, "serviceAccountName", named, nearest)
    return None


def key_of(document: Document) -> str:
    """NAMESPACE/KIND/NAME."""
    meta = document["metadata"]
    return f"{meta.get('namespace', '')}/{document['kind']}/{meta['name']}"


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
    same_namespace = pod["metadata"].get("namespace") == meta.get("namespace")
    return same_namespace and meta["name"] in named_claims(pod)


def _named(documents: Sequence[Document], kind: str, name: str) -> Iterator[Document]:
    for each in documents:
        meta = each["metadata"]
        if each["kind"] == kind and f"{meta.get('namespace', 'default')}/{meta['name']}" == name:
            yield each
