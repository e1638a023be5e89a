"""Our own annotations on a pod: ``scheduling.kai.io/pod-group`` names its gang.

``scheduling.kai.io/min-available`` is the gang's minMember (1 without it).
"""

from collections.abc import Iterator

from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.pod_template import annotation_or_label, count_annotation

POD_GROUP_KEY = "scheduling.kai.io/pod-group"
MIN_AVAILABLE_KEY = "scheduling.kai.io/min-available"


def pod_owner(chain: OwnerChain) -> Owner:
    """The pod itself as the object to which events are written."""
    meta = chain.pod.metadata
    return Owner("v1", "Pod", meta.namespace, meta.name, meta.uid)


def _marker(chain: OwnerChain) -> str:
    name = annotation_or_label(chain.pod.metadata, POD_GROUP_KEY)
    return f'{POD_GROUP_KEY} "{name}"' if name else ""


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    name = annotation_or_label(meta, POD_GROUP_KEY)
    min_members, problem = count_annotation(meta, MIN_AVAILABLE_KEY)
    return GangSpec(
        key=f"{meta.namespace}/PodGroup/{name}",
        owner=pod_owner(context.chain),
        queue=context.queue.name,
        tree=Subgroup(min_members=1 if min_members is None else min_members),
        problem=f"pod {meta.namespace}/{meta.name}: {problem}" if problem else "",
    )


KEYS = frozenset((MIN_AVAILABLE_KEY, POD_GROUP_KEY))


def unused_markers(chain: OwnerChain, spec: GangSpec) -> Iterator[str]:
    """Our keys for a group that have no effect where they stand, for a gang that its owners make.

    A Job's own minMember is the only one that counts: other frameworks have a field for theirs, and
    a group is named on pods.
    """
    for meta in chain.metas:
        if KEYS.isdisjoint(meta.annotations) and KEYS.isdisjoint(meta.labels):
            continue  # mostly, for every pod
        is_of_job = spec.owner.api_version.startswith("batch/v") and spec.owner.kind == "Job"
        if annotation_or_label(meta, MIN_AVAILABLE_KEY) and not (
            is_of_job and meta.uid == spec.owner.uid
        ):
            yield f"{MIN_AVAILABLE_KEY} of {meta.name}"
        if annotation_or_label(meta, POD_GROUP_KEY):
            yield f"{POD_GROUP_KEY} of {meta.name}"


POD_GROUP_ANNOTATION = GroupSource(marker=_marker, gang_spec=_gang)
