"""Pods of workloads that were never applied, as their controllers would make them.

A HorizontalPodAutoscaler bounds the replicas of a workload before it has metrics. A target without
replicas is not scaled.

Source: k8s.io/kubernetes pkg/controller/podautoscaler (``reconcileAutoscaler``).
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kai_py.api.records.core import ObjectMeta, PodSpec
from kai_py.api.records.record import Record, record_decoder
from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.documents import owners_of, with_typed_nulls
from kai_py.embedded.errors import RequestError
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS, with_limits
from kai_py.embedded.resources import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
)
from kai_py.simulate.files.object_files import ObjectKey, RejectedObject
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.written_objects import with_spec

WORKLOADS = frozenset(
    (each.group, each.kind) for each in (JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
)
UNTIL_PODS_END: Mapping[str, Document] = {
    # No pod becomes ready here, so those that wait for others to be ready would never come.
    STATEFUL_SETS.kind: {"podManagementPolicy": "Parallel"},
    # What decides only once pods have ended, and what the embedded controller does not do.
    JOBS.kind: {"successPolicy": None, "backoffLimitPerIndex": None, "maxFailedIndexes": None},
}
"""Fields that differ in the workloads of which pods are made, by kind."""

JOB_CONTROLLER = "kubernetes.io/job-controller"
MAX_PODS = 100_000
"""Pods that are made in all; a Job may ask for 2^31."""


def pods_of_manifests(
    workloads: Sequence[tuple[ObjectKey, Document]],
    cluster: InProcessCluster,
    clock: SimulatedClock,
    rejected: list[RejectedObject],
) -> Iterator[Document]:
    """The pods of workloads, in this order, with ReplicaSets between and their volume claims.

    ``cluster``: one that holds what they need, without pods; ``clock``: its clock. Workloads that
    it refuses are added to ``rejected``.
    """
    made = _Made(cluster)
    for key, document in workloads:
        problem = made.create(key, document)
        if problem:
            rejected.append(RejectedObject(str(key), problem))
    clock.run_due()
    yield from made.objects()
    rejected += made.without_pods()


class _Template(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _WorkloadSpec(Record, frozen=True):
    template: _Template
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class _Workload(Record, frozen=True):
    """What is checked of a workload before it is created."""

    spec: _WorkloadSpec


_check = record_decoder(_Workload)


class _Made:
    """Workloads on an embedded cluster, and what its controllers made for them."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self._cluster = cluster
        self._uids: dict[str, str] = {}
        self._created: dict[str, tuple[ObjectKey, Document]] = {}
        self._pods = 0

    def create(self, key: ObjectKey, document: Document) -> str:
        """Create a workload; why that is refused, or ""."""
        try:
            pods = _pods_of(document)
        except ValueError as error:
            return str(error)
        if self._pods + pods > MAX_PODS:
            return f"requests {pods:,} pods: at most {MAX_PODS:,} in all are created"
        left_out = ("uid", "ownerReferences")  # Owners are not there, so it would be collected.
        meta = {k: v for k, v in document["metadata"].items() if k not in left_out}
        template = _with_limits(with_typed_nulls(document["spec"]["template"]))
        manifest = with_spec(document, {**UNTIL_PODS_END.get(key.kind, {}), "template": template})
        manager = document["spec"].get("managedBy")
        if key.kind == JOBS.kind and manager and manager != JOB_CONTROLLER:
            return f"spec.managedBy is {manager}, which is not run here: add the pods"
        manifest = with_spec(manifest, {"managedBy": None} if manager else {})
        try:
            uid = self._cluster.create({**manifest, "metadata": meta})["metadata"]["uid"]
        except RequestError as error:
            return error.message
        except Exception as error:  # it relies on types that only some fields are checked for
            return f"{key.kind} cannot be read: {error}"
        self._pods += pods
        self._uids[uid] = document["metadata"]["uid"]
        if pods:
            self._created[uid] = key, document
        return ""

    def objects(self) -> Iterator[Document]:
        """Pods, their volume claims and ReplicaSets; their owners have the uids of the files."""
        for made in self._made():
            meta = made["metadata"]
            references = [
                {**each, "uid": self._uids.get(each["uid"], each["uid"])}
                for each in owners_of(made)
            ]
            yield {**made, "metadata": {**meta, "ownerReferences": references}}

    def without_pods(self) -> Iterator[RejectedObject]:
        """Workloads whose pods are refused, and why."""
        parents: dict[str, list[str]] = {}
        pods: list[str] = []
        for made in self._made():
            uid = made["metadata"]["uid"]
            parents[uid] = [each["uid"] for each in owners_of(made)]
            pods += [uid] if made["kind"] == PODS.kind else ()
        served = {
            owner
            for pod in pods
            for parent in parents[pod]
            for owner in (parent, *parents.get(parent, ()))
        }
        for uid, (key, document) in self._created.items():
            if uid not in served:
                yield RejectedObject(str(key), f"gets no pods: {self._refusal(key, document)}")

    def _refusal(self, key: ObjectKey, document: Document) -> str:
        """Why the API server refuses a pod of a workload."""
        template = document["spec"]["template"]
        meta = {**(template.get("metadata") or {}), "name": "pod", "namespace": key.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        try:
            self._cluster.create(pod)
        except RequestError as error:
            return error.message
        return "its controller would create none"

    def _made(self) -> list[Document]:
        kinds = (REPLICA_SETS, PODS, VOLUME_CLAIMS)
        listed = [each for kind in kinds for each in self._cluster.api.list(kind)]
        return [each for each in listed if each["metadata"]["uid"] not in self._uids]


def _with_limits(template: Document) -> Document:
    """The template with limits for GPUs that are only requested, as for pods in files."""
    spec = template.get("spec") or {}
    lists = {name: list(map(with_limits, spec[name])) for name in CONTAINER_LISTS if spec.get(name)}
    return with_spec(template, lists)


def _pods_of(workload: Document) -> int:
    """How many pods a workload asks for; raises ValueError if it cannot be read."""
    _check(msgspec.json.encode(workload))
    spec = workload["spec"]
    counts = [spec.get(name) for name in ("replicas", "parallelism", "completions")]
    return (
        0 if spec.get("suspend") else min((each for each in counts if each is not None), default=1)
    )


AUTOSCALER = ("autoscaling", "HorizontalPodAutoscaler")


def bound_replicas(found: dict[ObjectKey, Document], workloads: list[ObjectKey]) -> None:
    """Set the replicas of those of ``workloads`` that an autoscaler names, within its bounds.

    A workload whose autoscaler cannot be read is not changed.
    """
    targets = set(workloads)
    for key, document in list(found.items()):
        spec = document.get("spec") if key[:2] == AUTOSCALER else None
        if not isinstance(spec, dict):
            continue
        target = _target(spec, key.namespace)
        if target is None or target not in targets:
            continue
        workload, least, most = found[target], spec.get("minReplicas"), spec.get("maxReplicas")
        given = workload.get("spec")
        replicas = given.get("replicas") if isinstance(given, dict) else 0
        replicas, least = 1 if replicas is None else replicas, 1 if least is None else least
        if type(replicas) is type(least) is type(most) is int and replicas:
            found[target] = with_spec(workload, {"replicas": min(max(replicas, least), most)})


def _target(spec: Document, namespace: str) -> ObjectKey | None:
    named = spec.get("scaleTargetRef")
    if not isinstance(named, dict):
        return None
    version, kind, name = (named.get(each) for each in ("apiVersion", "kind", "name"))
    if not (isinstance(version, str) and isinstance(kind, str) and isinstance(name, str)):
        return None
    return ObjectKey(version.rpartition("/")[0], kind, namespace, name)
