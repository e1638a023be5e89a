"""Priority and preemptibility of KAI workloads, with KAI's and operators' defaults by kind.

The priority is the value of the PriorityClass that the workload names; of a class that does not
exist, the cluster's default class, else 50. The four classes that KAI installs count with their
values (train 50, build-preemptible 75, build 100, inference 125) even where they were removed.

Pods name their class in ``spec.priorityClassName``, where the API server decides who may: quotas
with a scope, and admission. It does not look at labels and at objects of other APIs. A class that
only these name counts if it is one that users may define (a value of at most a thousand million,
so none of ``system-…``), and if the namespace is one of those that the class itself lists in its
annotation ``scheduling.kai.io/namespaces``, should it have one.

A workload may be evicted if it is set to ``preemptible`` or ``semi-preemptible`` (but for its
minMember set), or if neither is set and its priority is below 100.

The kind of the topmost owner decides the defaults, but not Argo Workflows, TrainJobs, Dynamo graphs
and workloads of run.ai: below these KAI takes the next owner. Kinds that it does not know are
training work, even those that serve. An operator's defaults go by kind, with or without its group:
those of a kind that KAI skips decide first, the topmost of them, then those of the nearest owner.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/hub and plugins/defaultgrouper.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kai_py.api.queue import GROUP
from kai_py.api.records.core import Pod
from kai_py.api.records.policy import PriorityClass
from kai_py.grouping.gang_settings import Preemptibility, parse_preemptibility
from kai_py.grouping.owner_chain import GroupKind, OwnerChain, Owners

PRIORITY_CLASSES = "priorityclasses"
CLUSTER_DEFAULT = ""
"""The name under which the cluster's default PriorityClass is looked up."""
CLASS_VALUES: Mapping[str, int] = {
    "train": 50,
    "build-preemptible": 75,
    "build": 100,
    "inference": 125,
}
DEFAULT_PRIORITY = 50
NON_PREEMPTIBLE_FROM = 100
HIGHEST_USER_DEFINABLE = 1_000_000_000
"""The highest value that Kubernetes lets users give a class."""
NAMESPACES_KEY = f"{GROUP}/namespaces"
"""Annotation of a PriorityClass: the namespaces, separated by commas, that may name it by label."""


def may_name(class_name: str, namespace: str, owners: Owners) -> bool:
    """Whether workloads of ``namespace`` may name the class elsewhere than in a pod's spec."""
    found = owners.named(PRIORITY_CLASSES, "", class_name)
    if not isinstance(found, PriorityClass):
        return True
    listed = found.metadata.annotations.get(NAMESPACES_KEY)
    allowed = listed is None or namespace in (each.strip() for each in listed.split(","))
    return allowed and found.value <= HIGHEST_USER_DEFINABLE


def named_priority(class_name: str, pod: Pod, owners: Owners) -> int:
    """The priority of the class that an object of ``pod`` names, where it may name it."""
    own = class_name == pod.spec.priority_class_name
    allowed = own or may_name(class_name, pod.metadata.namespace, owners)
    return priority_of(class_name if allowed else "", owners)


def priority_of(class_name: str, owners: Owners) -> int:
    """The priority of a class; ``class_name`` may be empty."""
    if class_name:
        found = owners.named(PRIORITY_CLASSES, "", class_name)
        if isinstance(found, PriorityClass):
            return found.value
        if class_name in CLASS_VALUES:
            return CLASS_VALUES[class_name]
    default = owners.named(PRIORITY_CLASSES, "", CLUSTER_DEFAULT)
    return default.value if isinstance(default, PriorityClass) else DEFAULT_PRIORITY


def existing_class(names: Iterable[str], owners: Owners) -> str:
    """The first of these classes that exists, empty if none does."""
    return next(
        (
            name
            for name in names
            if name in CLASS_VALUES
            or (name and owners.named(PRIORITY_CLASSES, "", name) is not None)
        ),
        "",
    )


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether a workload with this ``preemptibility``, which may be empty, may be evicted."""
    parsed = parse_preemptibility(preemptibility)
    if parsed is None:
        return priority < NON_PREEMPTIBLE_FROM
    return parsed is not Preemptibility.NON_PREEMPTIBLE


PASSED = frozenset(
    {
        GroupKind("argoproj.io", "Workflow"),
        GroupKind("trainer.kubeflow.org", "TrainJob"),
        GroupKind("nvidia.com", "DynamoGraphDeployment"),
        *(
            GroupKind("run.ai", f"{kind}Workload")
            for kind in (
                *("Training", "Interactive", "Distributed", "Inference"),
                "DistributedInference",
            )
        ),
    }
)
"""Kinds that KAI skips: the owner below them decides."""
TRAIN = "train"
CLASSES: Mapping[GroupKind, str] = {
    GroupKind("apps", "Deployment"): "inference",
    GroupKind("serving.knative.dev", "Service"): "inference",
    GroupKind("egx.nvidia.io", "SPOTRequest"): "inference",
    GroupKind("kubeflow.org", "Notebook"): "build",
}


class KindDefaults(Struct, frozen=True):
    """An operator's defaults for the workloads of a kind; an empty group: in any."""

    kind: str
    group: str = ""
    priority_class: str = ""
    preemptibility: str = ""


def class_of(chain: OwnerChain) -> str:
    """The PriorityClass of a pod's workload in KAI where nothing names one."""
    kinds = [link.kind for link in chain.owners]
    while len(kinds) > 1 and kinds[-1] in PASSED:
        kinds.pop()
    return CLASSES.get(kinds[-1], TRAIN) if kinds else TRAIN


def defaults_of(chain: OwnerChain, defaults: Sequence[KindDefaults]) -> Iterator[KindDefaults]:
    """The operator's defaults that apply to a pod's workload, the deciding ones first."""
    kinds = [link.kind for link in chain.owners]
    passed = [kind for kind in reversed(kinds) if kind in PASSED]
    for kind in (*passed, *(kind for kind in kinds if kind not in PASSED)):
        exact = [each for each in defaults if (each.group, each.kind) == kind]
        yield from exact or [
            each for each in defaults if ("", kind.kind) == (each.group, each.kind)
        ]
