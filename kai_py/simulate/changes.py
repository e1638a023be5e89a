"""Changes to a simulated cluster, for what-if questions.

A change is a value with ``apply``; what cannot be applied raises ``ChangeError`` that names the
object and says what is wrong with it.

The steps of a suggestion are carried out on a simulated cluster as on a real one.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.api.records.unstructured import mapping_at, value_at
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import controller_of, is_deleting, name_of, namespace_of
from kai_py.embedded.errors import RequestError
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.patches import apply_merge_patch
from kai_py.embedded.resources import NODES, PODS, SLICES
from kai_py.embedded.subresources import mark_disrupted
from kai_py.observe.suggestion import SuggestionStep, Verb
from kai_py.policy.fit import UNSCHEDULABLE
from kai_py.simulate.added_nodes import as_added, group_node
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.files.objects import Document
from kai_py.snapshot.gangs import Gang

SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "ownerReferences",
    "managedFields",
)


class ChangeError(ValueError):
    """The change can't be made to this cluster."""


class UnknownNameError(ChangeError):
    """An object that is to change does not exist; ``known``: those of its kind that do.

    The text has none of these: who asks may not be allowed to see them.
    """

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        super().__init__(what, name, self.known)

    def __str__(self) -> str:
        return f"{self.what} {self.name}: not found"


class ClusterChange(Protocol):
    """A change to try."""

    def apply(self, cluster: SimulatedCluster) -> None:
        """Make the change; raises ChangeError."""


def _label(document: Document) -> str:
    named = mapping_at(document, "metadata")
    return f"{document.get('kind')} {named.get('name') or named.get('generateName') or '-'}"


@contextmanager
def _refusals(label: str) -> Iterator[None]:
    """Turn what keeps objects from being created into a ChangeError that names them."""
    try:
        yield
    except ChangeError:
        raise
    except RequestError as error:
        raise ChangeError(f"{label}: {error.message}") from None
    except KeyError as error:
        raise ChangeError(f"{label}: {error.args[0]} is missing") from None
    except (AttributeError, TypeError, ValueError) as error:  # a value of another type
        raise ChangeError(f"{label}: cannot be read: {error}") from None


def _check_simulated(cluster: SimulatedCluster, document: Document) -> None:
    """Raise ChangeError for objects of which the simulated cluster has no kind."""
    api_version, kind = document["apiVersion"], document["kind"]
    if not cluster.accept_kind(api_version, kind):
        raise ChangeError(
            f"{_label(document)}: {kind} of {api_version} is not simulated; "
            "give the pods that its controller would create"
        )


class AddObjects(Struct, frozen=True):
    """Create objects as a user would: Jobs get their pods, pods their claims."""

    documents: Sequence[Document]

    def apply(self, cluster: SimulatedCluster) -> None:
        """Create them in their order."""
        for document in self.documents:
            with _refusals(_label(document)):
                _check_simulated(cluster, document)
                cluster.embedded.create(document)


class AddNodes(Struct, frozen=True):
    """Add ``count`` empty nodes that are like an existing one, ResourceSlices included.

    They are ready, also if that one is cordoned, not ready or about to go (``added_nodes``).

    With a ``pattern`` they are like the Node in it, which need not exist, with its ResourceSlices;
    ``like`` may also be a node group of the configuration, ``autoscaling.nodeGroups``.
    """

    like: str
    count: int
    pattern: Sequence[Document] = ()

    def apply(self, cluster: SimulatedCluster) -> None:
        """Create the nodes, and the ResourceSlices that their drivers would publish."""
        embedded = cluster.embedded
        with _refusals(f"node like {self.like}"):
            node, slices = self._node_documents(cluster)
            old = node["metadata"]["name"]
            for name in _free_names(embedded, self.like, self.count):
                added = _renamed(node, old, name)
                added["metadata"]["name"] = name
                added["metadata"].setdefault("labels", {})[HOSTNAME_LABEL] = name
                embedded.create(added)
                for each in slices:
                    embedded.create(_renamed_slice(each, old, name))

    def _node_documents(self, cluster: SimulatedCluster) -> tuple[Document, list[Document]]:
        api, group = cluster.embedded.api, cluster.node_groups.get(self.like)
        pattern = self.pattern
        if group is not None and not pattern and api.find(NODES, self.like) is None:
            pattern = group_node(group)
        slices = [each for each in pattern if each["kind"] == "ResourceSlice"]
        for document in pattern:
            if document["kind"] == "Node":
                return _usable(document), slices
        node = as_added(_node(api, self.like, cluster.node_groups), cluster.departure_signals)
        return node, [each for each in api.list(SLICES) if _is_of(each, self.like)]


def node_pattern(documents: Sequence[Document]) -> str:
    """The name of the single Node in ``documents``; raises ChangeError if they are no pattern."""
    for document in documents:
        if not value_at(document, "metadata.name"):
            raise ChangeError(f"{document.get('kind')}: has no metadata.name")
    kinds = [document.get("kind") for document in documents]
    if kinds.count("Node") != 1 or set(kinds) - {"Node", "ResourceSlice"}:
        raise ChangeError("must contain one Node, and its ResourceSlices")
    [node] = (document["metadata"]["name"] for document in documents if document["kind"] == "Node")
    for each in documents:
        if each["kind"] == "ResourceSlice" and not _is_of(each, node):
            raise ChangeError(f"ResourceSlice {each['metadata']['name']}: is not of node {node}")
    return str(node)


def _usable(node: Document) -> Document:
    """A node with the status of a ready one: its whole capacity is allocatable."""
    status = {**(node.get("status") or {})}
    status.setdefault("allocatable", status.get("capacity") or {})
    status.setdefault("capacity", status["allocatable"])
    status.setdefault("conditions", [{"type": "Ready", "status": "True"}])
    return {**node, "status": status}


class DrainNode(Struct, frozen=True):
    """Cordon a node and evict its pods, as if every budget allowed it.

    Their controllers create new ones. As with ``kubectl drain --ignore-daemonsets``, pods of
    DaemonSets stay.
    """

    name: str

    def apply(self, cluster: SimulatedCluster) -> None:
        """Cordon, then evict: a Job does not count an eviction as a failure if it says so."""
        api = cluster.embedded.api
        _node(api, self.name)
        api.edit(NODES, self.name, "", _cordoned)
        for pod in api.list(PODS):
            if pod["spec"].get("nodeName") == self.name and not _is_of_daemon_set(pod):
                if not is_deleting(pod):
                    mark_disrupted(api, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
                delete(api, PODS, name_of(pod), namespace_of(pod), DeleteOptions(grace_seconds=0))


class RemoveGang(Struct, frozen=True):
    """Delete a gang, named as ``kai-py gangs`` names it: its owner, or else its pods."""

    gang: str

    def apply(self, cluster: SimulatedCluster) -> None:
        """Delete the owner and the pods."""
        gang = _gang(cluster, self.gang)
        api = cluster.embedded.api
        owner = api.store.key_of_uid(gang.owner.uid)
        for resource in api.registry.storages():
            if owner is not None and resource.storage == owner[0] and resource is not PODS:
                delete(api, resource, owner[2], owner[1], DeleteOptions(policy="Background"))
        for member in gang.members:
            if api.find(PODS, member.pod.name, member.pod.namespace) is not None:
                options = DeleteOptions(grace_seconds=0)
                delete(api, PODS, member.pod.name, member.pod.namespace, options)


def _node(api: ApiServer, name: str, others: Iterable[str] = ()) -> Document:
    """The node; ``others``: names that would do as well."""
    node = api.find(NODES, name)
    if node is None:
        known = [each["metadata"]["name"] for each in api.list(NODES)]
        raise UnknownNameError("node", name, (*known, *others))
    return node


def _is_of_daemon_set(pod: Document) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def _cordoned(node: Document) -> Document:
    return {**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}}


def _is_of(slice_: Document, node: str) -> bool:
    return bool(value_at(slice_, "spec.nodeName") == node)


def _free_names(embedded: InProcessCluster, like: str, count: int) -> Iterator[str]:
    number = 0
    while count:
        number += 1
        name = f"{like}-added-{number}"
        if embedded.api.find(NODES, name) is None:
            count -= 1
            yield name


def _renamed(document: Document, old: str, new: str) -> Document:
    """A copy without fields set by the server, with every mention of the node replaced."""
    copy: Document = _with_name(document, old, new)
    meta = {key: value for key, value in copy["metadata"].items() if key not in SERVER_FIELDS}
    if new not in meta["name"]:
        meta["name"] = f"{meta['name']}-{new}"
    return {**copy, "metadata": meta}


def _renamed_slice(slice_: Document, old: str, new: str) -> Document:
    copy = _renamed(slice_, old, new)
    pool = copy["spec"]["pool"]
    if pool["name"] != new:
        pool["name"] = f"{pool['name']}-{new}"
    return copy


def _with_name(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_name(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_name(item, old, new) for item in value]
    return new if value == old else value


def _gang(cluster: SimulatedCluster, key: str) -> Gang:
    gangs = cluster.snapshot().gangs
    gang = gangs.get(key)
    if gang is None:
        raise UnknownNameError("gang", key, gangs)
    return gang


DELETE_WITH_DEPENDENTS = DeleteOptions(policy="Background", grace_seconds=0)


class ApplySteps(Struct, frozen=True):
    """A change made of steps, in order; all deletions come first."""

    steps: Sequence[SuggestionStep]

    def apply(self, cluster: SimulatedCluster) -> None:
        """Carry the steps out; raises ChangeError."""
        api = cluster.embedded.api
        try:
            # Dependents are listed after what they depend on: delete them in the opposite order.
            for step in reversed(self.steps):
                if step.verb in (Verb.REPLACE, Verb.DELETE):
                    _delete(api, step)
            cluster.clock.run_due()
            for step in self.steps:
                _apply_step(cluster, step)
        except (RequestError, KeyError) as error:
            raise ChangeError(str(error)) from None


def _delete(api: ApiServer, step: SuggestionStep) -> None:
    """Delete an object; what protects it while it is in use ends with its users."""
    resource = api.registry.of_kind(step.api_version, step.kind)
    if api.stored(resource, step.name, step.namespace)["metadata"].get("finalizers"):
        api.edit(resource, step.name, step.namespace, _without_finalizers)
    delete(api, resource, step.name, step.namespace, DELETE_WITH_DEPENDENTS)


def _apply_step(cluster: SimulatedCluster, step: SuggestionStep) -> None:
    api = cluster.embedded.api
    if step.verb is Verb.ADD_NODES:
        AddNodes(step.name, step.count).apply(cluster)
    elif step.verb is Verb.PATCH:
        resource = api.registry.of_kind(step.api_version, step.kind)
        api.edit(
            resource,
            step.name,
            step.namespace,
            lambda present: _without_cordon(apply_merge_patch(present, step.patch)),
        )
    elif step.document is not None:
        AddObjects([step.document]).apply(cluster)


def _without_finalizers(present: dict[str, Any]) -> dict[str, Any]:
    return {**present, "metadata": {**present["metadata"], "finalizers": []}}


def _without_cordon(changed: dict[str, Any]) -> dict[str, Any]:
    """As Kubernetes' node controller does: a node that is not cordoned lacks the taint for it."""
    spec = changed.get("spec") or {}
    if changed["kind"] != "Node" or spec.get("unschedulable") or not spec.get("taints"):
        return changed
    taints = [each for each in spec["taints"] if each["key"] != UNSCHEDULABLE.key]
    return {**changed, "spec": {**spec, "taints": taints}}


def combine_steps(
    earlier: Sequence[SuggestionStep], later: Sequence[SuggestionStep]
) -> tuple[SuggestionStep, ...]:
    """All steps, without the earlier ones to objects that a later one replaces."""
    replaced = {_object_key(step) for step in later if step.verb is Verb.REPLACE}
    return (*(step for step in earlier if _object_key(step) not in replaced), *later)


def _object_key(step: SuggestionStep) -> tuple[str, str, str]:
    return step.kind, step.namespace, step.name
