"""What KAI decides by the kind of a workload: its class, and defaults that an operator sets.

The topmost owner decides, but not Argo Workflows, TrainJobs, Dynamo graphs and workloads of run.ai:
below these KAI takes the next owner. Kinds that it does not know are training work, even those that
serve. An operator's defaults go by kind, with or without its group: those of a kind that KAI skips
decide first, the topmost of them, then those of the nearest owner.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/hub and plugins/defaultgrouper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kai_py.grouping.owner_chain import GroupKind, OwnerChain

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


@dataclass(frozen=True, slots=True)
class KindDefaults:
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
