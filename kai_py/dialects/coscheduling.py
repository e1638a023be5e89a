"""The coscheduling plug-in's PodGroup: a label names it, ``spec.minMember`` applies.

Source: scheduling.x-k8s.io/v1alpha1.
"""

from kai_py.dialects.group_reader import GroupReader, group_source, min_member_tree
from kai_py.grouping.owner_chain import OwnerChain

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def _name(chain: OwnerChain) -> str:
    return chain.pod.metadata.labels.get(GROUP_LABEL, "")


def _marker(chain: OwnerChain) -> str:
    name = _name(chain)
    return f'label {GROUP_LABEL} "{name}"' if name else ""


COSCHEDULING = group_source(
    GroupReader(
        kind="PodGroup.scheduling.x-k8s.io",
        collection="podgroups.scheduling.x-k8s.io",
        marker=_marker,
        name=_name,
        tree=min_member_tree,
    )
)
