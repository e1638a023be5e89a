"""The grouper: the gang of a pod, with its queue and minMember.

``group_sources`` has the precedence. Where no marker of the pod decides, its owners do: the top one
whose rule does not pass the decision down. Owners without a rule are skipped as long as there is a
rule below them, because a framework knows its pods better than what wraps it; the top one decides
if none has a rule, with a minMember of 1.

The template of an owner is computed once per version of the owner and cached; a pod then costs the
walk to the top and a few dict reads. Sources: the owner-to-group tables of the frameworks named in
``rules/``.
"""

from collections.abc import Sequence
from sys import intern

import msgspec
from msgspec import Struct, structs

from kai_py.api.bounded import remember
from kai_py.api.numbers import MAX_COUNT, parse_int64
from kai_py.api.records.core import OwnerReference, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.texts import first_of
from kai_py.grouping.annotations import (
    POD_GROUP_ANNOTATION,
    unused_markers,
    with_annotations,
)
from kai_py.grouping.counts import count_from_rule
from kai_py.grouping.failure_limits import failure_limits
from kai_py.grouping.frameworks import FRAMEWORKS
from kai_py.grouping.frameworks.dask import DASK
from kai_py.grouping.frameworks.flink import FLINK
from kai_py.grouping.frameworks.skypilot import SKYPILOT
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import (
    ExpectedPods,
    GangSpec,
    Subgroup,
    TopologyConstraint,
    named_owner,
    pod_owner,
    tree_problem,
    within,
)
from kai_py.grouping.gang_template import (
    GangTemplate,
    InvalidWorkloadError,
    UnknownSpecError,
    WorkloadOwner,
    known_fields,
    label_reader,
    lowercase_label_reader,
    number_label_reader,
)
from kai_py.grouping.group_sources import GroupSource, PodContext, gang_from_sources, markers_of
from kai_py.grouping.owner_chain import (
    GroupKind,
    LookupRecorder,
    OwnerChain,
    OwnerLink,
    OwnerObject,
    Owners,
    owner_chain,
    owner_names,
)
from kai_py.grouping.pod_topology import with_pod_topology
from kai_py.grouping.queue_choice import Defaults, QueueChoice, choose_queue
from kai_py.grouping.roles import role_leaves, roles_of_rule
from kai_py.grouping.rule import Rule, Treatment
from kai_py.grouping.rule_table import RuleTable, describe_rule, shipped_table
from kai_py.grouping.topology_annotations import constraint_of

SOURCES = (POD_GROUP_ANNOTATION, SPARK, FLINK, DASK, SKYPILOT)
CACHE_LIMIT = 10_000
MAX_EXPECTED_PODS = 10_000
MAX_KNOWN_TREES = 1000

SINGLE_POD = GangTemplate(tree=Subgroup(min_members=1))
NO_RULE = Rule.model_construct(owners=())
NO_OWNER = "pod without an owner that makes gangs"


class _CachedTemplate(Struct, frozen=True):
    """A template and the objects it was computed from; valid while they are the same."""

    template: GangTemplate
    subgroups: frozenset[str]
    rule: str
    objects: tuple[OwnerObject, ...]
    lookups: tuple[tuple[tuple[str, str, str], object], ...]


class _DecidingOwner(msgspec.Struct, frozen=True):
    """The owner that decides, those above it, and its rule; ``link`` is None where none decides."""

    link: OwnerLink | None
    above: tuple[OwnerLink, ...]
    rule: Rule


class Grouper:
    """Derives the gangs of pods."""

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
        self._table = table or shipped_table()
        self._sources = sources
        self._default_queue = QueueChoice(default_queue, defaults)
        self._cache: dict[tuple[str, GroupKind, Defaults, bool], _CachedTemplate] = {}

    def identify(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``, as far as its owners are known."""
        context = self.context(pod, owners)
        return with_pod_topology(self.gang_spec(context), context)

    def context(self, pod: Pod, owners: Owners) -> PodContext:
        """The owners of ``pod``, and its queue."""
        chain = owner_chain(pod, owners)
        markers = markers_of(chain, self._sources)
        if markers:
            groups = markers[0][0].group_metadata(chain, owners)
            chain = msgspec.structs.replace(chain, groups=groups)
        queue = choose_queue(chain, owners, self._table.queue_keys, self._default_queue)
        return PodContext(chain, queue, owners, markers)

    def gang_spec(self, context: PodContext) -> GangSpec:
        """The gang of the pod in question, without what ``pod_topology`` adds."""
        spec, ignored = gang_from_sources(context)
        if spec is None:
            spec = self._by_owner(context)
            ignored = [*ignored, *unused_markers(context.chain, spec)]
        else:
            spec = _within_bounds(spec)
        if context.queue.ignored_marker:
            ignored = [*ignored, context.queue.ignored_marker]
        if ignored:
            spec = structs.replace(spec, ignored_markers=(*spec.ignored_markers, *ignored))
        limits, workloads = failure_limits(context.chain), owner_names(context.chain)
        spec = structs.replace(spec, failure_limits=limits, workloads=workloads)
        return with_annotations(spec, context.chain)

    def _by_owner(self, context: PodContext) -> GangSpec:
        if context.chain.unknown is not None:
            return _unknown_owner_gang(context, context.chain.unknown)
        deciding = self._deciding_owner(context)
        link = deciding.link
        if link is None or deciding.rule.treatment is Treatment.PODS:
            return _single_pod_gang(context, deciding)
        cached = self._cached_template(context, deciding, link)
        return _gang_of_member(context, link.reference, cached)

    def _deciding_owner(self, context: PodContext) -> _DecidingOwner:
        """The topmost owner that decides; the topmost of all if no rule decides."""
        unruled: OwnerLink | None = None
        links = context.chain.owners
        for position in range(len(links) - 1, -1, -1):
            link = links[position]
            rule = self._table.rule(link.kind, link.found.metadata, context.queue.defaults)
            if rule is None:
                unruled = unruled or link
            elif rule.treatment is not Treatment.SKIP and _describes_pods(rule, link):
                return _DecidingOwner(link, links[position + 1 :], rule)
        return _DecidingOwner(unruled, (), NO_RULE)

    def _cached_template(
        self, context: PodContext, owner: _DecidingOwner, link: OwnerLink
    ) -> _CachedTemplate:
        has_queue = bool(context.queue.name)
        key = (link.found.metadata.uid, link.kind, context.queue.defaults, has_queue)
        objects = (link.found, *(above.found for above in owner.above))
        cached = self._cache.get(key)
        if cached is not None and _is_current(cached, objects, context.owners):
            return cached
        recording = LookupRecorder(context.owners)
        workload = WorkloadOwner(link, context.queue.defaults, has_queue, recording, owner.above)
        template = _with_topology(_gang_template(owner.rule, workload), workload)
        leaves = frozenset(template.tree.leaf_names())
        described = describe_rule(owner.rule, link.kind)
        lookups = tuple(recording.lookups.items())
        cached = _CachedTemplate(template, leaves, described, objects, lookups)
        return remember(self._cache, key, cached, CACHE_LIMIT)


def _describes_pods(rule: Rule, link: OwnerLink) -> bool:
    """Whether the owner has the field without which ``rule`` does not apply."""
    if not rule.only_with or not isinstance(link.found, Unstructured):
        return True
    return link.found.first_at(rule.only_with) is not None


def _within_bounds(spec: GangSpec) -> GangSpec:
    problem = tree_problem(spec.tree) or _too_many_expected(spec.expected)
    if not problem:
        return spec
    owner = spec.owner
    place = f"{owner.kind} {owner.namespace}/{owner.name}"
    return structs.replace(
        spec,
        tree=SINGLE_POD.tree,
        subgroup="",
        expected=(),
        problem=spec.problem or f"{place}: {problem}",
    )


def _single_pod_gang(context: PodContext, deciding: _DecidingOwner) -> GangSpec:
    meta, link = context.chain.pod.metadata, deciding.link
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=SINGLE_POD.tree,
        total_pods=1,
        rule=NO_OWNER if link is None else describe_rule(deciding.rule, link.kind),
    )


def _unknown_owner_gang(context: PodContext, reference: OwnerReference) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/{reference.kind}/{reference.name}",
        owner=named_owner(reference, meta.namespace),
        queue=context.queue.name,
        tree=SINGLE_POD.tree,
        problem=(
            f"{reference.kind} {meta.namespace}/{reference.name}, which owns pod {meta.name}, "
            "was not found, so its gang is unknown; was it deleted, or is reading it not "
            "permitted?"
        ),
        owner_unknown=True,
    )


def _is_current(cached: _CachedTemplate, objects: Sequence[OwnerObject], owners: Owners) -> bool:
    if len(objects) != len(cached.objects):
        return False
    for current, previous in zip(objects, cached.objects, strict=True):
        if current is not previous:
            return False
    return not cached.lookups or all(
        owners.named(*name) is previous for name, previous in cached.lookups
    )


def _gang_template(rule: Rule, workload: WorkloadOwner) -> GangTemplate:
    """The template of an owner by ``rule``; invalid values become its ``problem``."""
    meta, kind = workload.link.found.metadata, workload.link.reference.kind
    try:
        if rule.framework:
            template = FRAMEWORKS[rule.framework].gang_template(workload)
        else:
            template = _template_from_rule(rule, workload)
    except UnknownSpecError:
        template = SINGLE_POD
    except InvalidWorkloadError as error:
        template = structs.replace(SINGLE_POD, problem=str(error))
    too_large = tree_problem(template.tree) or _too_many_expected(template.expected)
    if too_large:
        template = structs.replace(SINGLE_POD, problem=too_large)
    if template.problem:
        return structs.replace(
            template, problem=f"{kind} {meta.namespace}/{meta.name}: {template.problem}"
        )
    return template


def _too_many_expected(expected: tuple[ExpectedPods, ...]) -> str:
    """What is wrong with the number of pods to come: each has a placeholder until it exists."""
    if sum(each.count for each in expected) <= MAX_EXPECTED_PODS:
        return ""
    return f"it creates more than {MAX_EXPECTED_PODS} pods once others run, which is the maximum"


def _template_from_rule(rule: Rule, workload: WorkloadOwner) -> GangTemplate:
    owner = known_fields(workload)
    for path in rule.requires:
        if owner.first_at(path) is None and owner is workload.link.found:
            raise InvalidWorkloadError(f"{path} is missing")
    leaves = tuple(
        Subgroup(name=leaf.name, min_members=count_from_rule(leaf.floor, owner))
        for leaf in rule.leaves
    )
    min_members = count_from_rule(rule.floor, owner)
    expected = count_from_rule(rule.expected, owner)
    if expected and min_members > expected:
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: only {expected} pods will exist"
        )
    tree = Subgroup(min_members=min_members)
    subgroup_of = SINGLE_POD.subgroup_of
    if leaves:
        tree = Subgroup(min_subgroups=rule.min_leaves, children=leaves)
        subgroup_of = lowercase_label_reader(rule.leaf_label)
    elif rule.roles is not None and (roles := roles_of_rule(rule.roles, owner, min_members)):
        found_roles = role_leaves(workload, roles)
        tree = Subgroup(children=found_roles.subgroups)
        subgroup_of = found_roles.reader(lowercase_label_reader(rule.roles.label))
    return GangTemplate(
        tree=tree,
        subgroup_of=subgroup_of,
        order_of=number_label_reader(*rule.rank_labels),
        gang_suffix_of=label_reader(rule.part_label)
        if rule.part_label
        else SINGLE_POD.gang_suffix_of,
        total_pods=expected,
        has_roles=rule.roles is not None,
        min_member_annotations=rule.floor.pod_annotations,
        queue=next((str(each) for path in rule.queue for each in owner.all_at(path)), ""),
    )


def _with_topology(template: GangTemplate, workload: WorkloadOwner) -> GangTemplate:
    """The gang's own constraint, as the nearest of the deciding owners annotates it."""
    for meta in workload.metas:
        topology = constraint_of(meta.annotations, "", workload.owners)
        if topology is not None:
            return _template_within(template, topology)
    return template


def _template_within(template: GangTemplate, topology: TopologyConstraint) -> GangTemplate:
    tree_with, known = template.tree_with, dict[int, tuple[Subgroup, Subgroup]]()

    def constrained(pod: Pod) -> Subgroup:
        assert tree_with is not None
        tree = tree_with(pod)
        if id(tree) not in known:
            remember(known, id(tree), (tree, within(tree, topology)), MAX_KNOWN_TREES)
        return known[id(tree)][1]

    return structs.replace(
        template,
        tree=within(template.tree, topology),
        tree_with=None if tree_with is None else constrained,
    )


def _gang_of_member(
    context: PodContext, reference: OwnerReference, cached: _CachedTemplate
) -> GangSpec:
    pod, template = context.chain.pod, cached.template
    namespace = pod.metadata.namespace
    gang_suffix, subgroup = template.gang_suffix_of(pod), template.subgroup_of(pod)
    key = f"{namespace}/{reference.kind}/{reference.name}"
    tree = template.tree if template.tree_with is None else template.tree_with(pod)
    if template.min_member_annotations:
        tree = _annotated_min_members(context.chain, template)
    return GangSpec(
        key=intern(f"{key}/{gang_suffix}" if gang_suffix else key),
        owner=named_owner(reference, namespace),
        queue=context.queue.name or template.queue,
        tree=tree,
        subgroup=subgroup,
        order=template.order_of(pod),
        total_pods=template.total_pods,
        has_roles=template.has_roles,
        expected=template.expected
        if template.expected_with is None
        else template.expected_with(pod),
        rule=cached.rule,
        completed=_completed(context.chain),
        problem=template.problem,
        pod_problem=""
        if template.problem or subgroup in cached.subgroups or subgroup in tree.leaf_names()
        else _unknown_subgroup(subgroup, cached),
    )


def _completed(chain: OwnerChain) -> tuple[str, int] | None:
    """As in ``GangSpec``; counted no further than matters, so that pods seldom change with it."""
    job = chain.owners[0].found
    if not isinstance(job, Job):
        return None
    count = min(job.status.succeeded, job.spec.pods_at_a_time)
    return (job.metadata.uid, count) if count else None


def _annotated_min_members(chain: OwnerChain, template: GangTemplate) -> Subgroup:
    number = parse_int64(chain.nearest(*template.min_member_annotations))
    if number is None or not 0 <= number <= MAX_COUNT:
        return template.tree
    return structs.replace(template.tree, min_members=max(number, 1))


def _unknown_subgroup(subgroup: str, cached: _CachedTemplate) -> str:
    known = first_of(sorted(cached.subgroups))
    return f'its labels name subgroup "{subgroup}", which its gang does not have; it has {known}'
