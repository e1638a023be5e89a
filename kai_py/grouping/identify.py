"""Which gang does a pod belong to, in which queue, with which floor?

Explicit annotations on the pod win. Else the controlling owner decides: the pods of a parallel Job
with a queue of ours are one gang; pods of anything else are placed one by one.

The queue is looked up on the pod, its controllers from the nearest to the top, and the namespace,
as an annotation or label; the first that names one decides.
"""

from collections.abc import Iterator, Mapping

from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import Job, ObjectMeta, OwnerReference, Pod
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.owners import OwnerObject, Owners

POD_GROUP_KEY = "scheduling.kai.io/pod-group"
MIN_AVAILABLE_KEY = "scheduling.kai.io/min-available"
COMPLETION_INDEX_KEY = "batch.kubernetes.io/job-completion-index"
LONGEST_CHAIN = 8


def identify(pod: Pod, owners: Owners, *, default_queue: str = "") -> GangSpec:
    """The gang of ``pod``, as far as its owners are known."""
    chain = list(_controllers(pod, owners))
    queue = _queue(pod, chain, owners) or default_queue
    named = _marked(pod.metadata, POD_GROUP_KEY)
    if named:
        return _explicit(pod, named, queue)
    reference = controller(pod.metadata)
    if reference is not None and reference.kind == "Job":
        return _job(pod, reference, chain, queue)
    return _alone(pod, queue)


def controller(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that controls an object."""
    return next((owner for owner in meta.owner_references if owner.controller), None)


def _controllers(pod: Pod, owners: Owners) -> Iterator[tuple[OwnerReference, OwnerObject]]:
    reference = controller(pod.metadata)
    for _ in range(LONGEST_CHAIN):
        found = owners.owner(reference) if reference is not None else None
        if reference is None or found is None:
            return
        yield reference, found
        reference = controller(found.metadata)


def _queue(pod: Pod, chain: list[tuple[OwnerReference, OwnerObject]], owners: Owners) -> str:
    for meta in (pod.metadata, *(found.metadata for _, found in chain)):
        queue = _marked(meta, QUEUE_NAME_KEY)
        if queue:
            return queue
    namespace = owners.namespace(pod.metadata.namespace)
    return _marked(namespace.metadata, QUEUE_NAME_KEY) if namespace is not None else ""


def _marked(meta: ObjectMeta, key: str) -> str:
    return meta.annotations.get(key) or meta.labels.get(key) or ""


def _explicit(pod: Pod, name: str, queue: str) -> GangSpec:
    namespace = pod.metadata.namespace
    floor, problem = _min_available(pod.metadata, default=1)
    return GangSpec(
        key=f"{namespace}/PodGroup/{name}",
        owner=_pod_owner(pod),
        queue=queue,
        tree=Subgroup(min_members=floor),
        problem=f"pod {namespace}/{pod.metadata.name}: {problem}" if problem else "",
    )


def _job(
    pod: Pod,
    reference: OwnerReference,
    chain: list[tuple[OwnerReference, OwnerObject]],
    queue: str,
) -> GangSpec:
    namespace = pod.metadata.namespace
    job = next((found for _, found in chain if isinstance(found, Job)), None)
    if job is None:
        parallel, floor, problem = 0, 0, "not known yet, so neither is the size of the gang"
    else:
        parallel = _active_pods(job)
        floor, problem = _min_available(job.metadata, default=parallel if queue else 1)
    return GangSpec(
        key=f"{namespace}/Job/{reference.name}",
        owner=Owner(reference.api_version, "Job", namespace, reference.name, reference.uid),
        queue=queue,
        tree=Subgroup(min_members=floor),
        order=_index(pod.metadata.labels),
        expected_pods=parallel,
        problem=f"Job {namespace}/{reference.name}: {problem}" if problem else "",
    )


def _active_pods(job: Job) -> int:
    """How many pods the Job controller keeps at a time: fewer when little is left to complete."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        return parallelism
    return max(min(parallelism, job.spec.completions - job.status.succeeded), 0)


def _alone(pod: Pod, queue: str) -> GangSpec:
    meta = pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=_pod_owner(pod),
        queue=queue,
        tree=Subgroup(min_members=1),
        expected_pods=1,
    )


def _pod_owner(pod: Pod) -> Owner:
    return Owner("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _index(labels: Mapping[str, str]) -> int:
    text = labels.get(COMPLETION_INDEX_KEY, "")
    return int(text) if text.isdecimal() else 0


def _min_available(meta: ObjectMeta, default: int) -> tuple[int, str]:
    text = _marked(meta, MIN_AVAILABLE_KEY)
    if not text:
        return default, ""
    if text.isdecimal():
        return int(text), ""
    return default, f'{MIN_AVAILABLE_KEY} must be a whole number of at least 0, is "{text}"'
