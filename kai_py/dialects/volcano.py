"""Volcano's PodGroup: an annotation names it, ``spec.minMember`` applies.

priorityClassName  the priority of the gang; without it that of its pods
minTaskMember    minimums per task, which pods name in an annotation. As in Volcano they count only
                 if their sum is at most minMember; if it is less, only minMember counts here,
                 because a tree has no minimum over minimums
networkTopology  keeps the gang within a tier of HyperNodes. The configuration has the node label
                 whose values are the domains of a tier, because HyperNodes are not read: ``hard``
                 requires the level (and waits where none is configured), ``soft`` prefers it

``volcano.sh/preemptable`` on pods, their owners or the PodGroup, as annotation or else as label,
makes a gang non-preemptible unless it is true; the value of the nearest object counts.

Source: scheduling.volcano.sh/v1beta1; the annotation is that of its predecessor kube-batch.
"""

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from kai_py.api.records.unstructured import Unstructured
from kai_py.dialects.group_reader import GroupReader, group_source, min_member_tree
from kai_py.grouping.counts import parse_count
from kai_py.grouping.gang import GangSpec, Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import InvalidWorkloadError, annotation_or_label
from kai_py.grouping.group_sources import GroupSource
from kai_py.grouping.owner_chain import OwnerChain

GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
PREEMPTABLE_KEY = "volcano.sh/preemptable"
TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
TASK_KEY = "volcano.sh/task-spec"
OTHER_TASKS = "(other tasks)"
"""Leaf of pods whose task has no minimum; not a valid object name, so no task has it."""


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
            priority_class="spec.priorityClassName",
            unread=("spec.subGroupPolicy",),
        )
    )


def with_preemptable(spec: GangSpec, chain: OwnerChain) -> GangSpec:
    """``spec``, as Volcano's key says, unless something else has decided."""
    if spec.preemptible is not None:
        return spec
    sources = (*chain.metas, *chain.groups)
    values = (annotation_or_label(meta, PREEMPTABLE_KEY) for meta in sources)
    value = next(filter(None, values), "")
    return replace(spec, preemptible=value in TRUE) if value else spec


def _name(chain: OwnerChain) -> str:
    annotations = chain.pod.metadata.annotations
    return annotations.get(GROUP_KEYS[0]) or annotations.get(GROUP_KEYS[1]) or ""


def _marker(chain: OwnerChain) -> str:
    name = _name(chain)
    return f'annotation {GROUP_KEYS[0]} "{name}"' if name else ""


def _tree(tiers: Mapping[str, str], found: Unstructured, chain: OwnerChain) -> Subgroup:
    flat = min_member_tree(found, chain)
    min_task_members = _min_task_members(found)
    topology = _topology(found, tiers)
    if not min_task_members or sum(min_task_members.values()) != flat.min_members:
        return replace(flat, topology=topology)
    leaves = [
        Subgroup(name=task, min_members=min_task_members[task]) for task in sorted(min_task_members)
    ]
    return Subgroup(children=(*leaves, Subgroup(name=OTHER_TASKS)), topology=topology)


def _min_task_members(found: Unstructured) -> dict[str, int]:
    minimums = found.first_at("spec.minTaskMember")
    if minimums is None:
        return {}
    if not isinstance(minimums, dict):
        raise InvalidWorkloadError("spec.minTaskMember must be a mapping of tasks to numbers")
    return {
        task: parse_count(minimum, f"spec.minTaskMember.{task}")
        for task, minimum in minimums.items()
    }


def _topology(found: Unstructured, tiers: Mapping[str, str]) -> TopologyConstraint | None:
    network_topology = found.first_at("spec.networkTopology")
    if not isinstance(network_topology, dict):
        return None
    tier = network_topology.get("highestTierAllowed", network_topology.get("highestTierName"))
    is_hard = network_topology.get("mode", "hard") == "hard"
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
