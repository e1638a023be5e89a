"""Gang templates: an owner's description of its gang, computed once and used for all its pods.

With what frameworks need to make one: pods that do not exist yet, from the template of their owner,
and annotations with a number.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.numbers import NumberError, parse_count, parse_int64
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.record import convert_record
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.gang import ExpectedPods, Subgroup
from kai_py.grouping.owner_chain import OwnerLink, Owners
from kai_py.grouping.queue_choice import Defaults


class InvalidWorkloadError(ValueError):
    """An owner has invalid values; the text names the field."""


def _no_name(_pod: Pod) -> str:
    return ""


def _order_zero(_pod: Pod) -> int:
    return 0


class WorkloadOwner(Struct, frozen=True):
    """An owner whose pods are to be grouped.

    ``has_queue``: whether a queue is named for them. ``owners`` gives access to further objects
    that decide; look-ups are recorded, so that the template is computed again when a result
    changes. ``above``: its own owners, the nearest first.
    """

    link: OwnerLink
    defaults: Defaults
    has_queue: bool
    owners: Owners
    above: tuple[OwnerLink, ...] = ()

    @property
    def metas(self) -> tuple[ObjectMeta, ...]:
        """The metadata of the owner, then of the owners above it."""
        return tuple(each.found.metadata for each in (self.link, *self.above))


class GangTemplate(Struct, frozen=True):
    """A gang as its owner describes it.

    ``gang_suffix_of`` splits the owner's pods into several gangs. ``subgroup_of`` and ``order_of``
    give a pod's leaf and order. ``tree_with``: the tree once this pod exists, where that is not
    ``tree`` for all. ``total_pods`` 0: unknown. ``has_roles``: as of GangSpec. ``expected``: pods
    created once others run; ``expected_with``: the same for this pod, where they differ.
    """

    tree: Subgroup
    subgroup_of: Callable[[Pod], str] = _no_name
    order_of: Callable[[Pod], int] = _order_zero
    gang_suffix_of: Callable[[Pod], str] = _no_name
    tree_with: Callable[[Pod], Subgroup] | None = None
    total_pods: int = 0
    has_roles: bool = False
    expected: tuple[ExpectedPods, ...] = ()
    expected_with: Callable[[Pod], tuple[ExpectedPods, ...]] | None = None
    min_member_annotations: tuple[str, ...] = ()
    queue: str = ""
    problem: str = ""


class Framework(Struct, frozen=True):
    """Code for one framework: the fields it reads of the owner, and its gang template."""

    field_paths: tuple[str, ...]
    gang_template: Callable[[WorkloadOwner], GangTemplate]


class UnknownSpecError(InvalidWorkloadError):
    """Only the name of an owner is known, so nothing is wrong with its fields."""


def full_owner(workload: WorkloadOwner) -> Unstructured:
    """The owner with its spec; raises UnknownSpecError where only metadata is known."""
    if not isinstance(workload.link.found, Unstructured):
        raise UnknownSpecError
    return workload.link.found


def known_fields(workload: WorkloadOwner) -> Unstructured:
    """The owner, without fields where only its metadata is known."""
    found = workload.link.found
    return found if isinstance(found, Unstructured) else Unstructured(metadata=found.metadata)


def label_reader(key: str) -> Callable[[Pod], str]:
    """A function that reads a label of a pod."""
    return lambda pod: pod.metadata.labels.get(key, "")


def lowercase_label_reader(key: str) -> Callable[[Pod], str]:
    """A function that reads a label of a pod, in lower case."""
    return lambda pod: pod.metadata.labels.get(key, "").lower()


def number_label_reader(*keys: str) -> Callable[[Pod], int]:
    """A function that reads a number from the first of these labels of a pod; 0 without one."""

    def read(pod: Pod) -> int:
        for key in keys:
            number = parse_int64(pod.metadata.labels.get(key, ""))
            if number is not None and number >= 0:
                return number
        return 0

    return read


def annotation_or_label(meta: ObjectMeta, key: str) -> str:
    """An annotation, or else a label, of an object; empty where it has neither."""
    return meta.annotations.get(key) or meta.labels.get(key) or ""


def count_annotation(meta: ObjectMeta, *keys: str, least: int = 0) -> tuple[int | None, str]:
    """The number under the first of ``keys`` that is set, and what is wrong with it."""
    for key in keys:
        text = annotation_or_label(meta, key)
        if text:
            try:
                return parse_count(text, least=least), ""
            except NumberError as error:
                return None, f"{key} {error}"
    return None, ""


TEMPLATE_FIELDS = (
    "metadata.labels",
    "metadata.annotations",
    "spec.containers.*.resources",
    "spec.initContainers.*.resources",
    "spec.initContainers.*.restartPolicy",
    "spec.resources",
    "spec.overhead",
    "spec.nodeSelector",
    "spec.affinity",
    "spec.tolerations",
    "spec.resourceClaims",
)
"""The fields of a template that decide where its pods fit."""


def template_paths(template: str) -> tuple[str, ...]:
    """The paths of these fields in the owner, for the template at ``template``."""
    return tuple(f"{template}.{field}" for field in TEMPLATE_FIELDS)


def pod_of_template(template: Mapping[str, Any], owner: ObjectMeta, location: str) -> Pod:
    """A pod of the owner's namespace; raises InvalidWorkloadError for an invalid template."""
    meta = dict(template.get("metadata") or {})
    meta |= {"namespace": owner.namespace, "name": owner.name}
    try:
        return convert_record({**template, "metadata": meta}, Pod)
    except msgspec.ValidationError as error:
        raise InvalidWorkloadError(f"{location}: {error}") from None
