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

from kai_py.api.records.core import ObjectMetadata, OwnerReference, Pod
from kai_py.api.records.document import Document
from kai_py.grouping.annotations import TOPOLOGY_KEY, as_annotated
from kai_py.grouping.blueprint import (
    Blueprint,
    Unusable,
    Workload,
    label,
    number_label,
)
from kai_py.grouping.counts import counted
from kai_py.grouping.explicit import EXPLICIT, pod_owner
from kai_py.grouping.frameworks import FRAMEWORKS
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import GangSpec, Owner, Subgroup, TopologyConstraint
from kai_py.grouping.lineage import Lineage, Link, lineage_of
from kai_py.grouping.owners import Absence, OwnerObject, Owners
from kai_py.grouping.queue_choice import Defaults, QueueChoice, choose_queue
from kai_py.grouping.rule import Rule, Treatment
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.grouping.sources import Asked, Source, from_sources, marks_of

SOURCES = (EXPLICIT, SPARK)
MOST_KEPT = 100_000
REQUIRED_LEVEL_KEY = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL_KEY = "kai.scheduler/topology-preferred-placement"
FITTING_LEVEL_KEY = "scheduling.kai.io/topology-fitting-placement"
"""Level whose domains are required if an empty one could hold the gang, else preferred."""

ONE_POD = Blueprint(tree=Subgroup(min_members=1))
NO_RULE = Rule.model_construct(owners=())


@dataclass(frozen=True, slots=True)
class _Kept:
    """A blueprint and the objects it was worked out from; it holds while they are the same."""

    blueprint: Blueprint
    leaves: frozenset[str]
    objects: tuple[OwnerObject, ...]
    asked: tuple[tuple[tuple[str, str, str], object], ...]


class _Decider(msgspec.Struct, frozen=True):
    """The owner that decides, those above it, and its rule; ``workload_class`` of the topmost.

    Without ``link`` nobody decides.
    """

    link: Link | None
    above: tuple[Link, ...]
    rule: Rule
    workload_class: str


class Grouper:
    """Says to which gang pods belong."""

    def __init__(
        self,
        table: RuleTable | None = None,
        *,
        sources: tuple[Source, ...] = SOURCES,
        default_queue: str = "",
        defaults: Defaults = Defaults.NATIVE,
    ) -> None:
        """Group by ``table`` (the shipped rules if None), after ``sources``, in their order.

        Workloads that name no queue go to ``default_queue`` and get ``defaults``.
        """
        self._table = table or RuleTable(shipped_rules())
        self._sources = sources
        self._default_queue = QueueChoice(default_queue, defaults)
        self._kept: dict[tuple[str, object, bool], _Kept] = {}

    def identify(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``, as far as its owners are known."""
        return self.answer(self.ask(pod, owners))

    def ask(self, pod: Pod, owners: Owners) -> Asked:
        """What is above ``pod`` and which queue that names."""
        lineage = lineage_of(pod, owners)
        marks = marks_of(lineage, self._sources)
        if marks:
            groups = marks[0][0].metas(lineage, owners)
            lineage = msgspec.structs.replace(lineage, groups=groups)
        queue = choose_queue(lineage, owners, self._table.queue_keys, self._default_queue)
        return Asked(lineage, queue, owners, marks)

    def answer(self, asked: Asked) -> GangSpec:
        """The gang of the pod in question."""
        spec, disregarded = from_sources(asked)
        if spec is None:
            spec = self._by_owner(asked)
        if asked.queue.disregarded:
            disregarded = [*disregarded, asked.queue.disregarded]
        if disregarded:
            spec = replace(spec, disregarded=tuple(disregarded))
        return as_annotated(spec, asked.lineage)

    def _by_owner(self, asked: Asked) -> GangSpec:
        if asked.lineage.unknown is not None:
            return _of_unknown(asked, asked.lineage.unknown)
        decider = self._decider(asked)
        link = decider.link
        if link is None or decider.rule.treatment is Treatment.PODS:
            return _alone(asked, decider.workload_class)
        kept = self._worked_out(asked, decider, link)
        return _member(asked, link.reference, decider.workload_class, kept)

    def _decider(self, asked: Asked) -> _Decider:
        """The topmost owner that decides; the topmost of all if no rule decides at all."""
        skipped: list[Rule] = []
        unruled: Link | None = None
        links = asked.lineage.owners
        for position in range(len(links) - 1, -1, -1):
            link = links[position]
            rule = self._table.rule(link.kind, asked.queue.defaults)
            if rule is None:
                unruled = unruled or link
            elif rule.treatment is Treatment.SKIP:
                skipped.append(rule)
            else:
                return _Decider(link, links[position + 1 :], rule, _workload_class(skipped, rule))
        return _Decider(unruled, (), NO_RULE, _workload_class(skipped, NO_RULE))

    def _worked_out(self, asked: Asked, decider: _Decider, link: Link) -> _Kept:
        named = bool(asked.queue.name)
        key = (link.found.metadata.uid, asked.queue.defaults, named)
        objects = (link.found, *(above.found for above in decider.above))
        kept = self._kept.get(key)
        if kept is not None and _holds(kept, objects, asked.owners):
            return kept
        asking = _Remembering(asked.owners)
        workload = Workload(link, asked.queue.defaults, named, asking)
        blueprint = _with_topology(_drawn(decider.rule, workload), objects)
        leaves = frozenset(leaf.name for leaf in blueprint.tree.leaves())
        kept = _Kept(blueprint, leaves, objects, tuple(asking.asked.items()))
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = kept
        return kept


def _alone(asked: Asked, workload_class: str) -> GangSpec:
    meta = asked.lineage.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=pod_owner(asked.lineage),
        queue=asked.queue.name,
        tree=ONE_POD.tree,
        expected_pods=1,
        workload_class=workload_class,
    )


def _of_unknown(asked: Asked, reference: OwnerReference) -> GangSpec:
    meta = asked.lineage.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/{reference.kind}/{reference.name}",
        owner=_owner(reference, meta.namespace),
        queue=asked.queue.name,
        tree=ONE_POD.tree,
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


class _Remembering:
    """Owners that remember what was asked by name."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.asked: dict[tuple[str, str, str], object] = {}

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        return self._owners.owner(reference)

    def namespace(self, name: str) -> ObjectMetadata | None:
        return self._owners.namespace(name)

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        found = self._owners.named(collection, namespace, name)
        self.asked[collection, namespace, name] = found
        return found

    def below(self, collection: str, namespace: str, parent: str) -> tuple[Document, ...]:
        return self._owners.below(collection, namespace, parent)

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        return self._owners.schedulers(pod)


def _holds(kept: _Kept, objects: Sequence[OwnerObject], owners: Owners) -> bool:
    if len(objects) != len(kept.objects):
        return False
    for now, then in zip(objects, kept.objects, strict=True):
        if now is not then:
            return False
    return not kept.asked or all(owners.named(*name) is then for name, then in kept.asked)


def _drawn(rule: Rule, workload: Workload) -> Blueprint:
    """What ``rule`` makes of an owner; an owner that makes no sense is told so."""
    meta, kind = workload.link.found.metadata, workload.link.reference.kind
    try:
        if rule.framework:
            drawn = FRAMEWORKS[rule.framework].blueprint(workload)
        else:
            drawn = _declared(rule, workload)
    except Unusable as error:
        drawn = replace(ONE_POD, problem=str(error))
    if drawn.problem:
        return replace(drawn, problem=f"{kind} {meta.namespace}/{meta.name}: {drawn.problem}")
    return drawn


def _declared(rule: Rule, workload: Workload) -> Blueprint:
    found = workload.link.found
    owner = found if isinstance(found, Document) else Document(metadata=found.metadata)
    for path in rule.requires:
        if owner.first_at(path) is None:
            raise Unusable(f"{path} is missing")
    leaves = tuple(
        Subgroup(name=leaf.name, min_members=counted(leaf.floor, owner)) for leaf in rule.leaves
    )
    floor = counted(rule.floor, owner)
    expected = counted(rule.expected, owner)
    if expected and floor > expected:
        raise Unusable(f"a gang of {floor} can never start: only {expected} pods will exist")
    tree = Subgroup(min_members=floor)
    if leaves:
        tree = Subgroup(min_subgroups=rule.min_leaves, children=leaves)
    return Blueprint(
        tree=tree,
        leaf=label(rule.leaf_label) if leaves else ONE_POD.leaf,
        rank=number_label(*rule.rank_labels),
        part=_label_as_is(rule.part_label) if rule.part_label else ONE_POD.part,
        expected_pods=expected,
        floor_annotations=rule.floor.pod_annotations,
        queue=next((str(each) for path in rule.queue for each in owner.all_at(path)), ""),
    )


def _with_topology(drawn: Blueprint, objects: Sequence[OwnerObject]) -> Blueprint:
    """The gang's own constraint, as the nearest of the deciding owners annotates it."""
    for found in objects:
        marks = found.metadata.annotations
        required, preferred = marks.get(REQUIRED_LEVEL_KEY, ""), marks.get(PREFERRED_LEVEL_KEY, "")
        fitting = marks.get(FITTING_LEVEL_KEY, "")
        if required or preferred or fitting:
            named = marks.get(TOPOLOGY_KEY, "")
            topology = TopologyConstraint(named, required, preferred, fitting)
            return replace(drawn, tree=replace(drawn.tree, topology=topology))
    return drawn


def _member(asked: Asked, reference: OwnerReference, workload_class: str, kept: _Kept) -> GangSpec:
    pod, drawn = asked.lineage.pod, kept.blueprint
    namespace = pod.metadata.namespace
    part, leaf = drawn.part(pod), drawn.leaf(pod)
    key = f"{namespace}/{reference.kind}/{reference.name}"
    tree = drawn.tree if drawn.grown is None else _grown(pod, drawn)
    if drawn.floor_annotations:
        tree = _annotated_floor(asked.lineage, drawn)
    return GangSpec(
        key=f"{key}/{part}" if part else key,
        owner=_owner(reference, namespace),
        queue=asked.queue.name or drawn.queue,
        tree=tree,
        leaf=leaf,
        order=drawn.rank(pod),
        expected_pods=drawn.expected_pods,
        awaited=drawn.awaited,
        workload_class=workload_class,
        problem=drawn.problem,
        pod_problem="" if drawn.problem or leaf in kept.leaves else _strange_leaf(leaf, kept),
    )


def _grown(pod: Pod, drawn: Blueprint) -> Subgroup:
    grown = drawn.grown(pod) if drawn.grown is not None else drawn.tree
    return grown if drawn.tree.topology is None else replace(grown, topology=drawn.tree.topology)


def _annotated_floor(lineage: Lineage, drawn: Blueprint) -> Subgroup:
    text = lineage.nearest(*drawn.floor_annotations)
    return replace(drawn.tree, min_members=max(int(text), 1)) if text.isdecimal() else drawn.tree


def _strange_leaf(leaf: str, kept: _Kept) -> str:
    known = ", ".join(sorted(kept.leaves))
    return f'its labels say subgroup "{leaf}", which its gang has not; it has {known}'


def _label_as_is(key: str) -> Callable[[Pod], str]:
    return lambda pod: pod.metadata.labels.get(key, "")
