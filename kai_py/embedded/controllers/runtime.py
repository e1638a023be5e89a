"""Runtime of the controllers: maps changes to keys, and reconciles them.

Every change of the store names the keys that each controller must reconcile. Keys wait in one queue
without duplicates and are processed on the clock, in order of arrival; a reconcile function reads
the present state and writes what is missing, so repeating it is harmless. Everything runs on the
clock's thread: under a simulated clock the order is the same in every run.

A controller that cannot do its work for an object reports that in a warning: a core/v1 Event, with
a count when it repeats.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from kai_py.api.times import backoff_seconds, format_time
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import (
    Json,
    controller_of,
    name_of,
    namespace_of,
    short_hash,
    uid_of,
)
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import EVENTS, PODS, ServedResource
from kai_py.embedded.store import Change, ChangeType

if TYPE_CHECKING:
    from kai_py.embedded.clock import Timer

KEYS_PER_TURN = 200
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
"""Before a refused key is reconciled again; doubled each time, as by Kubernetes' controllers."""

Key: TypeAlias = tuple[str, ...]
"""Key of an object to reconcile, usually (namespace, name)."""

log = logging.getLogger(__name__)


class Work(Struct, frozen=True):
    """One reconciliation of one key; `requeue_after` requests another one later."""

    api: ApiServer
    key: Key
    requeue_after: Callable[[float], None]

    @property
    def now(self) -> float:
        """The time of this reconciliation, Unix seconds."""
        return self.api.clock.now()


class Controller(Struct, frozen=True, kw_only=True):
    """A mapping of changes to keys, and the function that reconciles a key.

    `storages` are the kinds whose changes matter; empty means all kinds.
    """

    name: str
    reconcile: Callable[[Work], None]
    keys: Callable[[ApiServer, Change], Iterable[Key]]
    storages: frozenset[str] = frozenset()


class Runtime:
    """The queue of all controllers."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._controllers: list[Controller] = []
        # A dict takes longer for its first key the more keys were removed before.
        self._queue: OrderedDict[tuple[int, Key], None] = OrderedDict()
        self._failed: dict[tuple[str, Key], None] = {}
        self._retries: dict[tuple[int, Key], tuple[int, Timer]] = {}
        self._scheduled = False
        self._stopped = False
        api.store.subscribe(self._receive)

    def add(self, controller: Controller) -> None:
        """Run a controller from the next change on."""
        self._controllers.append(controller)

    def stop(self) -> None:
        """Reconcile no more keys."""
        if not self._stopped:
            self._stopped = True
            self._api.store.unsubscribe(self._receive)

    def resync(self) -> None:
        """Reconcile every object, as after a start: earlier changes are in no queue."""
        store = self._api.store
        for resource in self._api.registry.storages():
            for document in store.list(resource.storage):
                change = Change(ChangeType.ADDED, resource.storage, document, None, store.revision)
                self._receive(change)

    def _receive(self, change: Change) -> None:
        for number, controller in enumerate(self._controllers):
            if controller.storages and change.storage not in controller.storages:
                continue
            try:
                keys = tuple(controller.keys(self._api, change))
            except Exception as error:
                self._log_failure(controller, key_of(change.object), error)
                continue
            for key in keys:
                self._enqueue(number, key)

    def _enqueue(self, number: int, key: Key) -> None:
        # A key that is queued already keeps its place.
        self._queue[number, key] = None
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._api.clock.call_later(0, self._run_batch)

    def _run_batch(self) -> None:
        self._scheduled = False
        # A bounded batch, so that requests are served between batches.
        for _ in range(min(KEYS_PER_TURN, len(self._queue))):
            if self._stopped:
                return
            # Before reconciling: a change in the meantime must queue the key again.
            (number, key), _ = self._queue.popitem(last=False)
            self._reconcile(number, key)
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._api.clock.call_later(0, self._run_batch)

    def _reconcile(self, number: int, key: Key) -> None:
        controller = self._controllers[number]
        requeue = partial(self._requeue, number, key)
        try:
            controller.reconcile(Work(self._api, key, requeue))
        except RequestError as error:
            log.info("%s: %s: %s", controller.name, "/".join(key), error.message)
            self._retry_later(number, key)
        except Exception as error:
            # As in Kubernetes, one object stops no controller; it is tried again when it changes.
            self._log_failure(controller, key, error)
        else:
            self._retries.pop((number, key), None)

    def _retry_later(self, number: int, key: Key) -> None:
        """Reconcile a refused key again after a backoff, which replaces one that still runs."""
        refusals, timer = self._retries.get((number, key), (0, None))
        if timer is not None:
            timer.cancel()
        wait = backoff_seconds(refusals + 1, RETRY_SECONDS, MAX_RETRY_SECONDS)
        later = self._api.clock.call_later(wait, partial(self._enqueue, number, key))
        self._retries[number, key] = refusals + 1, later

    def _log_failure(self, controller: Controller, key: Key, error: Exception) -> None:
        """Log the exception, once per controller and object; at level debug with its trace."""
        if (controller.name, key) not in self._failed:
            self._failed[controller.name, key] = None
            text = f"{controller.name}: {'/'.join(key)} could not be reconciled"
            problem, trace = f"{type(error).__name__}: {error}", log.isEnabledFor(logging.DEBUG)
            log.error("%s: %s", text, problem, exc_info=trace)

    def _requeue(self, number: int, key: Key, delay: float) -> None:
        self._api.clock.call_later(delay, partial(self._enqueue, number, key))


def key_of(document: Json) -> Key:
    """Return (namespace, name)."""
    return namespace_of(document), name_of(document)


def keys_of(resource: ServedResource) -> Callable[[ApiServer, Change], Iterable[Key]]:
    """The key of a changed object of ``resource``, or of the one that controls a changed object."""

    def keys(_api: ApiServer, change: Change) -> Iterable[Key]:
        if change.storage == resource.storage:
            yield key_of(change.object)
        else:
            owner = controller_of(change.object)
            if owner and owner["kind"] == resource.kind:
                yield namespace_of(change.object), owner["name"]

    return keys


def owned_objects(api: ApiServer, owner: Json, storage: str = PODS.storage) -> Sequence[Json]:
    """The objects of a kind that `owner` controls, by name."""
    found = [
        document
        for kind, document in api.store.dependents(uid_of(owner))
        if kind == storage and (controller_of(document) or {}).get("uid") == uid_of(owner)
    ]
    return sorted(found, key=name_of)


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
