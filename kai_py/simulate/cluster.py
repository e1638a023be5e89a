"""The scheduler on a cluster that exists in memory only, in simulated time.

The objects live in an embedded cluster with its controllers and kubelets: Jobs create pods, pods
get claims, evicted pods are replaced. The planner is the one of the live scheduler; its input comes
from the store instead of watches, and its plans are executed in the same instant. The simulation is
deterministic: the same objects and changes give the same run.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kai_py.api.crd import crds
from kai_py.api.gpu_share import RESERVATION
from kai_py.api.numbers import shortened
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.commit.claims.recovery import find_leftover_claims, planned_pods
from kai_py.config import Configuration
from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import is_finished, owners_of
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.kubelet import PodTiming
from kai_py.embedded.resources import PODS as POD_RESOURCE
from kai_py.embedded.resources import ServedResource
from kai_py.embedded.store import Change, ChangeType
from kai_py.grouping.owner_chain import GroupKind
from kai_py.plan.plan import Eviction, GangPlacement, Nomination, Plan
from kai_py.planner import Planner
from kai_py.relevance import affects_plan
from kai_py.simulate.files.controllers import unused_reservations
from kai_py.simulate.files.objects import Document
from kai_py.simulate.plan_execution import PlanExecution
from kai_py.simulate.stored_documents import completed, was_never_applied
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.collection import Collection
from kai_py.watch.discovery import METADATA
from kai_py.watch.kinds import (
    PODS,
    RESOURCE_CLAIMS,
    WATCHED,
    WATCHED_BY_NAME,
    unsupported_version,
)
from kai_py.watch.resource import Kind
from kai_py.watch.wire import Envelope

log = logging.getLogger(__name__)

INSTANT = PodTiming(start=0.0, stop=0.0)
PLACEHOLDER_OWNERS = "unread-owners"
LOADING_ORDER = {kind.permission: place for place, kind in enumerate(WATCHED_BY_NAME.values())}
"""Pods last, so that each is derived once, from objects that are there."""
MAX_CYCLES_PER_INSTANT = 200
MAX_DEADLINES = 64
"""Deadlines for which cycles go on although nothing in the cluster changes."""


@dataclass
class SimulatedRun:
    """Decisions of a simulated time span; ``last_plan`` is the plan of the last cycle.

    ``starts``: when the first pods of each gang were placed, seconds since the epoch.
    """

    placements: list[GangPlacement] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    last_plan: Plan = field(default_factory=Plan)
    cycles: int = 0
    starts: dict[str, float] = field(default_factory=dict)


class SimulatedCluster:
    """Objects, controllers, kubelets and a planner on one simulated clock."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        start: float,
        timing: PodTiming = INSTANT,
        seed: int = 0,
    ) -> None:
        """Start with an empty cluster at ``start``, seconds since the epoch.

        ``seed`` determines the uids of new objects; it must differ from that of the simulated
        cluster whose objects are loaded.
        """
        self.clock = SimulatedClock(start)
        self.embedded = InProcessCluster(clock=self.clock, timing=timing, seed=seed)
        self.planner = Planner(configuration)
        self._scheduler_names = {configuration.scheduler_name, *configuration.scheduler_aliases}
        self.node_groups = {each.name: each for each in configuration.autoscaling.node_groups}
        self.departure_signals = configuration.node_departures.table
        self._collections = {
            kind.permission: Collection(kind, self._notify_planner) for kind in WATCHED
        }
        self._execution = PlanExecution(
            self.embedded.api,
            self.planner.builder,
            self.wake,
            self._find_claim,
            configuration.commit.binding_timeout,
        )
        self.changed = True
        self.next_deadline = math.inf
        """When the plan after the last cycle could differ though nothing changes."""
        self._has_new = True
        """Whether some of the loaded objects were never applied."""
        # Before the cluster starts: the planner must see its first objects.
        self.embedded.store.subscribe(self._on_store_change)
        self.embedded.start()
        self.embedded.create_all(crds().values())

    def load(self, documents: Iterable[Document]) -> None:
        """Load objects as they are, with uid and status; finished pods are left out.

        Owners that were not read are replaced by placeholders, so that their pods are no orphans.
        Owners of kinds that are not watched are followed from now on. Fields that an API server
        always sets are completed where a document lacks them; what is no object is left out. Of an
        object that is there twice the last counts, as for ``kubectl apply``.
        """
        store = self.embedded.store
        loaded = dict[tuple[str, str, str], tuple[str, Document]]()
        for document in self._completed(documents):
            storage = _storage_of(document)
            present = store.get(storage, *_key(document))
            if present is not None:
                store.remove(storage, present)
            loaded[storage, *_key(document)] = storage, document
        kept = sorted(loaded.values(), key=lambda each: LOADING_ORDER.get(each[0], -1))
        self._register_kinds(kept)
        self._has_new = any(was_never_applied(document) for _, document in kept)
        known = {document["metadata"].get("uid") for _, document in kept}
        for _, document in kept:
            for owner in owners_of(document):
                if owner["uid"] not in known:
                    known.add(owner["uid"])
                    store.insert(PLACEHOLDER_OWNERS, _placeholder(owner))
        for storage, document in kept:
            self._watch_owner_kind(storage, document)
            store.insert(storage, dict(document))

    def _completed(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The unfinished objects among ``documents``, with the halves and defaults of kinds."""
        served = {(each.api_version, each.kind): each for each in self.embedded.registry}
        for document in documents:
            resource = served.get((document.get("apiVersion", ""), document.get("kind", "")))
            if problem := unsupported_version(document):
                _say_left_out(document, problem)
                continue
            try:
                made = completed(document, resource)
                msgspec.convert(made, Envelope)
                if document["kind"] != "Pod" or not is_finished(made):
                    yield made
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                _say_left_out(document, repr(error))

    def documents(self) -> list[Document]:
        """Every object that the planner reads, as it is now."""
        self.clock.run_due()
        api = self.embedded.api
        read = [each for each in api.registry.storages() if each.storage in self._collections]
        return [document for resource in read for document in api.list(resource)]

    def take_changed(self) -> bool:
        """Whether anything relevant has changed since the last call."""
        changed, self.changed = self.changed, False
        return changed

    def wake(self) -> None:
        """Request another cycle although nothing changed."""
        self.changed = True

    def snapshot(self) -> Snapshot:
        """The present cluster as the scheduler sees it."""
        self.clock.run_due()
        return self.planner.freeze(self.clock.now())

    def first_snapshot(self) -> Snapshot:
        """The loaded objects as the scheduler sees them, before controllers add to them.

        The API server of a cluster may refuse what controllers create here, such as pods above a
        quota. Objects that were never applied have had no controllers, so they get their pods.
        """
        return self.snapshot() if self._has_new else self.planner.freeze(self.clock.now())

    def cycle(self) -> Plan:
        """Run one scheduling cycle and execute its plan."""
        snapshot = self.snapshot()
        plan, _ = self._decide(snapshot)
        deadline = self.planner.next_deadline(snapshot)
        self.next_deadline = math.inf if deadline is None else deadline
        return plan

    def _decide(self, snapshot: Snapshot) -> tuple[Plan, list[Eviction]]:
        """The plan, and those of its evictions that were not refused."""
        plan = self.planner.decide(snapshot)
        return plan, self._execution.execute(plan)

    def settle(self, limit: float) -> SimulatedRun:
        """Run cycles and events until nothing changes, or for ``limit`` seconds.

        What time alone changes counts, the first ``MAX_DEADLINES`` times.
        """
        run, end, deadlines = SimulatedRun(), self.clock.now() + limit, MAX_DEADLINES
        deadline = self._settle_now(run)
        while True:
            due = self.clock.next_due()
            is_deadline = False
            if deadlines and deadline is not None and (due is None or deadline < due):
                due, deadlines, is_deadline = deadline, deadlines - 1, True
            if due is None or due > end:
                return run
            self.clock.advance(max(due - self.clock.now(), 0.0))
            if is_deadline or self.changed:
                deadline = self._settle_now(run)

    def _settle_now(self, run: SimulatedRun) -> float | None:
        """Run cycles until one decides nothing new; when the next may, though nothing changes."""
        nominations = tuple[Nomination, ...]()
        for _ in range(MAX_CYCLES_PER_INSTANT):
            snapshot = self.snapshot()
            before, self.changed = self.embedded.store.revision, False
            plan, evictions = self._decide(snapshot)
            run.last_plan = plan
            run.cycles += 1
            run.placements += plan.placements
            for gang in plan.placements:
                run.starts.setdefault(gang.gang, snapshot.now)
            run.evictions += evictions
            # An empty plan is not enough: controllers may react to the writes of the one before.
            self.clock.run_due()
            is_settled = not (plan.placements or evictions)
            is_settled &= self.embedded.store.revision == before
            if is_settled and any((*self._release_leftovers(plan), *self._release_gpus())):
                is_settled = False
            # Pods may stay nominated for what terminating pods release at a later time.
            if is_settled and plan.nominations == nominations:
                return self.planner.next_deadline(snapshot)
            nominations = plan.nominations
        log.warning("the simulation does not converge at %s", self.clock.now())
        return None

    def _release_leftovers(self, plan: Plan) -> list[bool]:
        """Release the claims that nothing but pending pods has; whether each was changed.

        The scheduler waits for a grace period, as its view may be late; a simulation's is not.
        """
        leftovers = find_leftover_claims(
            self._collections[RESOURCE_CLAIMS.permission].objects.values(),
            self._collections[PODS.permission].objects.values(),
            self._scheduler_names,
            planned_pods(plan),
            self.planner.builder.releasable_claims.our_groups(),
        )
        return [self._execution.release(each.claim, each.consumers) for each in leftovers]

    def _release_gpus(self) -> list[bool]:
        """Delete the reservation pods of GPUs that no pod shares any more; one entry for each."""
        unused = unused_reservations(self._collections[PODS.permission].objects.values())
        for pod in unused:
            options = DeleteOptions(grace_seconds=0)
            delete(self.embedded.api, POD_RESOURCE, pod.metadata.name, RESERVATION, options)
        return [True] * len(unused)

    def _find_claim(self, claim: ClaimRef) -> ResourceClaim | None:
        claims = self._collections[RESOURCE_CLAIMS.permission].objects
        found: ResourceClaim | None = claims.get((claim.namespace, claim.name))
        return found

    def _on_store_change(self, change: Change) -> None:
        collection = self._collections.get(change.storage)
        if collection is None:
            return
        if change.type is ChangeType.DELETED:
            collection.remove(_key(change.object))
            return
        versions = collection.kind.versions
        decode = versions.get(change.object["apiVersion"].rpartition("/")[2])
        if decode is not None:
            collection.put(collection.read(decode, msgspec.Raw(change.encoded)))

    def _register_kinds(self, documents: Iterable[tuple[str, Document]]) -> None:
        """Accept writes to kinds without a definition; they are not validated."""
        served = self._served_kinds()
        for storage, document in documents:
            api_version, kind = document["apiVersion"], document["kind"]
            if (api_version, kind) in served:
                continue
            served.add((api_version, kind))
            plural = storage.removesuffix(f".{api_version.rpartition('/')[0]}")
            namespaced = "namespace" in document["metadata"]
            self._accept(api_version, kind, plural, namespaced=namespaced)

    def accept_kind(self, api_version: str, kind: str) -> bool:
        """Accept writes to a kind that the planner reads; whether the kind is accepted now."""
        if (api_version, kind) in self._served_kinds():
            return True
        group, _, version = api_version.rpartition("/")
        read = WATCHED_BY_NAME.get((group, kind))
        if read is None or version not in read.versions:
            return False
        self._accept(api_version, kind, read.plural, namespaced=read.namespaced)
        return True

    def _served_kinds(self) -> set[tuple[str, str]]:
        """API version and kind of what can be written."""
        return {(resource.api_version, resource.kind) for resource in self.embedded.registry}

    def _accept(self, api_version: str, kind: str, plural: str, *, namespaced: bool) -> None:
        group, _, version = api_version.rpartition("/")
        self.embedded.registry.add(
            ServedResource(
                group=group,
                version=version,
                plural=plural,
                kind=kind,
                namespaced=namespaced,
                custom=True,
            )
        )

    def _watch_owner_kind(self, storage: str, document: Document) -> None:
        """Pass owners to the planner, with the fields that the rules for their kind read."""
        group, _, version = document["apiVersion"].rpartition("/")
        name = document["kind"]
        decode = self.planner.owner_decoder(GroupKind(group, name)) or METADATA
        if storage not in self._collections:
            owners = Kind(name, f"{name.lower()}s", {version: decode}, group)
            self._collections[storage] = Collection(owners, self._notify_planner)
        elif (group, name) not in WATCHED_BY_NAME:
            self._collections[storage].kind.versions.setdefault(version, decode)

    def _notify_planner(self, kind: Kind[Any], old: Any, new: Any) -> None:
        self.changed = self.changed or affects_plan(old, new)
        self.planner.builder.apply(kind.collection_name, old, new)


def _storage_of(document: Document) -> str:
    group = document["apiVersion"].rpartition("/")[0]
    kind = WATCHED_BY_NAME.get((group, document["kind"]))
    return kind.permission if kind else f"{document['kind'].lower()}.{group}"


def _key(document: Document) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _placeholder(owner: Document) -> Document:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "metadata": {"name": f"{owner['kind']}-{owner['uid']}", "uid": owner["uid"]},
        "spec": {},
        "status": {},
    }


def _say_left_out(document: Document, reason: str) -> None:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else metadata
    log.warning("%s %s is left out: %s", document.get("kind"), shortened(str(name)), reason)
