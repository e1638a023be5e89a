"""Visibility: a reader sees its own gangs and queues of a cycle, and the others only as sums.

A reader sees the gangs of the namespaces whose pods it may list, the queues that it may get, and
those that its namespaces use or are named by, with the queues above them: their sums bound what
the gangs can get. Names of nodes are shown to those who may list nodes.

Everything else is left out of an answer or counted (``tenant_answers``). Texts may name other
gangs, so names of hidden namespaces are replaced in every text.
"""

from collections.abc import Collection
from typing import Any

from msgspec import Struct, field

from kai_py.api.workload_names import without_names, without_queues
from kai_py.observe.cluster_view import ClusterView
from kai_py.snapshot.tables.queue_access import QueueAccess
from kai_py.snapshot.tables.queues import with_ancestors

MAX_TEXT = 65_536
QUEUE_FIELDS = frozenset({"queue", "parent", "preemptor_queue"})
GANG_FIELDS = frozenset({"gang", "claim"})
POSITION_FIELDS = frozenset({"queue_position", "queue_length"})


class Visibility(Struct, frozen=True):
    """Namespaces whose gangs, and queues whose rows a reader sees; ``nodes``: names of nodes.

    ``hidden``: the other namespaces that have gangs or claims. ``unreviewed``: how many of them
    were not looked at, because there are too many; they count as hidden. ``hidden_queues``: those
    that texts do not name: neither seen nor named by an own gang. ``missing_queues``: those that
    own gangs name and that do not exist.
    """

    namespaces: frozenset[str]
    queues: frozenset[str]
    nodes: bool
    hidden: frozenset[str] = field(default_factory=frozenset)
    unreviewed: int = 0
    hidden_queues: frozenset[str] = field(default_factory=frozenset)
    missing_queues: frozenset[str] = field(default_factory=frozenset)

    def sees(self, key: str) -> bool:
        """Whether the gang, pod or claim NAMESPACE/… may be seen."""
        return key.partition("/")[0] in self.namespaces

    def counts_gangs_of(self, queue: str) -> bool:
        """Whether the reader may know how many gangs of a queue are pending."""
        return queue in self.queues

    def text(self, text: str) -> str:
        """A text without names of workloads in hidden namespaces and of hidden queues."""
        shown = without_names(text[:MAX_TEXT], self.hidden)
        return without_queues(shown, self.hidden_queues.__contains__)

    def redacted(self, value: Any) -> Any:
        """JSON without what is hidden: records of hidden gangs, names of queues, names in texts.

        A record in a list that is about a hidden gang, claim, queue or other object is left out.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            shown = {key: self._field(key, each) for key, each in value.items()}
            if value.get("queue") and not self.counts_gangs_of(value["queue"]):
                shown |= dict.fromkeys(POSITION_FIELDS & shown.keys(), 0)
            return shown
        if isinstance(value, list):
            return [self.redacted(each) for each in value if not self._is_hidden(each)]
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name in QUEUE_FIELDS and isinstance(value, str):
            return value if value in self.queues | self.missing_queues else ""
        return self.redacted(value)

    def _is_hidden(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        namespace = value.get("namespace")
        if isinstance(namespace, str) and namespace in self.hidden:
            return True
        keys = [value[name] for name in GANG_FIELDS & value.keys()]
        if not keys and value.get("queue"):
            return not self._field("queue", value["queue"])
        return any(isinstance(key, str) and key and not self.sees(key) for key in keys)


def workload_namespaces(view: ClusterView) -> frozenset[str]:
    """The namespaces that have gangs or claims."""
    snapshot = view.snapshot
    claims = (claim.metadata.namespace for claim in snapshot.devices.claims.values())
    return frozenset((*(key.partition("/")[0] for key in snapshot.gangs), *claims))


def own_queues(view: ClusterView, namespaces: Collection[str]) -> frozenset[str]:
    """Queues that gangs of ``namespaces`` use, or that name one of them; none closed to them.

    A queue that does not exist is used by gangs on nodes alone: it may have been closed to others.
    """
    snapshot = view.snapshot
    access = QueueAccess(lambda: snapshot.queues, lambda: snapshot.namespaces)
    access.update()
    existing = {spec.name for spec in snapshot.queues}
    used = {
        gang.queue
        for key, gang in snapshot.gangs.items()
        if (namespace := key.partition("/")[0]) in namespaces
        and (gang.queue in existing or gang.bound)
        and access.accepts(gang.queue, namespace)
    }
    named = {
        spec.name
        for spec in snapshot.queues
        if spec.namespaces is not None and not set(namespaces).isdisjoint(spec.namespaces.names)
    }
    return frozenset(used | named)


def named_queues(view: ClusterView, namespaces: Collection[str]) -> frozenset[str]:
    """Queues that gangs of ``namespaces`` name, whether they may use them or not, and all above."""
    named = {
        gang.queue
        for key, gang in view.snapshot.gangs.items()
        if key.partition("/")[0] in namespaces
    }
    return with_ancestors(named, view.snapshot.queues)
