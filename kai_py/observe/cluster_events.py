"""Events (events.k8s.io/v1) as the cluster has them."""

from kai_py.api.records.core import ObjectMeta, Record
from kai_py.watch.resource import define_kind


class EventObject(Record, frozen=True):
    """The object that an event regards."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ClusterEvent(Record, frozen=True):
    """events.k8s.io/v1 Event: ``type`` is Normal or Warning, ``note`` a sentence."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: EventObject = EventObject()


CLUSTER_EVENTS = define_kind(ClusterEvent, "Event", "events", "v1", group="events.k8s.io")
