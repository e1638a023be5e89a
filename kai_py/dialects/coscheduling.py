"""The coscheduling plug-in's PodGroup: a label names it, ``spec.minMember`` is the floor.

Source: scheduling.x-k8s.io/v1alpha1.
"""

from kai_py.dialects.group_objects import Form, min_member_tree, source
from kai_py.grouping.lineage import Lineage

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def _name(lineage: Lineage) -> str:
    return lineage.pod.metadata.labels.get(GROUP_LABEL, "")


def _mark(lineage: Lineage) -> str:
    name = _name(lineage)
    return f'label {GROUP_LABEL} "{name}"' if name else ""


COSCHEDULING = source(
    Form(
        kind="PodGroup.scheduling.x-k8s.io",
        collection="podgroups.scheduling.x-k8s.io",
        mark=_mark,
        name=_name,
        tree=min_member_tree,
    )
)
