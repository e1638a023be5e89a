"""Events of the controllers: a core/v1 Event, with a count when it repeats."""

from kai_py.api.times import format_time
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json, name_of, namespace_of, short_hash, uid_of
from kai_py.embedded.resources import EVENTS


def record_warning(
    api: ApiServer,
    about: Json,
    reason: str,
    message: str,
    *,
    component: str = "kai-py-embedded",
) -> None:
    """Write a warning about an object, or count an equal one again."""
    namespace = namespace_of(about) or "default"
    now = format_time(api.clock.now())
    name = f"{name_of(about)}.{short_hash(f'{uid_of(about)}/{reason}/{message}/{component}')}"
    if api.find(EVENTS, name, namespace) is not None:
        api.edit(EVENTS, name, namespace, lambda event: _repeated(event, now))
        return
    event = {
        "metadata": {"name": name},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": name_of(about),
            "namespace": namespace_of(about),
            "uid": uid_of(about),
            "resourceVersion": about["metadata"]["resourceVersion"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning",
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    api.create(EVENTS, event, namespace)


def _repeated(event: Json, now: str) -> Json:
    return {**event, "count": event.get("count", 1) + 1, "lastTimestamp": now}
