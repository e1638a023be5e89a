"""Volcano's PodGroup: an annotation names it, ``spec.minMember`` is the floor.

Source: scheduling.volcano.sh/v1beta1; the annotation is that of its predecessor kube-batch.
"""

from kai_py.api.records.document import Document
from kai_py.dialects.group_objects import Form, source
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.lineage import Lineage

GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


def _name(lineage: Lineage) -> str:
    annotations = lineage.pod.metadata.annotations
    return annotations.get(GROUP_KEYS[0]) or annotations.get(GROUP_KEYS[1]) or ""


def _mark(lineage: Lineage) -> str:
    name = _name(lineage)
    return f'annotation {GROUP_KEYS[0]} "{name}"' if name else ""


def _tree(found: Document, _lineage: Lineage) -> Subgroup:
    return Subgroup(min_members=count_at(found.content, "spec.minMember", 1))


VOLCANO = source(
    Form(
        kind="PodGroup.scheduling.volcano.sh",
        collection="podgroups.scheduling.volcano.sh",
        mark=_mark,
        name=_name,
        tree=_tree,
        queue="spec.queue",
    )
)
