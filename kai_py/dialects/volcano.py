"""Volcano's PodGroup: an annotation names it, ``spec.minMember`` is the floor.

minTaskMember    a floor per task, which pods name in an annotation. As in Volcano it counts only if
                 the floors are no more than minMember together; if they are less, only minMember
                 does here, for a tree has no floor over floors
networkTopology  keeps the gang within a tier of HyperNodes. Which node label has the domains of a
                 tier as values is said in the configuration, for we read no HyperNodes: ``hard``
                 requires the level (and waits where it is not said), ``soft`` prefers it

Source: scheduling.volcano.sh/v1beta1; the annotation is that of its predecessor kube-batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kai_py.api.records.document import Document
from kai_py.dialects.group_objects import Form, min_member_tree, source
from kai_py.grouping.blueprint import Unusable
from kai_py.grouping.counts import whole
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.marks import marked
from kai_py.grouping.sources import Source

GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK_KEY = "volcano.sh/task-spec"
OTHER = "(other tasks)"
"""Leaf of pods whose task has no floor; no task is called so, for that is no name of an object."""


def volcano(tiers: Mapping[str, str]) -> Source:
    """The source; ``tiers``: node label by the number or name of a tier."""
    return source(
        Form(
            kind="PodGroup.scheduling.volcano.sh",
            collection="podgroups.scheduling.volcano.sh",
            mark=_mark,
            name=_name,
            tree=partial(_tree, tiers),
            leaf=_leaf,
            queue="spec.queue",
        )
    )


def _name(lineage: Lineage) -> str:
    annotations = lineage.pod.metadata.annotations
    return annotations.get(GROUP_KEYS[0]) or annotations.get(GROUP_KEYS[1]) or ""


def _mark(lineage: Lineage) -> str:
    name = _name(lineage)
    return f'annotation {GROUP_KEYS[0]} "{name}"' if name else ""


def _tree(tiers: Mapping[str, str], found: Document, lineage: Lineage) -> Subgroup:
    flat = min_member_tree(found, lineage)
    floors = _task_floors(found)
    topology = _topology(found, tiers)
    if not floors or sum(floors.values()) != flat.min_members:
        return replace(flat, topology=topology)
    leaves = [Subgroup(name=task, min_members=floors[task]) for task in sorted(floors)]
    return Subgroup(children=(*leaves, Subgroup(name=OTHER)), topology=topology)


def _task_floors(found: Document) -> dict[str, int]:
    written = found.first_at("spec.minTaskMember")
    if written is None:
        return {}
    if not isinstance(written, dict):
        raise Unusable("spec.minTaskMember must be a mapping of tasks to numbers")
    return {task: whole(floor, f"spec.minTaskMember.{task}") for task, floor in written.items()}


def _topology(found: Document, tiers: Mapping[str, str]) -> TopologyConstraint | None:
    wanted = found.first_at("spec.networkTopology")
    if not isinstance(wanted, dict):
        return None
    tier = wanted.get("highestTierAllowed", wanted.get("highestTierName"))
    is_hard = wanted.get("mode", "hard") == "hard"
    level = tiers.get(str(tier), "")
    if not is_hard:
        return TopologyConstraint(preferred_level=level) if level else None
    if tier is None:
        return None
    if not level:
        raise Unusable(
            f"spec.networkTopology: no node label is known for tier {tier}; "
            "name it in volcano.tiers of the scheduler's configuration"
        )
    return TopologyConstraint(required_level=level)


def _leaf(lineage: Lineage, tree: Subgroup) -> str:
    if not tree.children:
        return ""
    task = marked(lineage.pod.metadata, TASK_KEY)
    return task if any(task == each.name for each in tree.children) else OTHER
