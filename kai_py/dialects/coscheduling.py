"""The coscheduling plug-in's PodGroup: a label names it, ``spec.minMember`` is the floor.

Source: scheduling.x-k8s.io/v1alpha1.
"""

from kai_py.api.records.document import Document
from kai_py.dialects.group_objects import Form, source
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.lineage import Lineage

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def _name(lineage: Lineage) -> str:
    return lineage.pod.metadata.labels.get(GROUP_LABEL, "")


def _mark(lineage: Lineage) -> str:
    name = _name(lineage)
    return f'label {GROUP_LABEL} "{name}"' if name else ""


def _tree(found: Document, _lineage: Lineage) -> Subgroup:
    return Subgroup(min_members=count_at(found.content, "spec.minMember", 1))


COSCHEDULING = source(
    Form(
        kind="PodGroup.scheduling.x-k8s.io",
        collection="podgroups.scheduling.x-k8s.io",
        mark=_mark,
        name=_name,
        tree=_tree,
    )
)
