"""An API server in this process, with faults at chosen calls: what commit is tested against."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from prometheus_client import CollectorRegistry

from kai_py.api.records.core import (
    Condition,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    SelectorRequirement,
)
from kai_py.api.records.node import Node, NodeSpec, NodeStatus
from kai_py.api.records.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, CallLimit
from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.committer import Committer
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.events import EventRecorder, TokenBucket
from kai_py.commit.eviction import ForcedEvictions
from kai_py.commit.retry import RetryPolicy
from kai_py.commit.settings import CommitSettings
from kai_py.commit.transaction import GangOutcome, GangTransaction
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.clock import RealClock
from kai_py.embedded.documents import Identity
from kai_py.embedded.errors import RequestError as Refusal
from kai_py.embedded.resources import CLAIMS, NAMESPACES, PODS, Registry
from kai_py.embedded.routing import parse_path
from kai_py.embedded.store import Store
from kai_py.embedded.writes import WriteRequest, execute, read
from kai_py.grouping.gang import FailureLimit, Owner
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Action, ClaimAllocation, Eviction, GangPlacement, Placement
from kai_py.watch import kinds
from kai_py.watch.client import Client
from kai_py.watch.errors import TimedOut, from_response
from kai_py.watch.transport import ApiCall
from tests.support import worlds
from tests.support.records import replace

NAMESPACE = "team-a"
DRIVER = "gpu.example.com"
SCHEDULER = "kai-scheduler"
QUICK = RetryPolicy(attempts=4, base=0.001, maximum=0.002)
SETTINGS = CommitSettings(
    retry=QUICK,
    backoff=RetryPolicy(base=0.001, maximum=0.002),
    mirror_timeout=0.2,
    claim_grace=0.0,
    readiness=ReadinessPolicy(interval=0.001, timeout=0.05),
)
JOB = Owner(api_version="batch/v1", kind="Job", namespace=NAMESPACE, name="train", uid="job-uid")

Serve = Callable[[], Awaitable[bytes]]
Fault = Callable[[ApiCall, Serve], Awaitable[bytes]]


class Fresh:
    """A watch that shows everything at once."""

    def record_binding(self, pod) -> None:
        pass

    async def catch_up(self) -> str:
        return ""


def ready_node(name: str, *, uid: str = "", ready: str = "True", **spec) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=uid or f"{name}-uid"),
        spec=NodeSpec(**spec),
        status=NodeStatus(conditions=(Condition(type="Ready", status=ready),)),
    )


class Crashed(BaseException):
    """The process under test has ended: nothing it calls returns any more."""


class Cluster:
    """An API server and what a mirror of it would show."""

    def __init__(self) -> None:
        self.api = ApiServer(
            store=Store(), clock=RealClock(), identity=Identity(), registry=Registry()
        )
        self.api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.calls: list[ApiCall] = []
        self.faults: list[tuple[Callable[[ApiCall], bool], Fault]] = []
        self.holders = DeviceHolders()
        self.blind = False
        self.wakes: list[float] = []
        self.shown_nodes = {name: ready_node(name) for name in ("node-a", "node-b")}
        self.api.store.subscribe(self._mirror)

    def _mirror(self, change) -> None:
        if change.storage == CLAIMS.storage and not self.blind:
            old = _claim(change.previous) if change.previous else None
            gone = change.type.value == "DELETED"
            self.holders.apply(old, None if gone else _claim(change.object))

    async def send(self, call: ApiCall, *, timeout_seconds=None) -> bytes:
        self.calls.append(call)
        await asyncio.sleep(0)

        async def serve() -> bytes:
            return self._serve(call)

        for index, (matches, fault) in enumerate(self.faults):
            if matches(call):
                del self.faults[index]
                return await fault(call, serve)
        return await serve()

    def _serve(self, call: ApiCall) -> bytes:
        try:
            target = parse_path(call.path, self.api.registry)
            if call.verb == "get":
                return msgspec.json.encode(read(self.api, target))
            if call.verb == "list":
                items = self.api.list(target.resource, target.namespace)
                return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})
            body = msgspec.json.decode(call.body)
            request = WriteRequest(body, call.content_type, call.parameters)
            return msgspec.json.encode(execute(self.api, call.verb, target, request).document)
        except Refusal as refusal:
            answer = msgspec.json.encode(refusal.status())
            raise from_response(str(call), refusal.code, answer, {}) from refusal

    def fail_once(self, verb: str, kind: str, fault: Fault) -> None:
        self.faults.append((lambda call: (call.verb, call.kind) == (verb, kind), fault))

    def made(self, verb: str, kind: str) -> int:
        return sum((call.verb, call.kind) == (verb, kind) for call in self.calls)

    def access(self, transport=None, retry=QUICK) -> ApiAccess:
        return ApiAccess(
            client=Client(transport or self),
            pods=kinds.PODS.at(),
            served_claims=kinds.RESOURCE_CLAIMS.at,
            limiter=CallLimit(16),
            retry=retry,
            settle_pause=retry,
        )

    def add_pod(
        self, name: str, labels: dict[str, str] | None = None, finalizers=(), **spec
    ) -> PodRef:
        body = {
            "metadata": {"name": name, "labels": labels or {}, "finalizers": [*finalizers]},
            "spec": {"containers": [{"name": "main", "image": "i"}], "schedulerName": SCHEDULER}
            | spec,
        }
        uid = self.api.create(PODS, body, NAMESPACE)["metadata"]["uid"]
        return PodRef(NAMESPACE, name, uid)

    def add_claim(self, name: str, owner: PodRef | None = None) -> ClaimRef:
        exactly = {"deviceClassName": "gpu"}
        body = {
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        if owner is not None:
            reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
            body["metadata"]["ownerReferences"] = [reference | {"controller": True}]
        uid = self.api.create(CLAIMS, body, NAMESPACE)["metadata"]["uid"]
        return ClaimRef(NAMESPACE, name, uid)

    def pod(self, name: str) -> Pod | None:
        document = self.api.find(PODS, name, NAMESPACE)
        return kinds.PODS.at().decode(msgspec.json.encode(document)) if document else None

    def claim(self, name: str) -> ResourceClaim | None:
        document = self.api.find(CLAIMS, name, NAMESPACE)
        return _claim(document) if document else None

    def pods(self) -> list[Pod]:
        return [self.pod(document["metadata"]["name"]) for document in self.api.list(PODS)]

    def claims(self) -> list[ResourceClaim]:
        return [_claim(document) for document in self.api.list(CLAIMS)]

    def allocate(self, name: str, allocation: AllocationResult, *consumers: PodRef) -> None:
        """What another scheduler writes."""
        reserved = [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in consumers]
        status = {"allocation": msgspec.to_builtins(allocation), "reservedFor": reserved or None}
        self.api.patch_status(CLAIMS, self.api.find(CLAIMS, name, NAMESPACE), status)

    def devices(self) -> dict[str, tuple[str, ...]]:
        """Devices by the claims that hold them."""
        return {
            claim.metadata.name: tuple(r.device for r in claim.status.allocation.devices.results)
            for claim in self.claims()
            if claim.status.allocation
        }

    def nodes(self) -> dict[str, str]:
        """Nodes by the pods bound to them."""
        return {
            pod["metadata"]["name"]: node
            for pod in self.api.list(PODS)
            if (node := pod["spec"].get("nodeName"))
        }

    def committer(self, assume_cache, *, transport=None, settings=SETTINGS) -> Committer:
        access = self.access(transport, settings.retry)
        self.metrics = Metrics(CollectorRegistry())
        recorder = EventRecorder(
            access.client,
            TokenBucket(1e6, 1000),
            reporter=SCHEDULER,
            instance="test",
            on_dropped=self.metrics.events_dropped.inc,
            retry=QUICK,
        )
        return Committer(
            access=access,
            assume_cache=assume_cache,
            find_claim=lambda ref: self.current(self.claim(ref.name), ref.uid),
            holders=self.holders,
            event_writer=EventWriter(recorder, lambda _queue: None),
            metrics=self.metrics,
            settings=settings,
            wake=self.wakes.append,
            freshness=Fresh(),
            find_node=self.shown_nodes.get,
            find_pod=self.shown_pod,
        )

    def shown_pod(self, ref: PodRef) -> Pod | None:
        return self.current(self.pod(ref.name), ref.uid)

    def evictions(self, owner: Owner = JOB, limits: tuple[FailureLimit, ...] = ()):
        """Forced evictions; all pods are one gang of ``owner``, each with these limits."""

        def gangs():
            found = self.pods()
            members = tuple(
                replace(
                    worlds.member(pod.metadata.name, 1, pod.spec.node_name),
                    pod=PodRef.of(pod.metadata),
                    failure_limits=limits,
                )
                for pod in found
                if pod is not None and pod.metadata.deletion_timestamp is None
            )
            return [replace(worlds.gang("all"), owner=owner, members=members)]

        return ForcedEvictions(
            access=self.access(), scheduler_name=SCHEDULER, gangs=gangs, max_grace=1800.0
        )

    def current(self, record, uid):
        return record if record is not None and record.metadata.uid == uid else None


def _claim(document) -> ResourceClaim:
    return kinds.RESOURCE_CLAIMS.at().decode(msgspec.json.encode(document))


def device(name: str, node: str, **fields) -> AllocationResult:
    """One device of a node-local pool."""
    result = DeviceRequestAllocationResult(
        request="gpu", driver=DRIVER, pool=node, device=name, **fields
    )
    pinned = SelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return AllocationResult(
        devices=DeviceAllocationResult(results=(result,)),
        node_selector=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(pinned,)),)),
    )


def placed(pod: PodRef, node: str, claim: ClaimRef | None = None, allocation=None) -> Placement:
    new = (ClaimAllocation(claim, allocation),) if allocation is not None else ()
    return Placement(pod, node, new, (claim,) if claim is not None else ())


def gang_of(*placements: Placement) -> GangPlacement:
    return GangPlacement("team-a/Job/train", JOB, "queue-a", Action.ALLOCATE, placements)


def gang_with_claims(cluster: Cluster, size: int) -> GangPlacement:
    """Pods worker-i with a claim gpu-i each, all to go to node-a, onto devices gpu-i."""
    placements = []
    for index in range(size):
        pod = cluster.add_pod(
            f"worker-{index}",
            resourceClaims=[{"name": "gpu", "resourceClaimName": f"gpu-{index}"}],
        )
        claim = cluster.add_claim(f"gpu-{index}", pod)
        placements.append(placed(pod, "node-a", claim, device(f"gpu-{index}", "node-a")))
    return gang_of(*placements)


async def lose_answer(call: ApiCall, serve: Serve) -> bytes:
    """The server does it, the answer never comes."""
    await serve()
    raise TimedOut(f"{call}: no answer")


NO_ROLE = 'it is forbidden: User "u" cannot patch resource "pods" in API group ""'
"""As RBAC says it."""


def refuse(
    code: int,
    reason: str = "InternalError",
    retry_after: int | None = None,
    message: str = "injected",
) -> Fault:
    """The server does nothing but complain."""

    async def fault(call: ApiCall, _serve: Serve) -> bytes:
        status = Refusal(code, reason, message, retry_after=retry_after).status()
        raise from_response(str(call), code, msgspec.json.encode(status), {})

    return fault


def first(action: Callable[[], object]) -> Fault:
    """Something else happens just before the call is served."""

    async def fault(_call: ApiCall, serve: Serve) -> bytes:
        action()
        return await serve()

    return fault


def transaction(
    cluster: Cluster, gang: GangPlacement, settings=SETTINGS, transport=None, **options
) -> GangTransaction:
    """A transaction that knows nothing beside ``options``: no claims or pods, and no others."""
    beside = {
        "cached_claims": {},
        "report_waiting": lambda _pod, _note: None,
        "is_shared": lambda _uid: False,
        "find_node": lambda _name: Node(),
        "find_pod": lambda _pod: None,
    }
    access = cluster.access(transport, settings.retry)
    return GangTransaction(gang, access, cluster.holders, settings, **(beside | options))


async def run(
    cluster: Cluster, gang: GangPlacement, settings: CommitSettings = SETTINGS, transport=None
) -> GangOutcome:
    """What becomes of a gang, with claims and pods as the watch has them."""
    known = {claim.metadata.uid: claim for claim in cluster.claims()}
    begun = transaction(
        cluster, gang, settings, transport, cached_claims=known, find_pod=cluster.shown_pod
    )
    return await begun.run()


def assert_nothing_held(cluster: Cluster) -> None:
    assert cluster.nodes() == {}
    assert [c.metadata.name for c in cluster.claims() if c.status.allocation] == []
    assert [c.metadata.name for c in cluster.claims() if c.status.reserved_for] == []


def eviction_of(pod, *, suspend=False):
    return Eviction(
        pod=pod,
        node="node-a",
        gang="team-a/Job/train",
        owner=JOB,
        queue="queue-a",
        action=Action.PREEMPT,
        preemptor="team-a/Job/big",
        preemptor_queue="queue-a",
        reason="preempted by higher priority workload team-a/Job/big",
        suspend=suspend,
    )


async def carry_out(committer, plan):
    committer.commit(plan, now=0.0)
    assert await committer.drain(5.0)


def count(metric, *labels):
    return metric.labels(*labels)._value.get()
