"""A change of one field of a Queue's spec, of our Queue or KAI's.

The server drops a misspelt field silently; here it is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kai_py.api.queue import API_VERSION, InvalidQueueError, read_queue
from kai_py.api.records.decoding import convert_record
from kai_py.api.records.kai import QUEUE_API_VERSION, KaiQueue, KaiQueueSpec
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import clone
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import ServedResource
from kai_py.simulate.changes import ChangeError, UnknownNameError
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.objects import Document


@dataclass(frozen=True, slots=True)
class SetQueue:
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
