"""Kueue's groups of plain pods: a label names the group, an annotation its number of pods.

In later versions an annotation may name it, too. With ``pod-group-fast-admission`` Kueue admits the
group when its first pod exists, because the others may be created by it: one pod starts it.

Only for pods without an owner: Kueue also labels pods of sets, whose frameworks know better.
Kueue's scheduling gates need no support here: a gated pod waits.

Where Kueue chose the nodes itself (topology-aware scheduling) the pods have a label, and once they
are admitted a selector for their domain: only the choice among its nodes is left to us.

Source: Kueue, "Run A Group Of Plain Pods", KEP-2724.
"""

from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import annotation_or_label, count_annotation
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
COUNT_KEY = "kueue.x-k8s.io/pod-group-total-count"
FAST_KEY = "kueue.x-k8s.io/pod-group-fast-admission"
TOPOLOGY_LABEL = "kueue.x-k8s.io/tas"


def _marker(chain: OwnerChain) -> str:
    meta = chain.pod.metadata
    name = annotation_or_label(meta, GROUP_LABEL)
    return f'label {GROUP_LABEL} "{name}"' if name and not meta.owner_references else ""


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    count, problem = count_annotation(meta, COUNT_KEY)
    is_fast = meta.annotations.get(FAST_KEY) == "true"
    return GangSpec(
        key=f"{meta.namespace}/PodGroup.kueue.x-k8s.io/{annotation_or_label(meta, GROUP_LABEL)}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(min_members=1 if count is None or is_fast else count),
        total_pods=count or 0,
        problem=f"pod {meta.namespace}/{meta.name}: {problem}" if problem else "",
    )


KUEUE = GroupSource(marker=_marker, gang_spec=_gang)


def is_placed_by_kueue(pod: Pod) -> bool:
    """Whether Kueue chose, or will choose, the domain of the pod's node."""
    return pod.metadata.labels.get(TOPOLOGY_LABEL) == "true"


def without_topology(tree: Subgroup) -> Subgroup:
    """``tree`` without topology constraints."""
    children = tuple(map(without_topology, tree.children))
    return replace(tree, topology=None, children=children)
