"""KAI's defaults for workloads that use its API and have no PodGroup.

KAI creates a PodGroup for every owner; in its place the gang that grouping derives gets KAI's
defaults. A workload uses KAI's API if the group that its pods name, else its top owner, else the
pod, has KAI's queue label; with the ``kai`` profile also if nothing names a queue of ours: then the
queue that the group's spec names, the label ``project`` (with ``-<node pool>`` where the pod names
one) and the default queue count.

priority          label ``priorityClassName`` or Ray's (if it may name the class, see
                  ``dialects.kai.priority``), else the pod's class, of those that
                  exist; else as the operator or KAI sets it for the kind of the workload
                  (``dialects.kai.kinds``); also for a native PodGroup that names no class,
                  whose priority is then what the API server fills in
preemptible       our annotation, else label ``kai.scheduler/preemptibility``, else as the operator
                  sets it for the kind, else below 100
minMember of Job  annotation ``kai.scheduler/batch-min-member``, else spec.scheduling, else 1
delay, grace      annotations ``kai.scheduler/preemption-delay``, ``…/staleness-grace-period``

The group that the pod names takes precedence. Then KAI looks for the queue on the top owner and
on the pod, for the preemptibility and the delay on the owners from the nearest to the top, and last
on the pod. For the priority it asks the nearest owner, the pod's labels and its class, and only
then the owners above. Of any other annotation on several objects the top owner's counts.

A workload that names a queue of ours has our defaults. What it says itself in KAI's words
(preemptibility, minMember of a Job, delay and grace) holds nevertheless, unless it says it in ours.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.numbers import NumberError, parse_count
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.job import Job
from kai_py.dialects.kai import keys
from kai_py.dialects.kai.keys import first_duration
from kai_py.dialects.kai.pod_groups import order_of
from kai_py.dialects.kai.priority import (
    KindDefaults,
    class_of,
    defaults_of,
    existing_class,
    is_preemptible,
    may_name,
    priority_of,
)
from kai_py.grouping.frameworks.job import BATCH_MIN_MEMBER_KEY, reachable_min_members
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.gang_settings import (
    GangSettings,
    Preemptibility,
    Wording,
    parse_preemptibility,
)
from kai_py.grouping.group_sources import PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners


class KaiQueueNaming(Struct, frozen=True):
    """How KAI's users name a queue; ``all_workloads``: also those that name no queue of ours.

    ``kind_defaults``: an operator's defaults for the workloads of a kind.
    """

    queue_label: str = keys.QUEUE
    all_workloads: bool = False
    default_queue: str = ""
    kind_defaults: tuple[KindDefaults, ...] = ()


class _WorkloadMetadata(Struct, frozen=True):
    """Metadata of the groups that the pod names, of its owners, nearest first, and of the pod."""

    groups: tuple[ObjectMeta, ...]
    owners: tuple[ObjectMeta, ...]
    pod: ObjectMeta

    def value(self, key: str) -> str:
        """A label or annotation of the group, else of the topmost object that has it."""
        return next(_values(key, (*self.groups, *reversed(self.owners), self.pod)), "")

    def nearest_value(self, key: str) -> str:
        """A label or annotation of the group, else of the nearest owner, else of the pod."""
        return next(_values(key, (*self.groups, *self.owners, self.pod)), "")

    def queue(self, key: str) -> str:
        """A label or annotation of the group, the top owner, the pod, or another owner."""
        top = self.owners[-1:]
        return next(_values(key, (*self.groups, *top, self.pod, *self.owners)), "")

    def preemptibility(self) -> Preemptibility | None:
        """The first valid one: a misspelt one of an object does not hide that of another."""
        values = _values(keys.PREEMPTIBILITY, (*self.groups, *self.owners, self.pod))
        parsed = map(parse_preemptibility, values)
        return next((each for each in parsed if each is not None), None)

    def priority_classes(self, own: str) -> Iterator[tuple[str, bool]]:
        """Classes, of which the first that exists counts, and whether a label names each.

        ``own``: the pod's, which is asked for with the nearest owner. Ray's label goes first.
        """
        yield self.value(keys.RAY_PRIORITY_CLASS), True
        yield from ((name, True) for name in _values(keys.PRIORITY_CLASS, self.groups))
        for owner in self.owners:
            labelled = next(_values(keys.PRIORITY_CLASS, (owner, self.pod)), "")
            yield labelled or own, bool(labelled)
        yield next(_values(keys.PRIORITY_CLASS, (self.pod,)), ""), True
        yield own, False


def _values(key: str, metas: Iterable[ObjectMeta]) -> Iterator[str]:
    found = (meta.labels.get(key) or meta.annotations.get(key) or "" for meta in metas)
    return filter(None, found)


def with_kai_defaults(spec: GangSpec, context: PodContext, naming: KaiQueueNaming) -> GangSpec:
    """``spec`` with KAI's defaults if the workload uses KAI's API, else as it is."""
    pod, owners = context.chain.pod, context.owners
    chain = context.chain
    metadata = _WorkloadMetadata(chain.groups, chain.metas[1:], chain.metas[0])
    if metadata.value(QUEUE_NAME_KEY) or _namespace_queue(pod, owners):
        return _as_annotated(spec, context, metadata)
    queue = metadata.queue(naming.queue_label)
    if not queue and not naming.all_workloads:
        return _as_annotated(spec, context, metadata)
    group_queue = spec.queue if spec.queue != context.queue.name else ""
    queue = queue or group_queue or _fallback_queue(metadata, pod, naming)
    return _with_defaults(spec, context, metadata, queue, naming.kind_defaults)


def _as_annotated(spec: GangSpec, context: PodContext, metadata: _WorkloadMetadata) -> GangSpec:
    """``spec`` with what the workload says in KAI's words, without KAI's defaults."""
    grace, delay, bad_duration = _durations(context, metadata)
    known = spec.settings
    if grace is not None and known.staleness_grace is None:
        spec = replace(spec, settings=replace(known, staleness_grace=grace))
    if delay is not None and not known.preemption_delay:
        spec = replace(spec, settings=replace(spec.settings, preemption_delay=delay))
    preemptibility = metadata.preemptibility()
    if preemptibility is not None and spec.preemptible is None:
        spec = replace(
            spec,
            preemptible=preemptibility is not Preemptibility.NON_PREEMPTIBLE,
            semi_preemptible=preemptibility is Preemptibility.SEMI_PREEMPTIBLE,
        )
    problem = spec.problem or bad_duration
    return spec if problem == spec.problem else replace(spec, problem=problem)


def _with_defaults(
    spec: GangSpec,
    context: PodContext,
    metadata: _WorkloadMetadata,
    queue: str,
    kind_defaults: tuple[KindDefaults, ...],
) -> GangSpec:
    pod = context.chain.pod
    defaults = tuple(defaults_of(context.chain, kind_defaults)) if kind_defaults else ()
    settings, problem = _gang_settings(spec, context, metadata, defaults)
    min_members, bad_min_members = _min_members(spec, context.chain, metadata)
    problem = spec.problem or problem or bad_min_members
    result = replace(
        spec,
        queue=queue,
        tree=spec.tree
        if min_members == spec.tree.min_members
        else replace(spec.tree, min_members=min_members),
        order=order_of(pod.metadata.labels, spec.order),
        problem=problem,
        settings=settings,
    )
    if spec.preemptible is None:
        preemptibility = metadata.preemptibility() or next(
            (each.preemptibility for each in defaults if each.preemptibility), ""
        )
        result = replace(
            result,
            preemptible=is_preemptible(preemptibility, settings.priority or 0),
            semi_preemptible=preemptibility == Preemptibility.SEMI_PREEMPTIBLE,
        )
    return result


def _namespace_queue(pod: Pod, owners: Owners) -> str:
    namespace = owners.namespace(pod.metadata.namespace)
    if namespace is None:
        return ""
    meta = namespace.metadata
    return meta.annotations.get(QUEUE_NAME_KEY) or meta.labels.get(QUEUE_NAME_KEY) or ""


def _fallback_queue(metadata: _WorkloadMetadata, pod: Pod, naming: KaiQueueNaming) -> str:
    project, pool = metadata.queue(keys.PROJECT), pod.metadata.labels.get(keys.NODE_POOL, "")
    if not project:
        return naming.default_queue
    return f"{project}-{pool}" if pool else project


def _min_members(spec: GangSpec, chain: OwnerChain, metadata: _WorkloadMetadata) -> tuple[int, str]:
    """minMember of a Job as annotated, else as it is; that of any other owner as it is."""
    text = metadata.value(BATCH_MIN_MEMBER_KEY)
    if spec.tree.children or spec.owner.kind != "Job" or not text:
        return spec.tree.min_members, ""
    location = f"Job {spec.owner.namespace}/{spec.owner.name}: "
    try:
        annotated = parse_count(text, least=1)
    except NumberError as error:
        return 1, f"{location}annotation {BATCH_MIN_MEMBER_KEY} {error}"
    jobs = (each.found for each in chain.owners if each.reference.uid == spec.owner.uid)
    job = next(jobs, None)
    if not isinstance(job, Job):
        return annotated, ""
    min_members, problem = reachable_min_members(job, annotated)
    return min_members, location + problem if problem else ""


def _gang_settings(
    spec: GangSpec,
    context: PodContext,
    metadata: _WorkloadMetadata,
    defaults: tuple[KindDefaults, ...],
) -> tuple[GangSettings, str]:
    pod, owners = context.chain.pod, context.owners
    allowed = [
        name
        for name, is_label in metadata.priority_classes(pod.spec.priority_class_name)
        if name and (not is_label or may_name(name, pod.metadata.namespace, owners))
    ]
    named = (*allowed, *(each.priority_class for each in defaults))
    priority_class = existing_class(named, owners) or class_of(context.chain)
    grace, delay, problem = _durations(context, metadata)
    priority = spec.settings.priority
    if priority is None or spec.settings.is_default_priority:
        priority = priority_of(priority_class, owners)
    settings = replace(
        spec.settings,
        priority=priority,
        staleness_grace=spec.settings.staleness_grace if grace is None else grace,
        preemption_delay=spec.settings.preemption_delay if delay is None else delay,
        wording=Wording.KAI,
    )
    return settings, problem


def _durations(
    context: PodContext, metadata: _WorkloadMetadata
) -> tuple[float | None, float | None, str]:
    """The grace and the delay in seconds, None if not annotated, and what is wrong with them."""
    meta, location = context.chain.pod.metadata, ""
    grace, bad_grace = first_duration((keys.STALENESS_GRACE, metadata.value(keys.STALENESS_GRACE)))
    delay, bad_delay = first_duration(
        (keys.PREEMPTION_DELAY, metadata.nearest_value(keys.PREEMPTION_DELAY))
    )
    problem = bad_grace or bad_delay
    if problem:
        location = f"pod {meta.namespace}/{meta.name}: annotation "
    return grace, delay, location + problem
