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
    """What a kind of owner makes of its pods."""

    GANG = "gang"
    """The owner's pods are one gang."""
    PODS = "pods"
    """Every pod starts by itself."""
    SKIP = "skip"
    """The owner below decides: this one only holds others together."""


class WorkloadClass(StrEnum):
    """What pods are for; dialects derive priorities from it."""

    TRAIN = "train"
    BUILD = "build"
    BUILD_PREEMPTIBLE = "build-preemptible"
    INFERENCE = "inference"


class OwnerKindSet(ApiModel):
    """Kinds of one API group."""

    group: Annotated[str, Field(max_length=253)] = ""
    """API group, empty for the core one."""
    kinds: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Kinds of that group, in any version."""


class SummedField(ApiModel):
    """A number that stands in each of several places, added up."""

    each: Path
    """The places."""
    field: Name
    """Where the number stands in each of them."""
    default: NonNegative = 1
    """What a place without it counts."""


class Count(ApiModel):
    """How many: the first of the ways below that gives a number."""

    pod_annotations: tuple[Key, ...] = ()
    """Annotations of the pod or of the nearest owner that has one."""
    annotations: tuple[Key, ...] = ()
    """Annotations or labels of the owner."""
    first: tuple[Path, ...] = ()
    """Fields of the owner; the first that is there."""
    sum: tuple[SummedField, ...] = ()
    """Fields that are added up; taken when any of their places is there."""
    default: NonNegative = 1
    """When nothing else says it."""


class SubgroupRule(ApiModel):
    """A subgroup that holds pods."""

    name: Name
    """The value of ``leafLabel`` on its pods."""
    floor: Count = Count()
    """How many of its pods the gang needs."""


class Rule(ApiModel):
    """What the pods of some kinds of owners are."""

    owners: Annotated[tuple[OwnerKindSet, ...], Field(min_length=1)]
    """The kinds the rule is for."""
    treatment: Treatment = Treatment.GANG
    """What becomes of their pods."""
    defaults: Defaults | None = None
    """Only for workloads whose queue is addressed in these words; absent means all."""
    workload_class: WorkloadClass = WorkloadClass.TRAIN
    """What the pods are for, unless they say otherwise."""
    framework: str = ""
    """Name of the code for what the fields below cannot say."""
    floor: Count = Count()
    """How many pods the gang needs, where it has no leaves."""
    expected: Count = Count(default=0)
    """How many pods there will be; 0 when nobody knows."""
    part_label: str = ""
    """One gang for each value of this pod label."""
    leaf_label: str = ""
    """Pod label whose value, in lower case, names the leaf."""
    leaves: tuple[SubgroupRule, ...] = ()
    """The gang's leaves."""
    min_leaves: NonNegative | None = None
    """How many leaves must reach their floor; absent means all."""
    rank_labels: tuple[Key, ...] = ()
    """Pod labels with a pod's rank: the lowest is placed first."""
    requires: tuple[Path, ...] = ()
    """Fields without which the owner makes no sense."""
    queue: tuple[Path, ...] = ()
    """Fields of the owner that name its queue, where no label or annotation does."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.leaves and not self.leaf_label:
            raise ValueError("leaves need leafLabel: the pod label that tells them apart")
        if self.framework and self.leaves:
            raise ValueError("framework and leaves exclude each other: code knows its own leaves")
        return self


class QueueKeyRule(ApiModel):
    """A label or annotation that names queues."""

    key: Key
    """The key, on pods, their owners and namespaces."""
    defaults: Defaults = Defaults.NATIVE
    """Whose defaults a workload gets that uses it."""


class RuleFile(ApiModel):
    """A rule file."""

    queue_keys: tuple[QueueKeyRule, ...] = ()
    """Labels and annotations that name queues, the most telling first."""
    rules: tuple[Rule, ...] = ()
    """Rules; of two for one kind the first counts."""
