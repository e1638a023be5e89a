"""Which gang does a pod belong to, in which queue, with which floor?

See ``sources`` for who decides. Where no mark of the pod does, its owners do: the top one whose
rule does not pass the decision down. Owners without a rule are looked through as long as there is a
rule below them, because a framework knows its pods better than what wraps it; the top one decides
if none has a rule, with a floor of one pod.

What an owner says is worked out once per state of the owner and kept; a pod then costs the walk to
the top and a few dict reads. Sources: the owner-to-group tables of the frameworks named in
``rules/``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.annotations import TOPOLOGY_KEY, with_annotations
from kai_py.grouping.counts import count_from_rule
from kai_py.grouping.frameworks import FRAMEWORKS
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import GangSpec, Owner, Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import (
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    label_reader,
    number_label_reader,
)
from kai_py.grouping.group_sources import GroupSource, PodContext, gang_from_sources, markers_of
from kai_py.grouping.owner_chain import OwnerChain, OwnerLink, owner_chain
from kai_py.grouping.owners import Absence, OwnerObject, Owners
from kai_py.grouping.pod_group_annotation import POD_GROUP_ANNOTATION, pod_owner
from kai_py.grouping.queue_choice import Defaults, QueueChoice, choose_queue
from kai_py.grouping.rule import Rule, Treatment
from kai_py.grouping.rule_table import RuleTable, shipped_rules

SOURCES = (POD_GROUP_ANNOTATION, SPARK)
CACHE_LIMIT = 100_000
REQUIRED_LEVEL_KEY = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL_KEY = "kai.scheduler/topology-preferred-placement"
FITTING_LEVEL_KEY = "scheduling.kai.io/topology-fitting-placement"
"""Level whose domains are required if an empty one could hold the gang, else preferred."""

SINGLE_POD = GangTemplate(tree=Subgroup(min_members=1))
NO_RULE = Rule.model_construct(owners=())


@dataclass(frozen=True, slots=True)
class _CachedTemplate:
    """A blueprint and the objects it was worked out from; it holds while they are the same."""

    template: GangTemplate
    subgroups: frozenset[str]
    objects: tuple[OwnerObject, ...]
    lookups: tuple[tuple[tuple[str, str, str], object], ...]


class _DecidingOwner(msgspec.Struct, frozen=True):
    """The owner that decides, those above it, and its rule; ``workload_class`` of the topmost.

    Without ``link`` nobody decides.
    """

    link: OwnerLink | None
    above: tuple[OwnerLink, ...]
    rule: Rule
    workload_class: str


class Grouper:
    """Says to which gang pods belong."""

    def __init__(
        self,
        table: RuleTable | None = None,
        *,
        sources: tuple[GroupSource, ...] = SOURCES,
        default_queue: str = "",
        defaults: Defaults = Defaults.NATIVE,
    ) -> None:
        """Group by ``table`` (the shipped rules if None), after ``sources``, in their order.

        Workloads that name no queue go to ``default_queue`` and get ``defaults``.
        """
        self._table = table or RuleTable(shipped_rules())
        self._sources = sources
        self._default_queue = QueueChoice(default_queue, defaults)
        self._cache: dict[tuple[str, object, bool], _CachedTemplate] = {}

    def identify(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``, as far as its owners are known."""
        return self.gang_spec(self.context(pod, owners))

    def context(self, pod: Pod, owners: Owners) -> PodContext:
        """What is above ``pod`` and which queue that names."""
        lineage = owner_chain(pod, owners)
        marks = markers_of(lineage, self._sources)
        if marks:
            groups = marks[0][0].group_metadata(lineage, owners)
            lineage = msgspec.structs.replace(lineage, groups=groups)
        queue = choose_queue(lineage, owners, self._table.queue_keys, self._default_queue)
        return PodContext(lineage, queue, owners, marks)

    def gang_spec(self, context: PodContext) -> GangSpec:
        """The gang of the pod in question."""
        spec, disregarded = gang_from_sources(context)
        if spec is None:
            spec = self._by_owner(context)
        if context.queue.ignored_marker:
            disregarded = [*disregarded, context.queue.ignored_marker]
        if disregarded:
            spec = replace(spec, ignored_markers=tuple(disregarded))
        return with_annotations(spec, context.chain)

    def _by_owner(self, context: PodContext) -> GangSpec:
        if context.chain.unknown is not None:
            return _unknown_owner_gang(context, context.chain.unknown)
        decider = self._deciding_owner(context)
        link = decider.link
        if link is None or decider.rule.treatment is Treatment.PODS:
            return _single_pod_gang(context, decider.workload_class)
        kept = self._cached_template(context, decider, link)
        return _gang_of_member(context, link.reference, decider.workload_class, kept)

    def _deciding_owner(self, context: PodContext) -> _DecidingOwner:
        """The topmost owner that decides; the topmost of all if no rule decides at all."""
        skipped: list[Rule] = []
        unruled: OwnerLink | None = None
        links = context.chain.owners
        for position in range(len(links) - 1, -1, -1):
            link = links[position]
            rule = self._table.rule(link.kind, context.queue.defaults)
            if rule is None:
                unruled = unruled or link
            elif rule.treatment is Treatment.SKIP:
                skipped.append(rule)
            else:
                return _DecidingOwner(
                    link, links[position + 1 :], rule, _workload_class(skipped, rule)
                )
        return _DecidingOwner(unruled, (), NO_RULE, _workload_class(skipped, NO_RULE))

    def _cached_template(
        self, context: PodContext, owner: _DecidingOwner, link: OwnerLink
    ) -> _CachedTemplate:
        named = bool(context.queue.name)
        key = (link.found.metadata.uid, context.queue.defaults, named)
        objects = (link.found, *(above.found for above in owner.above))
        kept = self._cache.get(key)
        if kept is not None and _is_current(kept, objects, context.owners):
            return kept
        asking = _RecordingOwners(context.owners)
        workload = WorkloadOwner(link, context.queue.defaults, named, asking)
        blueprint = _with_topology(_gang_template(owner.rule, workload), objects)
        leaves = frozenset(leaf.name for leaf in blueprint.tree.leaves())
        kept = _CachedTemplate(blueprint, leaves, objects, tuple(asking.lookups.items()))
        if len(self._cache) >= CACHE_LIMIT:
            self._cache.clear()
        self._cache[key] = kept
        return kept


def _single_pod_gang(context: PodContext, workload_class: str) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=pod_owner(context.chain),
        queue=context.queue.name,
        tree=SINGLE_POD.tree,
        total_pods=1,
        workload_class=workload_class,
    )


def _unknown_owner_gang(context: PodContext, reference: OwnerReference) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/{reference.kind}/{reference.name}",
        owner=_owner(reference, meta.namespace),
        queue=context.queue.name,
        tree=SINGLE_POD.tree,
        problem=(
            f"{reference.kind} {meta.namespace}/{reference.name}, which owns pod {meta.name}, "
            "is not known yet, so neither is the gang; is it deleted, or may it not be read?"
        ),
        owner_unknown=True,
    )


def _owner(reference: OwnerReference, namespace: str) -> Owner:
    return Owner(reference.api_version, reference.kind, namespace, reference.name, reference.uid)


def _workload_class(skipped: Sequence[Rule], rule: Rule) -> str:
    """What the topmost rule that says so says the pods are for."""
    telling = [each for each in skipped if "workload_class" in each.model_fields_set]
    return (telling[0] if telling else rule).workload_class.value


class _RecordingOwners:
    """Owners that remember what was asked by name."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.lookups: dict[tuple[str, str, str], object] = {}

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        return self._owners.owner(reference)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        return self._owners.namespace(name)

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        found = self._owners.named(collection, namespace, name)
        self.lookups[collection, namespace, name] = found
        return found

    def child_groups(
        self, collection: str, namespace: str, parent: str
    ) -> tuple[Unstructured, ...]:
        return self._owners.child_groups(collection, namespace, parent)

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        return self._owners.schedulers(pod)


def _is_current(cached: _CachedTemplate, objects: Sequence[OwnerObject], owners: Owners) -> bool:
    if len(objects) != len(cached.objects):
        return False
    for now, then in zip(objects, cached.objects, strict=True):
        if now is not then:
            return False
    return not cached.lookups or all(owners.named(*name) is then for name, then in cached.lookups)


def _gang_template(rule: Rule, workload: WorkloadOwner) -> GangTemplate:
    """What ``rule`` makes of an owner; an owner that makes no sense is told so."""
    meta, kind = workload.link.found.metadata, workload.link.reference.kind
    try:
        if rule.framework:
            drawn = FRAMEWORKS[rule.framework].gang_template(workload)
        else:
            drawn = _template_from_rule(rule, workload)
    except InvalidWorkloadError as error:
        drawn = replace(SINGLE_POD, problem=str(error))
    if drawn.problem:
        return replace(drawn, problem=f"{kind} {meta.namespace}/{meta.name}: {drawn.problem}")
    return drawn


def _template_from_rule(rule: Rule, workload: WorkloadOwner) -> GangTemplate:
    found = workload.link.found
    owner = found if isinstance(found, Unstructured) else Unstructured(metadata=found.metadata)
    for path in rule.requires:
        if owner.first_at(path) is None:
            raise InvalidWorkloadError(f"{path} is missing")
    leaves = tuple(
        Subgroup(name=leaf.name, min_members=count_from_rule(leaf.floor, owner))
        for leaf in rule.leaves
    )
    floor = count_from_rule(rule.floor, owner)
    expected = count_from_rule(rule.expected, owner)
    if expected and floor > expected:
        raise InvalidWorkloadError(
            f"a gang of {floor} can never start: only {expected} pods will exist"
        )
    tree = Subgroup(min_members=floor)
    if leaves:
        tree = Subgroup(min_subgroups=rule.min_leaves, children=leaves)
    return GangTemplate(
        tree=tree,
        subgroup_of=label_reader(rule.leaf_label) if leaves else SINGLE_POD.subgroup_of,
        order_of=number_label_reader(*rule.rank_labels),
        gang_suffix_of=_label_reader(rule.part_label)
        if rule.part_label
        else SINGLE_POD.gang_suffix_of,
        total_pods=expected,
        min_member_annotations=rule.floor.pod_annotations,
        queue=next((str(each) for path in rule.queue for each in owner.all_at(path)), ""),
    )


def _with_topology(template: GangTemplate, objects: Sequence[OwnerObject]) -> GangTemplate:
    """The gang's own constraint, as the nearest of the deciding owners annotates it."""
    for found in objects:
        marks = found.metadata.annotations
        required, preferred = marks.get(REQUIRED_LEVEL_KEY, ""), marks.get(PREFERRED_LEVEL_KEY, "")
        fitting = marks.get(FITTING_LEVEL_KEY, "")
        if required or preferred or fitting:
            named = marks.get(TOPOLOGY_KEY, "")
            topology = TopologyConstraint(named, required, preferred, fitting)
            return replace(template, tree=replace(template.tree, topology=topology))
    return template


def _gang_of_member(
    context: PodContext, reference: OwnerReference, workload_class: str, cached: _CachedTemplate
) -> GangSpec:
    pod, drawn = context.chain.pod, cached.template
    namespace = pod.metadata.namespace
    part, leaf = drawn.gang_suffix_of(pod), drawn.subgroup_of(pod)
    key = f"{namespace}/{reference.kind}/{reference.name}"
    tree = drawn.tree if drawn.tree_with is None else _tree_with_pod(pod, drawn)
    if drawn.min_member_annotations:
        tree = _annotated_min_members(context.chain, drawn)
    return GangSpec(
        key=f"{key}/{part}" if part else key,
        owner=_owner(reference, namespace),
        queue=context.queue.name or drawn.queue,
        tree=tree,
        subgroup=leaf,
        order=drawn.order_of(pod),
        total_pods=drawn.total_pods,
        expected=drawn.expected,
        workload_class=workload_class,
        problem=drawn.problem,
        pod_problem=""
        if drawn.problem or leaf in cached.subgroups
        else _unknown_subgroup(leaf, cached),
    )


def _tree_with_pod(pod: Pod, template: GangTemplate) -> Subgroup:
    grown = template.tree_with(pod) if template.tree_with is not None else template.tree
    return (
        grown if template.tree.topology is None else replace(grown, topology=template.tree.topology)
    )


def _annotated_min_members(chain: OwnerChain, template: GangTemplate) -> Subgroup:
    text = chain.nearest(*template.min_member_annotations)
    return (
        replace(template.tree, min_members=max(int(text), 1)) if text.isdecimal() else template.tree
    )


def _unknown_subgroup(subgroup: str, cached: _CachedTemplate) -> str:
    known = ", ".join(sorted(cached.subgroups))
    return f'its labels say subgroup "{subgroup}", which its gang has not; it has {known}'


def _label_reader(key: str) -> Callable[[Pod], str]:
    return lambda pod: pod.metadata.labels.get(key, "")
