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

from kai_py.api.records.unstructured import Unstructured
from kai_py.dialects.group_reader import GroupReader, group_source, min_member_tree
from kai_py.grouping.counts import parse_count
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.group_sources import GroupSource
from kai_py.grouping.metadata import annotation_or_label
from kai_py.grouping.owner_chain import OwnerChain

GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK_KEY = "volcano.sh/task-spec"
OTHER_TASKS = "(other tasks)"
"""Leaf of pods whose task has no floor; no task is called so, for that is no name of an object."""


def volcano_source(tiers: Mapping[str, str]) -> GroupSource:
    """The source; ``tiers``: node label by the number or name of a tier."""
    return group_source(
        GroupReader(
            kind="PodGroup.scheduling.volcano.sh",
            collection="podgroups.scheduling.volcano.sh",
            marker=_marker,
            name=_name,
            tree=partial(_tree, tiers),
            subgroup=_leaf,
            queue="spec.queue",
        )
    )


def _name(chain: OwnerChain) -> str:
    annotations = chain.pod.metadata.annotations
    return annotations.get(GROUP_KEYS[0]) or annotations.get(GROUP_KEYS[1]) or ""


def _marker(chain: OwnerChain) -> str:
    name = _name(chain)
    return f'annotation {GROUP_KEYS[0]} "{name}"' if name else ""


def _tree(tiers: Mapping[str, str], found: Unstructured, chain: OwnerChain) -> Subgroup:
    flat = min_member_tree(found, chain)
    floors = _min_task_members(found)
    topology = _topology(found, tiers)
    if not floors or sum(floors.values()) != flat.min_members:
        return replace(flat, topology=topology)
    leaves = [Subgroup(name=task, min_members=floors[task]) for task in sorted(floors)]
    return Subgroup(children=(*leaves, Subgroup(name=OTHER_TASKS)), topology=topology)


def _min_task_members(found: Unstructured) -> dict[str, int]:
    written = found.first_at("spec.minTaskMember")
    if written is None:
        return {}
    if not isinstance(written, dict):
        raise InvalidWorkloadError("spec.minTaskMember must be a mapping of tasks to numbers")
    return {
        task: parse_count(floor, f"spec.minTaskMember.{task}") for task, floor in written.items()
    }


def _topology(found: Unstructured, tiers: Mapping[str, str]) -> TopologyConstraint | None:
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
        raise InvalidWorkloadError(
            f"spec.networkTopology: no node label is known for tier {tier}; "
            "name it in volcano.tiers of the scheduler's configuration"
        )
    return TopologyConstraint(required_level=level)


def _leaf(chain: OwnerChain, tree: Subgroup) -> str:
    if not tree.children:
        return ""
    task = annotation_or_label(chain.pod.metadata, TASK_KEY)
    return task if any(task == each.name for each in tree.children) else OTHER_TASKS
