"""Grove's PodGangs: a label on a pod names one, its podgroups are the leaves of the gang.

    spec.podgroups[]                     a leaf each with minMember ``minReplicas``; 0 is elastic
    spec.topologyConstraintGroupConfigs  subgroups that keep some of the leaves together
    packConstraint                       of the gang, a subgroup or a leaf: node label keys
    spec.reuseReservationRef             the nodes of that gang are preferred

Newer Groves create a KAI PodGroup for every PodGang and name it on the pods; then that decides. A
scaled gang, whose cliques name the base gang in a label, prefers the NVLink clique of the base gang
in either case, because they share one ComputeDomain.

Source: Grove, scheduler.grove.io/v1alpha1 and its scheduler backends.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.api.records.unstructured import Unstructured, mapping_at, values_at
from kai_py.dialects.group_reader import GroupReader, gang_from_group
from kai_py.dialects.kai import keys
from kai_py.dialects.kai.keys import first_duration
from kai_py.dialects.kai.pod_groups import KIND as POD_GROUP
from kai_py.dialects.kai.priority import named_priority
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import GangSpec, Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import GangAffinity, GangSettings
from kai_py.grouping.gang_template import InvalidWorkloadError, number_label_reader
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners
from kai_py.grouping.topology_annotations import constraint_of

POD_CLIQUES = "podcliques.grove.io"
POD_GANGS = "podgangs.scheduler.grove.io"
KIND = "PodGang.scheduler.grove.io"
GANG_LABEL = "grove.io/podgang"
CLIQUE_LABEL = "grove.io/podclique"
BASE_LABEL = "grove.io/base-podgang"
TOPOLOGY_KEYS = ("grove.io/topology-name", keys.TOPOLOGY)
MAX_ANNOTATED_CLIQUES = 200
"""Most podgroups of which the PodCliques are looked up, for every pod of the gang."""
NVLINK_CLIQUE = "nvidia.com/gpu.clique"

_rank = number_label_reader("grove.io/podclique-pod-index")


def _name(chain: OwnerChain) -> str:
    return chain.pod.metadata.labels.get(GANG_LABEL, "")


def _marker(chain: OwnerChain) -> str:
    name = _name(chain)
    if not name or keys.POD_GROUP in chain.pod.metadata.annotations:
        return ""
    return f'label {GANG_LABEL} "{name}"'


def _tree(found: Unstructured, _chain: OwnerChain) -> Subgroup:
    """The tree as the PodGang describes it."""
    spec, topology = found.content.get("spec", {}), _topology(found)
    leaves = {
        str(entry.get("name", "")): Subgroup(
            name=str(entry.get("name", "")),
            min_members=count_at(entry, "minReplicas", 1, location="spec.podgroups"),
            topology=_constraint(entry, topology),
        )
        for entry in entries(spec, "podgroups.*")
    }
    if not leaves:
        raise InvalidWorkloadError("spec.podgroups is empty")
    groups = [
        _constraint_group(config, leaves, topology) for config in entries(spec, _CONSTRAINT_GROUPS)
    ]
    grouped = {leaf.name for group in groups for leaf in group.children}
    ungrouped = [leaf for name, leaf in leaves.items() if name not in grouped]
    return Subgroup(children=(*groups, *ungrouped), topology=_constraint(spec, topology))


_CONSTRAINT_GROUPS = "topologyConstraintGroupConfigs.*"


def _constraint_group(
    config: Mapping[str, Any], leaves: Mapping[str, Subgroup], topology: str
) -> Subgroup:
    name = str(config.get("name", ""))
    names = [str(each) for each in values_at(config, "podGroupNames.*")]
    location = f"spec.topologyConstraintGroupConfigs[{name}].podGroupNames"
    unknown = [each for each in names if each not in leaves]
    if unknown or not names:
        raise InvalidWorkloadError(
            f"{location} names {unknown or 'nothing'}; every name must be a podgroup"
        )
    children = tuple(leaves[each] for each in names)
    return Subgroup(name=name, children=children, topology=_constraint(config, topology))


def _topology(found: Unstructured) -> str:
    annotations = found.metadata.annotations
    return next((annotations[key] for key in TOPOLOGY_KEYS if annotations.get(key)), "")


def _constraint(holder: Mapping[str, Any], topology: str) -> TopologyConstraint | None:
    pack = mapping_at(holder, "topologyConstraint.packConstraint")
    required, preferred = str(pack.get("required") or ""), str(pack.get("preferred") or "")
    if not required and not preferred:
        return None
    return TopologyConstraint(topology, required, preferred)


_READER = GroupReader(kind=KIND, collection=POD_GANGS, marker=_marker, name=_name, tree=_tree)


def _gang(context: PodContext) -> GangSpec:
    spec, pod = gang_from_group(_READER, context), context.chain.pod
    found = context.owners.named(POD_GANGS, pod.metadata.namespace, _name(context.chain))
    if not isinstance(found, Unstructured) or spec.problem:
        return spec
    spec = _with_annotated_cliques(spec, found, context.owners)
    settings, problem = _gang_settings(found, context.chain, context.owners)
    subgroup = pod.metadata.labels.get(CLIQUE_LABEL, "")
    known = subgroup in {each.name for each in spec.tree.leaves()}
    return replace(
        spec,
        subgroup=subgroup,
        order=_rank(pod),
        settings=settings,
        problem=problem and f"{KIND} {pod.metadata.namespace}/{found.metadata.name}: {problem}",
        pod_problem=""
        if known
        else f'label {CLIQUE_LABEL} "{subgroup}" is not a podgroup of {KIND} {found.metadata.name}',
    )


def _with_annotated_cliques(spec: GangSpec, found: Unstructured, owners: Owners) -> GangSpec:
    """``spec``, with topologies that annotations of the PodGang and of PodCliques add to it."""
    topology = _topology(found)

    def annotated(meta: ObjectMeta, group: Subgroup) -> Subgroup:
        constraint = constraint_of(meta.annotations, topology, owners)
        return group if constraint is None else replace(group, topology=constraint)

    def below(group: Subgroup) -> Subgroup:
        if group.children:
            return replace(group, children=tuple(map(below, group.children)))
        clique = owners.named(POD_CLIQUES, spec.owner.namespace, group.name)
        if group.topology is not None or not isinstance(clique, PartialObjectMetadata):
            return group
        return annotated(clique.metadata, group)

    tree = below(spec.tree) if len(spec.tree.leaves()) <= MAX_ANNOTATED_CLIQUES else spec.tree
    return replace(
        spec, tree=tree if tree.topology is not None else annotated(found.metadata, tree)
    )


def _gang_settings(
    found: Unstructured, chain: OwnerChain, owners: Owners
) -> tuple[GangSettings, str]:
    """The class that a label names, of the PodGang or from the top owner down, goes before its own.

    Labels of a DynamoGraphDeployment do not reach the PodGang that is made for it.
    """
    meta, pod = found.metadata, chain.pod
    grace, bad_grace = first_duration(
        (keys.STALENESS_GRACE, meta.annotations.get(keys.STALENESS_GRACE))
    )
    delay, bad_delay = first_duration(
        (keys.PREEMPTION_DELAY, meta.annotations.get(keys.PREEMPTION_DELAY))
    )
    labelled = (each.labels.get(keys.PRIORITY_CLASS) for each in (meta, *chain.metas[:0:-1]))
    priority_class = next(filter(None, labelled), found.first_at("spec.priorityClassName"))
    reused = mapping_at(found.content, "spec.reuseReservationRef")
    namespace = reused.get("namespace") or meta.namespace
    settings = GangSettings(
        priority=named_priority(str(priority_class), pod, owners) if priority_class else None,
        staleness_grace=grace,
        preemption_delay=delay or 0.0,
        gang_affinity=_gang_affinities(namespace, str(reused["name"]), "")
        if reused.get("name")
        else (),
    )
    return settings, bad_grace or bad_delay


def with_base_gang_affinity(spec: GangSpec, chain: OwnerChain) -> GangSpec:
    """``spec``; a scaled gang also prefers the NVLink clique of its base gang."""
    base = chain.nearest(BASE_LABEL)
    if not base:
        return spec
    affinities = _gang_affinities(chain.pod.metadata.namespace, base, NVLINK_CLIQUE)
    return replace(
        spec,
        settings=replace(spec.settings, gang_affinity=(*spec.settings.gang_affinity, *affinities)),
    )


def _gang_affinities(namespace: str, name: str, level: str) -> tuple[GangAffinity, ...]:
    """Affinities to a PodGang, or to the KAI PodGroup created for it."""
    return tuple(GangAffinity(f"{namespace}/{kind}/{name}", level) for kind in (KIND, POD_GROUP))


GROVE = GroupSource(marker=_marker, gang_spec=_gang)
