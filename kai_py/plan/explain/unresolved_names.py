"""Names in a pod's spec that nothing in the cluster has, each with the nearest that exists.

A misspelt label, value or resource is the commonest cause of a pod that never starts, and the
filter that fails does not distinguish it from a full cluster. Preferred terms and negative
operators (``NotIn``, ``DoesNotExist``) may name what does not exist. O(nodes x labels) once per
generation of the nodes.

Where every name exists, the taint without which a node would admit the pods is named, with the
toleration that is missing. A pod waits without end for a claim template, claim, volume claim,
storage class or DeviceClass of another name, and for an attribute or capacity that no device
publishes.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice

import numpy as np
from msgspec import Struct, structs

from kai_py.api.problems import closest_match
from kai_py.api.records.node import HARD_EFFECTS, Taint, taint_text, tolerates
from kai_py.api.records.resource import DeviceSelector, DeviceSubRequest, ExactDeviceRequest
from kai_py.api.texts import count_of
from kai_py.api.workload_names import queue_list
from kai_py.dra.published_names import ATTRIBUTES, CAPACITY, unpublished, unpublished_reference
from kai_py.grouping.gang import Subgroup
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.policy.fit import matches_own_selectors
from kai_py.policy.node_filters import PASSING_TAINTS, matches_selector
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.missing_objects import (
    CLAIMS,
    STORAGE_CLASSES,
    TEMPLATES,
    VOLUME_CLAIMS,
    MissingObject,
)
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.shape import ClaimUse, Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_access import closed_queue

KINDS = {
    TEMPLATES: "ResourceClaimTemplate",
    CLAIMS: "ResourceClaim",
    VOLUME_CLAIMS: "PersistentVolumeClaim",
    STORAGE_CLASSES: "StorageClass",
}


def missing_object_hint(snapshot: Snapshot, gang: Gang) -> str:
    """The object that was probably meant by the first missing one that a pod of the gang names."""
    missing = next((m.missing for m in gang.pending if m.missing is not None), None)
    nearest = "" if missing is None else nearest_object(snapshot, gang.owner.namespace, missing)
    return f"Did you mean {KINDS[missing.collection]} {nearest}?" if missing and nearest else ""


def nearest_object(snapshot: Snapshot, namespace: str, missing: MissingObject) -> str:
    """The name of its kind that was probably meant; "" if none is like it, or it does exist."""
    names: Iterable[str]
    if missing.collection == CLAIMS:
        names = (name for scope, name in snapshot.devices.claims if scope == namespace)
    else:
        scope = "" if missing.collection == STORAGE_CLASSES else namespace
        names = snapshot.known_names.get((missing.collection, scope), ())
    known = sorted(names)
    return "" if missing.name in known else closest_match(missing.name, known) or ""


def device_hint(state: CycleState, gang: Gang) -> str:
    """The first name in its claims that has no device or DeviceClass, as a sentence.

    Selectors that the search has not parsed are left out: it had no allowance for them.
    """
    classes = state.snapshot.devices.classes
    has_read = state.turns.spending.selectors.has_read
    for name, selectors in _device_requests(gang):
        if name and name not in classes:
            nearest = closest_match(name, sorted(classes))
            return f"Did you mean DeviceClass {nearest}?" if nearest else ""
        for text in filter(has_read, (each.cel.expression for each in selectors if each.cel)):
            for found in unpublished(text, state.statement.devices.published_names()):
                if found.hint:
                    return found.hint
    for map_name, full_name in _named_values(gang):
        published = state.statement.devices.published_names()
        unknown = unpublished_reference(map_name, full_name, published)
        if unknown is not None:
            return unknown.hint or f"No device publishes {unknown.value}."
    return ""


def _named_values(gang: Gang) -> Iterator[tuple[str, str]]:
    """Map and name of the values that constraints compare or requests divide, once per shape."""
    for use in _claims(gang):
        options = list(_options(use))
        derived = {each.name for option in options for each in option.derived_attributes}
        for constraint in use.spec.devices.constraints:
            for name in (constraint.match_attribute, constraint.distinct_attribute):
                yield from ((ATTRIBUTES, name),) if name and name not in derived else ()
        yield from ((CAPACITY, name) for each in options for name in each.capacity.requests)


def _device_requests(gang: Gang) -> Iterator[tuple[str, Sequence[DeviceSelector]]]:
    """Class and selectors of each request in the claims of its pending pods, once per shape."""
    for use in _claims(gang):
        yield from ((each.device_class_name, each.selectors) for each in _options(use))


def _claims(gang: Gang) -> Iterator[ClaimUse]:
    shapes = {member.shape.number: member.shape for member in gang.pending}
    return (use for shape in shapes.values() for use in shape.claims)


def _options(use: ClaimUse) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    for request in use.spec.devices.requests:
        yield from (request.exactly,) if request.exactly else request.first_available


def taint_hint(snapshot: Snapshot, gang: Gang) -> str:
    """The one toleration with which most nodes would admit the first pending pod; "" if none."""
    if not gang.pending:
        return ""
    shape, nodes = gang.pending[0].shape, snapshot.nodes
    admitted = matches_own_selectors(shape, nodes)
    for selector in shape.volume_selectors:
        admitted = admitted & matches_selector(selector, nodes)
    counts = Counter[Taint]()
    for code, taints in enumerate(nodes.taint_lists):
        refused = [
            taint
            for taint in taints
            if taint.effect in HARD_EFFECTS and not tolerates(shape.tolerations, taint)
        ]
        count = int(np.count_nonzero(admitted & (nodes.taint_codes == code)))
        if len(refused) == 1 and count and not refused[0].key.startswith(PASSING_TAINTS):
            counts[refused[0]] += count
    if not counts:
        return ""
    taint, count = max(counts.items(), key=lambda item: (item[1], taint_text(item[0])))
    return f"A toleration of taint {taint_text(taint)} would admit {count_of(count, 'node')}."


QUEUE_STAGES = frozenset({Stage.INVALID, Stage.QUEUE_NOT_FOUND})
OBJECT_STAGES = frozenset({Stage.CLAIMS_NOT_READY, Stage.BELOW_MIN_MEMBER})
NODE_STAGES = frozenset({Stage.NODE_FILTERS, Stage.RESOURCES, Stage.TOPOLOGY})
MAX_EXPLAINED = 64
"""Gangs of one cycle that get such advice."""
MAX_NAMES = 3
"""Names of a gang that a message explains."""
NODE_NAME_FIELD = "metadata.name"
PLATFORMS = frozenset({"kubernetes.io/arch", "kubernetes.io/os"})
"""Labels whose values are not misspelt: arm64 is not meant to be amd64."""


class NameKind(Enum):
    """The kind of thing that a name refers to."""

    NODE_LABEL = "node label"
    LABEL_VALUE = "value of a node label"
    NODE = "node name"
    RESOURCE = "resource"
    TOPOLOGY_LEVEL = "topology level"


class UnresolvedName(Struct, frozen=True):
    """``name`` does not exist; ``nearest``: what was probably meant, or "".

    ``label``: whose value the name is.
    """

    kind: NameKind
    name: str
    nearest: str
    label: str = ""

    @property
    def text(self) -> str:
        """One sentence for people."""
        match self.kind:
            case NameKind.LABEL_VALUE:
                problem = f"No node has label {self.label}={self.name}"
            case NameKind.NODE:
                problem = f"No node is named {self.name}"
            case NameKind.RESOURCE:
                problem = f"No node reports resource {self.name}"
                is_extended = "/" in self.name
                if is_extended and not self.nearest:
                    problem += ", and no DeviceClass serves it"
            case _:
                problem = f"No node has label {self.name}"
        return f"{problem}; did you mean {self.nearest}?" if self.nearest else f"{problem}."


def explain_unresolved_names(state: CycleState, gangs: Sequence[Gang]) -> None:
    """Add to the reasons of ``gangs`` which names in their manifests do not exist.

    Only for the first ``MAX_EXPLAINED`` gangs with such a name: a tenant with thousands of them
    loses advice, and does not slow the cycle for all others.
    """
    left, by_shape = MAX_EXPLAINED, dict[int, tuple[UnresolvedName, ...]]()
    for gang in state.turns.eligible(gangs):
        reason = state.unschedulable.get(gang.key)
        if reason is None or not left:
            continue
        with state.turns.of(gang):
            if hint := _hint(state, gang, reason.stage, by_shape):
                left -= 1
                state.mark_unschedulable(gang, structs.replace(reason, hint=hint))


def _hint(
    state: CycleState, gang: Gang, stage: Stage, by_shape: dict[int, tuple[UnresolvedName, ...]]
) -> str:
    """What in the manifest is probably wrong, for a gang that ``stage`` stops; "" if nothing is."""
    if stage in QUEUE_STAGES and not gang.problem:
        return _queue_hint(state, gang)
    if stage in OBJECT_STAGES:
        return missing_object_hint(state.snapshot, gang)
    if stage is Stage.DEVICES:
        return device_hint(state, gang)
    if stage in NODE_STAGES:
        names = tuple(islice(_names_of_gang(state.snapshot, gang, by_shape), MAX_NAMES))
        if names:
            return " ".join(each.text for each in names)
    return taint_hint(state.snapshot, gang) if stage is Stage.NODE_FILTERS else ""


def unresolved_names(snapshot: Snapshot, gang: Gang) -> tuple[UnresolvedName, ...]:
    """The names in the gang's pending pods and its topology that do not exist, each once."""
    return tuple(_names_of_gang(snapshot, gang, {}, at_most=None))


def _names_of_gang(
    snapshot: Snapshot,
    gang: Gang,
    by_shape: dict[int, tuple[UnresolvedName, ...]],
    at_most: int | None = MAX_NAMES,
) -> Iterator[UnresolvedName]:
    """As ``unresolved_names``, but ``at_most`` that many of each shape; ``by_shape``: known ones.

    Lazily: each name is compared with all that exist, and a pod may have thousands.
    """
    known: set[UnresolvedName] = set()
    for number, shape in gang.pending_shapes.items():
        if number not in by_shape:
            by_shape[number] = tuple(islice(_names_of_shape(shape, snapshot), at_most))
        yield from (each for each in by_shape[number] if each not in known)
        known.update(by_shape[number])
    yield from (
        each for each in dict.fromkeys(_levels(gang.tree, snapshot.nodes)) if each not in known
    )


def _queue_hint(state: CycleState, gang: Gang) -> str:
    """The queue that was probably meant, or those that take the gang; "" if its own does."""
    queues, namespaces = state.quota.queues, state.snapshot.namespaces
    own = queues.positions.get(gang.queue)
    namespace = gang.owner.namespace
    usable = sorted(
        name
        for name, queue in queues.positions.items()
        if queues.is_leaf[queue] and not closed_queue(queues, queue, namespace, namespaces)
    )
    if own is not None and gang.queue in usable:
        return ""
    nearest = closest_match(gang.queue, usable) if gang.queue else None
    if nearest:
        return f"Did you mean queue {nearest}?"
    return queue_list(namespace, usable) if usable else ""


def _names_of_shape(shape: Shape, snapshot: Snapshot) -> Iterator[UnresolvedName]:
    nodes = snapshot.nodes
    if not len(nodes):
        return
    for key, value in shape.node_selector.items():
        yield from _label(nodes, key, (value,), but=shape.node_selector)
    affinity = shape.affinity and shape.affinity.node_affinity
    required = affinity.required if affinity else None
    # Terms are alternatives: with several, a name in one of them need not exist.
    terms = required.node_selector_terms if required is not None else ()
    for expression in terms[0].match_expressions if len(terms) == 1 else ():
        if expression.operator in ("In", "Exists"):
            yield from _label(nodes, expression.key, expression.values)
    for field in terms[0].match_fields if len(terms) == 1 else ():
        # More names than one, or none, are no valid field: no node matches whatever they are.
        is_name = field.operator == "In" and len(field.values) == 1
        if is_name and field.values[0] not in nodes.positions:
            nearest = closest_match(field.values[0], nodes.names) or ""
            yield UnresolvedName(NameKind.NODE, field.values[0], nearest, label=NODE_NAME_FIELD)
    for key in dict.fromkeys(_required_levels(shape)):
        yield from _label(nodes, key, ())
    for name in shape.reported_requests:
        row = snapshot.resources.positions.get(name)
        if row is None or not nodes.reported[row]:
            known = (each for each in snapshot.resources.names if each != name)
            reported = [
                each for each in known if nodes.reported[snapshot.resources.positions[each]]
            ]
            yield UnresolvedName(NameKind.RESOURCE, name, closest_match(name, reported) or "")


def _label(
    nodes: NodeColumns, key: str, values: Sequence[str], *, but: Container[str] = ()
) -> Iterator[UnresolvedName]:
    """The label, or its values, if no node has the label with any of them.

    ``but``: labels that are required as well, so that no other name was meant to be one of them.
    """
    present = [value for value in nodes.label(key).values[1:] if value is not None]
    if not present:
        known = [each for each in nodes.label_keys() if each not in but]
        nearest = _nearest_label(key, known)
        yield UnresolvedName(NameKind.NODE_LABEL, key, nearest)
    elif values and not set(values) & set(present):
        nearest = "" if key in PLATFORMS else closest_match(values[0], present) or ""
        yield UnresolvedName(NameKind.LABEL_VALUE, values[0], nearest, label=key)


def _nearest_label(key: str, known: Sequence[str]) -> str:
    """The label that was probably meant, or "": a long domain in common is not enough."""
    nearest, name = closest_match(key, known), _label_name(key)
    if nearest is None or closest_match(name, (_label_name(nearest),)) is None:
        nearest = next((each for each in known if _label_name(each) == name), None)
    return nearest or ""


def _label_name(key: str) -> str:
    return key.rpartition("/")[2]


def _required_levels(shape: Shape) -> Iterator[str]:
    """The node labels by which the shape's spread constraints and pod affinity form domains."""
    yield from (each.topology_key for each in shape.topology_spread if each.topology_key)
    affinity = shape.affinity and shape.affinity.pod_affinity
    yield from (each.topology_key for each in affinity.required) if affinity else ()


def _levels(tree: Subgroup, nodes: NodeColumns) -> Iterator[UnresolvedName]:
    constraint = tree.topology
    # Levels of a Topology object are checked against that object.
    if constraint is not None and constraint.required_level and not constraint.topology:
        for found in _label(nodes, constraint.required_level, ()):
            yield structs.replace(found, kind=NameKind.TOPOLOGY_LEVEL)
    for child in tree.children:
        yield from _levels(child, nodes)
