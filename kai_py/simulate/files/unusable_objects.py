"""Objects in files about which nothing can be decided, or not all, each with the reason.

- Amounts that no API server would have accepted: a pod that asks for less than nothing would give
  its queue and node what is not there. One rule of the server is not applied: a request for GPUs
  without a limit is read as the limit, too, as lists made for comparisons often have it.
- Fields of another type than the API declares, which a simulation of all objects with their
  controllers cannot use. What the scheduler alone refuses (a Queue that contradicts itself, a
  quantity that is no number) may come from a cluster and is left out later, object by object.
- Queues whose conditions would say what is wrong with them, such as a parent that does not exist.
- Workloads whose pods only the controller of their framework creates: the reason says which gang
  their pods will be, and what keeps that gang from starting, such as a queue that does not exist.
- Owners that pods name and that are not given: the gangs of these pods are guessed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from kai_py.api.records.unstructured import mappings_in, value_at, values_at
from kai_py.embedded.errors import invalid
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS, node_amount_errors, pod_amount_errors
from kai_py.embedded.object_validation import decoding_error
from kai_py.grouping.owner_chain import GroupKind, OwnerObject
from kai_py.grouping.workload_gang import describe_start, first_template
from kai_py.plan.placement.next_pods import queue_refuses
from kai_py.planner import Planner
from kai_py.simulate.files.complete_objects import owner_keys, owner_uids, was_never_applied
from kai_py.simulate.files.created_workloads import created_workload
from kai_py.simulate.files.object_files import ObjectKey, RejectedObject, key_of
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.written_objects import with_spec
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_access import NamespaceLabels
from kai_py.snapshot.tables.queue_checks import check_queues
from kai_py.snapshot.tables.queue_tree import QueueTable, build_queue_table
from kai_py.watch.discovery import METADATA
from kai_py.watch.kinds import KAI_POD_GROUPS, NATIVE_GROUPS, WATCHED_BY_NAME

CONTAINERS = "spec.template.spec.containers"
SCHEDULER_FIELDS = ("schedulerName", "batchScheduler")
SUSPENSIONS = ("spec.suspend", "spec.runPolicy.suspend")
SIZES = ("spec.replicas", "spec.parallelism")
NO_CONTROLLER = "its controller creates its pods and is not run here: add the pods to these objects"
ABSENT = (
    "owns pods that wait and is not among these objects: add it, as it may decide their gang and "
    "queue"
)
NODE = GroupKind("", "Node")
POD_GROUPS = frozenset((KAI_POD_GROUPS.name, NATIVE_GROUPS.name))
"""Kinds by which pods name their gang, whatever owns them."""
NO_PODS = (GroupKind("", "Pod"), NODE)
"""Kinds with a rule of grouping that are no workloads."""


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


def queue_problems(snapshot: Snapshot) -> Iterator[RejectedObject]:
    """The problems in the conditions of queues; ``snapshot``: of the first cycle."""
    queues = snapshot.queues
    resources = sorted({name for each in queues for name in (*each.deserved, *each.max)})
    for problem in check_queues(queues, resources).problems:
        yield RejectedObject(f"Queue {problem.queue}", problem.reason)


def absent_owners(
    documents: Mapping[ObjectKey, Document], absent: Set[ObjectKey], snapshot: Snapshot
) -> Iterator[RejectedObject]:
    """The owners among ``absent`` of pods that wait and that are in no PodGroup.

    ``documents`` are completed, so they have these owners, too. ``snapshot``: of the first
    cycle.
    """
    if not absent:
        return
    seen: set[ObjectKey] = set()
    waiting = [
        _pod_or_owner(member, gang, documents)
        for gang in map(snapshot.gangs.__getitem__, snapshot.pending)
        for member in gang.members
        if member.state is PodState.PENDING and gang.owner.kind not in POD_GROUPS
    ]
    while waiting:
        key = waiting.pop()
        for owner in owner_keys(key, documents[key]):
            if owner in documents and owner not in seen:
                seen.add(owner)
                waiting.append(owner)
    yield from (RejectedObject(str(key), ABSENT) for key in seen & absent if key[:2] != NODE)


def _pod_or_owner(member: Member, gang: Gang, documents: Mapping[ObjectKey, Document]) -> ObjectKey:
    """The pod, or the Job that has no pods while it is suspended."""
    pod, owner = ObjectKey("", "Pod", member.pod.namespace, member.pod.name), gang.owner
    if pod in documents:
        return pod
    group = owner.api_version.rpartition("/")[0]
    return ObjectKey(group, owner.kind, owner.namespace, owner.name)


def workloads_without_pods(
    documents: Mapping[ObjectKey, Document],
    planner: Planner,
    snapshot: Snapshot,
    scheduler_names: Sequence[str],
) -> Iterator[RejectedObject]:
    """Problems of workloads that were never applied and own nothing.

    ``documents`` are completed: kinds whose controllers are played have their pods.
    ``snapshot``: of the first cycle. ``scheduler_names``: those of this scheduler.
    """
    owners = owner_uids(documents.values())
    workloads = [
        (key, document)
        for key, document in documents.items()
        if document["metadata"]["uid"] not in owners
        and was_never_applied(key, document)
        and _is_workload(key, document, planner)
    ]
    if workloads:
        queues = build_queue_table(snapshot.queues, ())[0]
        for key, document in workloads:
            created = created_workload(key, document)
            described = document if created is None or _is_suspended(document) else created
            missing = _what_is_missing(key, described, planner, queues, snapshot.namespaces)
            if missing.startswith(NO_CONTROLLER) and _names_another(document, scheduler_names):
                missing = f"{missing}; only pods with schedulerName {scheduler_names[0]} count"
            yield RejectedObject(str(key), missing)


def _is_workload(key: ObjectKey, document: Document, planner: Planner) -> bool:
    kind = GroupKind(key.group, key.kind)
    if created_workload(key, document) is not None:
        return True
    if kind in NO_PODS or any(0 in values_at(document, path) for path in SIZES):
        return False
    return planner.is_grouped(kind) or value_at(document, CONTAINERS) is not None


def _what_is_missing(
    key: ObjectKey,
    document: Document,
    planner: Planner,
    queues: QueueTable,
    namespaces: NamespaceLabels,
) -> str:
    if _is_suspended(document):
        return "it is suspended, so that it has no pods"
    kind = GroupKind(document["apiVersion"].rpartition("/")[0], document["kind"])
    try:
        gang = planner.gang_of_workload(
            document["apiVersion"],
            kind.kind,
            _decoded(kind, document, planner),
            first_template(document.get("spec")),
        )
    except ValueError as error:
        return str(error)
    if gang is None:
        return NO_CONTROLLER
    if gang.problem:
        return gang.problem
    described = f"{NO_CONTROLLER}; its gang starts with {describe_start(gang)}"
    # Its pods may name a queue where the workload names none.
    refused = gang.queue and queue_refuses(gang.queue, key.namespace, queues, namespaces)
    return f"{described}, but {refused.message.rstrip('.')}" if refused else described


def _is_suspended(document: Document) -> bool:
    return any(True in values_at(document, path) for path in SUSPENSIONS)


def _names_another(document: Document, scheduler_names: Sequence[str]) -> bool:
    """Whether a pod template of a workload does not name this scheduler, nor a field for all."""
    others = False
    for value in mappings_in(document.get("spec")):
        is_ours = any(value.get(field) in scheduler_names for field in SCHEDULER_FIELDS)
        is_template = "containers" in value
        if is_ours and not is_template:
            return False
        others = others or (is_template and not is_ours)
    return others


def _decoded(kind: GroupKind, document: Document, planner: Planner) -> OwnerObject:
    """The workload as the scheduler reads it; raises ValueError where it cannot."""
    watched = WATCHED_BY_NAME.get(kind)
    decode = planner.owner_decoder(kind) or METADATA
    if watched is not None:
        decode = watched.versions.get(document["apiVersion"].rpartition("/")[2], decode)
    found: OwnerObject = decode(msgspec.json.encode(document))
    return found


_OTHER_TYPE = re.compile("Expected `[^`]*`, got `")


def wrong_types(documents: Iterable[Document]) -> Iterator[str]:
    """A sentence for each object with such a field, which it names with its path."""
    for document in documents:
        group, _, version = document["apiVersion"].rpartition("/")
        # The definition of a custom resource may admit any type in spec and status.
        is_custom = "." in group and not group.endswith(".k8s.io")
        checked = {"metadata": document["metadata"]} if is_custom else document
        error = decoding_error(group, version, document["kind"], checked)
        if _OTHER_TYPE.match(error):
            yield f"{key_of(document)}: {error}"
