"""Text form of changes, shared by the command line and HTTP.

set        QUEUE.FIELD=VALUE, the value in YAML; none removes the field. Parts of a field with
           dots of their own, and entries of lists by their name, stand in brackets:
           team.resources[nvidia.com/gpu].max=4, team.devices[h100].max=2
add-nodes  NODE=COUNT, nodes like an existing one
drain      NODE
remove     GANG, as `kai-py gangs` names it

``set`` changes one field of the spec of a Queue, ours or KAI's. The server drops a misspelt field
silently; here it is an error.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.manifests import ManifestError, read_documents
from kai_py.api.numbers import shortened
from kai_py.api.queue import API_VERSION, InvalidQueueError, read_queue
from kai_py.api.records.kai import QUEUE_API_VERSION, KaiQueue, KaiQueueSpec
from kai_py.api.records.record import convert_record
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import clone
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import ServedResource
from kai_py.simulate.changes import (
    AddNodes,
    ChangeError,
    ClusterChange,
    DrainNode,
    RemoveGang,
    UnknownNameError,
)
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.files.objects import Document


class SetQueue(Struct, frozen=True):
    """Set one field of a Queue's spec; a ``value`` of None removes the field.

    For a name with dots, ``queue`` may be its first part and ``path`` begin with the others.
    """

    queue: str
    path: tuple[str, ...]
    value: Any

    def apply(self, cluster: SimulatedCluster) -> None:
        """Write the field, validated like any other write; raises ChangeError."""
        api = cluster.embedded.api
        resource, name, path = self._find_queue(api)
        try:
            api.edit(resource, name, "", lambda present: self._changed(present, path))
        except RequestError as error:
            raise ChangeError(f"Queue {name}: {error.message}") from None
        except InvalidQueueError as error:
            raise ChangeError(str(error)) from None

    def _find_queue(self, api: ApiServer) -> tuple[ServedResource, str, tuple[str, ...]]:
        served = [
            each
            for each in api.registry
            if each.kind == "Queue" and each.api_version in (API_VERSION, QUEUE_API_VERSION)
        ]
        # Longest name first: queue names may contain dots.
        for count in reversed(range(len(self.path))):
            name = ".".join((self.queue, *self.path[:count]))
            for resource in served:
                if api.find(resource, name) is not None:
                    return resource, name, self.path[count:]
        known = (queue["metadata"]["name"] for each in served for queue in api.list(each))
        raise UnknownNameError("Queue", self.queue, known)

    def _changed(self, present: Document, path: Sequence[str]) -> Document:
        changed: Document = clone(present)
        name = changed["metadata"]["name"]
        container: Any = changed.setdefault("spec", {})
        for part in path[:-1]:
            container = _entry(container, part, name)
        if self.value is None:
            container.pop(path[-1], None)
        else:
            container[path[-1]] = self.value
        if changed["apiVersion"] == API_VERSION:
            written = {"metadata": {"name": name}, "spec": changed["spec"]}
            read_queue(written, unknown="forbid")
        else:
            _check_kai_field(changed, path)
        return changed


def _entry(place: Any, part: str, queue: str) -> Any:
    """The value at ``part``: a key, created if missing, or an entry of a list by its name."""
    if isinstance(place, dict):
        return place.setdefault(part, {})
    for each in place if isinstance(place, list) else ():
        if each.get("name") == part:
            return each
    raise ChangeError(f"Queue {queue}: {part}: no such entry")


def _check_kai_field(queue: Document, path: Sequence[str]) -> None:
    name = queue["metadata"]["name"]
    record: Any = KaiQueueSpec
    for part in path:
        fields = {each.encode_name: each.type for each in msgspec.structs.fields(record)}
        if part not in fields:
            raise ChangeError(f"Queue {name}: spec.{'.'.join(path)}: KAI has no {part}")
        record = fields[part] if isinstance(fields[part], type) else msgspec.Struct
    try:
        convert_record(queue, KaiQueue)
    except msgspec.ValidationError as error:
        raise ChangeError(f"Queue {name}: {error}") from None


_QUEUE_FIELD = re.compile(r"(?P<queue>[^=.\[]+)(?P<path>(\.[^=.\[\]]+|\[[^\]]+\])+)=(?P<value>.*)")
_PART = re.compile(r"\.([^=.\[\]]+)|\[([^\]]+)\]")
MAX_SET_VALUES = 1000
"""Values in what a field is set to, those of an anchor counted wherever it is used."""
_NODES = re.compile(r"(?P<like>[^=]+)=(?P<count>[0-9]{1,4})")


def parse_set_queue(text: str) -> SetQueue:
    """Parse QUEUE.FIELD=VALUE; raises ChangeError."""
    match = _QUEUE_FIELD.fullmatch(text)
    if match is None:
        raise ChangeError(f"{text}: is not of the form NAME.FIELD=VALUE")
    try:
        documents = read_documents(match["value"])
    except ManifestError as error:
        raise ChangeError(f"{shortened(text)}: the value is not YAML: {error.reason}") from None
    if sum(each.values for each in documents) > MAX_SET_VALUES or len(documents) > 1:
        raise ChangeError(f"{shortened(text)}: the value is not a field of a Queue")
    value = documents[0].value if documents else None
    path = tuple(part or bracketed for part, bracketed in _PART.findall(match["path"]))
    return SetQueue(match["queue"], path, value)


def parse_add_nodes(text: str) -> AddNodes:
    """Parse NODE=COUNT; raises ChangeError."""
    match = _NODES.fullmatch(text)
    if match is None:
        raise ChangeError(f"{text}: is not of the form NODE=COUNT, with a COUNT below 10000")
    return AddNodes(match["like"], int(match["count"]))


CHANGES: Mapping[str, Callable[[str], ClusterChange]] = {
    "set": parse_set_queue,
    "add-nodes": parse_add_nodes,
    "drain": DrainNode,
    "remove": RemoveGang,
}


def parse_changes(pairs: Iterable[tuple[str, str]]) -> list[ClusterChange]:
    """The changes of (kind, text) pairs, in their order; raises ChangeError that names the pair."""
    found: list[ClusterChange] = []
    for kind, text in pairs:
        if kind not in CHANGES:
            raise ChangeError(f"{kind}: no such change; known changes are {', '.join(CHANGES)}")
        try:
            found.append(CHANGES[kind](text))
        except ChangeError as error:
            raise ChangeError(f"--{kind} {error}") from None
    return found


def in_order(changes: Iterable[ClusterChange]) -> tuple[ClusterChange, ...]:
    """The changes, with fields of Queues set last, as others of them may add the Queue."""
    return tuple(sorted(changes, key=lambda change: isinstance(change, SetQueue)))
