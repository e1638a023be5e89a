"""The model of rule files: for every kind of owner, which of its pods form a gang.

A rule names kinds by group and kind, in any version, and the paths of the counts in the owner.
Paths are dotted, ``*`` stands for each item of a list or value of a mapping. What can't be
expressed so is code: ``framework`` names it. The same model reads the shipped files and the
configuration; an unknown key is an error at start.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from kai_py.api.model import ApiModel
from kai_py.grouping.queue_choice import Defaults

Path = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
Key = Annotated[str, Field(min_length=1, max_length=316)]
Name = Annotated[str, Field(min_length=1, max_length=63)]
NonNegative = Annotated[int, Field(ge=0, strict=True)]


class Treatment(StrEnum):
    """How the pods of a kind of owner are grouped."""

    GANG = "gang"
    """The owner's pods are one gang."""
    PODS = "pods"
    """Every pod is a gang of its own."""
    SKIP = "skip"
    """The owner below decides: this one only groups other owners."""


class OwnerKindSet(ApiModel):
    """Kinds of one API group."""

    group: Annotated[str, Field(max_length=253)] = ""
    """API group, empty for the core one."""
    kinds: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Kinds of that group, in any version."""


class SummedField(ApiModel):
    """The sum of a number over several places."""

    each: Path
    """The places."""
    field: Name
    """The field with the number in each of them."""
    default: NonNegative = 1
    """Number for a place without the field."""


class Count(ApiModel):
    """A count: the first of the fields below that yields a number."""

    pod_annotations: tuple[Key, ...] = ()
    """Annotations of the pod or of the nearest owner that has one."""
    annotations: tuple[Key, ...] = ()
    """Annotations or labels of the owner."""
    first: tuple[Path, ...] = ()
    """Fields of the owner; the first that is set."""
    sum: tuple[SummedField, ...] = ()
    """Fields that are added up; used when any of their places is set."""
    default: NonNegative = 1
    """Number if nothing else is set."""


class SubgroupRule(ApiModel):
    """A subgroup of pods (a leaf of the gang)."""

    name: Name
    """The value of ``leafLabel`` on its pods."""
    floor: Count = Count()
    """minMember of the subgroup."""


class RoleRule(ApiModel):
    """Replicas of several templates, each a leaf where one of them requests a topology."""

    each: Path
    """Where the roles are: a mapping by name, or a list."""
    name: Annotated[str, Field(max_length=63)] = ""
    """The field with the name of a role, where they are a list."""
    count: Name = "replicas"
    """The field with the number of its pods."""
    label: Key
    """The pod label whose value, in lower case, is the name of the role in lower case."""
    index_label: Annotated[str, Field(max_length=316)] = ""
    """The pod label with the index among the pods of a role; none where it is empty."""


class Rule(ApiModel):
    """Grouping of the pods of some kinds of owners."""

    owners: Annotated[tuple[OwnerKindSet, ...], Field(min_length=1)]
    """The kinds the rule is for."""
    treatment: Treatment = Treatment.GANG
    """How their pods are grouped."""
    defaults: Defaults | None = None
    """Only for workloads whose queue is named in this dialect; absent means all."""
    only_with: Annotated[str, Field(max_length=253)] = ""
    """A field without which the owner below decides, as for ``skip``; empty: always this rule."""
    only_annotated: Annotated[str, Field(max_length=316)] = ""
    """An annotation or label without which the next rule for the kind applies; empty: always."""
    framework: str = ""
    """Name of the code for what the fields below cannot express."""
    floor: Count = Count()
    """minMember of the gang, where it has no leaves."""
    expected: Count = Count(default=0)
    """Total number of pods; 0 when unknown."""
    part_label: str = ""
    """One gang for each value of this pod label."""
    leaf_label: str = ""
    """Pod label whose value, in lower case, names the leaf."""
    leaves: tuple[SubgroupRule, ...] = ()
    """The subgroups of the gang."""
    roles: RoleRule | None = None
    """The templates of the gang's pods, where it has no leaves."""
    min_leaves: NonNegative | None = None
    """Number of leaves that must reach minMember; absent means all."""
    rank_labels: tuple[Key, ...] = ()
    """Pod labels with a pod's rank: the lowest is placed first."""
    requires: tuple[Path, ...] = ()
    """Fields that the owner must have."""
    queue: tuple[Path, ...] = ()
    """Fields of the owner that name its queue, where no label or annotation does."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.leaves and not self.leaf_label:
            raise ValueError("leaves need leafLabel, the pod label that distinguishes them")
        if self.framework and self.leaves:
            raise ValueError(
                "framework and leaves are mutually exclusive: a framework defines its own leaves"
            )
        return self


class QueueKeyRule(ApiModel):
    """A label or annotation that names queues."""

    key: Key
    """The key, on pods, their owners and namespaces."""
    defaults: Defaults = Defaults.NATIVE
    """Dialect whose defaults apply to a workload that uses it."""


class RuleFile(ApiModel):
    """A rule file."""

    queue_keys: tuple[QueueKeyRule, ...] = ()
    """Labels and annotations that name queues, in order of precedence."""
    rules: tuple[Rule, ...] = ()
    """Rules; if several name one kind, the first applies."""
