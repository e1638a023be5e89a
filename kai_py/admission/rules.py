"""Validation of Queues against all other queues, and of the tree of KAI's PodGroups.

Queues: refused are one that would be its own ancestor, and a deserved amount above the max of an
ancestor, on either end of the edge. Warnings: a parent that does not exist (yet), children that
deserve more than their parent, a name that the other API has too, the deletion of a parent. KAI's
Queues are refused for cycles only, for KAI accepts the rest. O(queues) per edit.

PodGroups: refused is what prevents a tree of subgroups: duplicate names, missing parents, cycles.
minMember above the number of subgroups is a warning, as in KAI, for subgroups may be added.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kai_py.api.queue import API_VERSION
from kai_py.api.records.kai import KaiPodGroup
from kai_py.dialects.kai.group_trees import min_sub_group_problems, tree_problems_of
from kai_py.dra.device_limits import selector_problems
from kai_py.snapshot.tables.queue_checks import check_queues
from kai_py.snapshot.tables.queue_objects import QueueFields
from kai_py.snapshot.tables.queues import QueueFault, QueueInfo


class AdmissionVerdict(Struct, frozen=True):
    """Sentences that each name the object, the field and the remedy."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def edit_verdict(now: AdmissionVerdict, before: AdmissionVerdict) -> AdmissionVerdict:
    """Refuse only new problems; problems of the object before the edit become warnings."""
    new = tuple(text for text in now.refusals if text not in before.refusals)
    old = tuple(text for text in now.refusals if text in before.refusals)
    return AdmissionVerdict(new, (*now.warnings, *old))


def judge_queue(
    new: QueueInfo, old: QueueInfo | None, others: Sequence[QueueInfo]
) -> AdmissionVerdict:
    """The verdict on ``new`` in place of ``old``; ``others`` are all present queues."""
    rest = [each for each in others if not _same(each, new)]
    before = AdmissionVerdict() if old is None else _check_queue(old, rest)
    return edit_verdict(_check_queue(new, rest), before)


def judge_deletion(name: str, others: Sequence[QueueInfo]) -> AdmissionVerdict:
    """The verdict on deleting the queue ``name``."""
    children = sorted(each.name for each in others if each.parent == name)
    if not children:
        return AdmissionVerdict()
    listed = ", ".join(map(repr, children))
    text = (
        f"queue {name!r} is the parent of {listed}, which are treated as roots until it "
        "exists again"
    )
    return AdmissionVerdict(warnings=(text,))


def _same(one: QueueInfo, other: QueueInfo) -> bool:
    return (one.name, one.api_version) == (other.name, other.api_version)


def _check_queue(queue: QueueInfo, rest: Sequence[QueueInfo]) -> AdmissionVerdict:
    checked = check_queues((*rest, queue), ())
    problems = checked.problems
    cycles = [p.reason for p in problems if p.queue == queue.name and p.fault is QueueFault.CYCLE]
    others = [
        p.reason for p in problems if p.queue == queue.name and p.fault is not QueueFault.CYCLE
    ]
    # In a cycle no queue is above another, so there are no bounds to compare with.
    bounds = [] if cycles else list(_deserved_above_max(queue, rest, checked.parents))
    sums = [] if cycles else list(_overcommitted(queue, rest))
    if queue.api_version == API_VERSION:
        selectors = [problem.reason for problem in selector_problems([queue])]
        return AdmissionVerdict((*cycles, *bounds, *selectors), (*others, *sums))
    return AdmissionVerdict(tuple(cycles), (*others, *bounds, *sums))


def _deserved_above_max(
    queue: QueueInfo, rest: Sequence[QueueInfo], parents: Mapping[str, str]
) -> Iterator[str]:
    """Deserved amounts above an ancestor's max: of the queue itself, and of its children.

    ``parents``: of every queue, "" for a root and where the parent can't be used.
    """
    specs = {each.name: each for each in rest} | {queue.name: queue}
    for each in (queue, *sorted(_children(queue, rest), key=lambda spec: spec.name)):
        for resource in sorted(each.deserved):
            text = _above_max(each, resource, specs, parents)
            if text:
                yield text


def _above_max(
    queue: QueueInfo,
    resource: str,
    specs: Mapping[str, QueueInfo],
    parents: Mapping[str, str],
) -> str:
    deserved, ancestor = queue.deserved[resource], specs.get(queue.parent)
    while ancestor is not None:
        bound = ancestor.max.get(resource, math.inf)
        if deserved > bound:
            own, above = QueueFields(queue.api_version), QueueFields(ancestor.api_version)
            return (
                f"queue {queue.name!r}: {own.path(resource, 'deserved')} is "
                f"{own.text(deserved, resource)}, but queue {ancestor.name!r} above has "
                f"{above.path(resource, 'max')} {above.text(bound, resource)}; "
                "lower the one or raise the other"
            )
        # ``parents`` has no cycles, which the fields of the queues above may form.
        ancestor = specs.get(parents[ancestor.name])
    return ""


def _overcommitted(queue: QueueInfo, rest: Sequence[QueueInfo]) -> Iterator[str]:
    """Children that together deserve more than their parent, if that deserves any."""
    specs = {each.name: each for each in rest} | {queue.name: queue}
    for parent in (queue, specs.get(queue.parent)):
        if parent is None:
            continue
        children = _children(parent, tuple(specs.values()))
        for resource in sorted(parent.deserved):
            own = parent.deserved[resource]
            total = sum(child.deserved.get(resource, 0.0) for child in children)
            if 0 < own < total < math.inf:
                fields = QueueFields(parent.api_version)
                yield (
                    f"queue {parent.name!r}: its children are guaranteed "
                    f"{fields.text(total, resource)} together, its own "
                    f"{fields.path(resource, 'deserved')} is {fields.text(own, resource)}: they "
                    "cannot all get what they deserve"
                )


def _children(queue: QueueInfo, rest: Sequence[QueueInfo]) -> list[QueueInfo]:
    return [each for each in rest if each.parent == queue.name]


def judge_pod_group(new: KaiPodGroup, old: KaiPodGroup | None) -> AdmissionVerdict:
    """The verdict on ``new`` in place of ``old``."""
    return edit_verdict(_problems(new), AdmissionVerdict() if old is None else _problems(old))


def _problems(group: KaiPodGroup) -> AdmissionVerdict:
    name, spec = f"PodGroup {group.metadata.namespace}/{group.metadata.name}: ", group.spec
    return AdmissionVerdict(
        tuple(name + text for text in tree_problems_of(spec)),
        tuple(f"{name}{text}: the gang cannot start" for text in min_sub_group_problems(spec)),
    )
