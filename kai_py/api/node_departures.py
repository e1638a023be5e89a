"""Nodes that are about to go: what clouds, autoscalers and drivers write on them.

The signals are a table of the configuration, which is looked up on each node.

Sources: the constants and documentation of Karpenter, Cluster Autoscaler, AWS Node Termination
Handler, GKE (host maintenance), AKS (node auto-drain, node-problem-detector), EKS (node monitoring
agent), Kubernetes (well-known taints), node-problem-detector, and NVIDIA's GPU operator (driver
upgrades).
"""

import enum
from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import Struct, field
from pydantic import Field, model_validator

from kai_py.api.model import ApiModel, QualifiedName
from kai_py.api.records.node import Node
from kai_py.api.times import Duration


class DepartureStage(enum.StrEnum):
    """How sure it is that a node goes."""

    LOST = "lost"
    """Its pods run no more."""
    LEAVING = "leaving"
    """It goes soon; its pods still run."""
    SUSPECT = "suspect"
    """It may go, or has a problem: other nodes come first."""


class DepartureTreatment(enum.StrEnum):
    """What happens to a gang with pods on a node that is leaving."""

    CHECKPOINT = "checkpoint"
    """Its pods are asked to save their work; then it is evicted whole."""
    MOVE = "move"
    """It is evicted whole as soon as it fits on other nodes."""
    SHRINK = "shrink"
    """The pods on the node are evicted where minMember holds without them, otherwise as move."""
    GO_DOWN = "go-down"
    """It runs until the node is lost."""


class NodeSignal(ApiModel):
    """A taint, condition or label of nodes, and what it means."""

    taint: QualifiedName | None = None
    """Key of a taint."""
    condition: QualifiedName | None = None
    """Type of a condition."""
    label: QualifiedName | None = None
    """Key of a label."""
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=16)] = ()
    """Values of the taint or label, or statuses of the condition, that count; by default any value,
    and of conditions True."""
    effect: Annotated[str, Field(max_length=16)] = ""
    """Effect of the taint; by default any."""
    stage: DepartureStage = DepartureStage.LEAVING
    """How sure it is that the node goes."""

    @model_validator(mode="after")
    def _names_one(self) -> "NodeSignal":
        if sum(each is not None for each in (self.taint, self.condition, self.label)) != 1:
            raise ValueError("names exactly one of taint, condition and label")
        if self.effect and self.taint is None:
            raise ValueError("effect belongs to a taint")
        return self

    def counts(self, value: str, effect: str | None = "") -> bool:
        """Whether a taint or label that it names signals this with its value and effect."""
        return self.effect in ("", effect) and (not self.values or value in self.values)


def _signals(stage: DepartureStage, field: str, *keys: str) -> tuple[NodeSignal, ...]:
    return tuple(NodeSignal.model_validate({field: key, "stage": stage}) for key in keys)


DEFAULT_SIGNALS: tuple[NodeSignal, ...] = (
    NodeSignal(
        taint="node.kubernetes.io/unreachable", effect="NoExecute", stage=DepartureStage.LOST
    ),
    *_signals(
        DepartureStage.LOST,
        "taint",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    ),
    *_signals(
        DepartureStage.LEAVING,
        "taint",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "karpenter.sh/rebooting",
        "ToBeDeletedByClusterAutoscaler",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "cloud.google.com/impending-node-termination",
        "remediator.kubernetes.azure.com/unschedulable",
    ),
    NodeSignal(label="cloud.google.com/active-node-maintenance", values=("ONGOING",)),
    NodeSignal(
        label="nvidia.com/gpu-driver-upgrade-state",
        values=(
            "cordon-required",
            "wait-for-jobs-required",
            "pod-deletion-required",
            "drain-required",
        ),
    ),
    *_signals(
        DepartureStage.SUSPECT,
        "taint",
        "DeletionCandidateOfClusterAutoscaler",
        "aws-node-termination-handler/rebalance-recommendation",
        "cloud.google.com/maintenance-window-started",
    ),
    *_signals(
        DepartureStage.SUSPECT,
        "condition",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "CorruptDockerOverlay2",
        "FrequentKubeletRestart",
        "FrequentDockerRestart",
        "FrequentContainerdRestart",
        "FrequentUnregisterNetDevice",
        "FilesystemCorruptionProblem",
        "KubeletProblem",
        "KubeletUnhealthy",
        "ContainerRuntimeProblem",
        "ContainerRuntimeUnhealthy",
        "VMEventScheduled",
    ),
    *(
        NodeSignal(condition=each, values=("False",), stage=DepartureStage.SUSPECT)
        for each in (
            "AcceleratedHardwareReady",
            "ContainerRuntimeReady",
            "KernelReady",
            "NetworkingReady",
            "StorageReady",
        )
    ),
)


class NodeDeparturesConfig(ApiModel):
    """Nodes that are about to go: how they are recognised, and what happens to their gangs."""

    signals: Annotated[tuple[NodeSignal, ...], Field(max_length=256)] | None = None
    """Taints, conditions and labels of such nodes, in place of the built-in table."""
    more_signals: Annotated[tuple[NodeSignal, ...], Field(max_length=256)] = ()
    """Signals in addition to the table; of several on a node, the most certain stage counts."""
    treatment: DepartureTreatment = DepartureTreatment.SHRINK
    """What happens to gangs whose workload has no annotation scheduling.kai.io/on-node-departure;
    under the ``kai`` rules such gangs run until the node is lost."""
    checkpoint_grace: Annotated[Duration, Field(gt=0, le=86400)] = 60.0
    """Time that pods have to save their work, unless scheduling.kai.io/checkpoint-grace says
    otherwise."""

    restart_whole: bool = True
    """Whether a gang that falls below minMember because a node was lost, deleted, rebooted or
    drained restarts whole at once; otherwise after ``eviction.stalenessGrace``, as under the
    ``kai`` rules. The annotation scheduling.kai.io/on-pod-loss of a workload takes precedence."""

    @property
    def table(self) -> tuple[NodeSignal, ...]:
        """All signals."""
        signals = DEFAULT_SIGNALS if self.signals is None else self.signals
        return (*signals, *self.more_signals)


class DepartureRules(Struct, frozen=True):
    """``treatment`` of gangs that declare none; ``checkpoint_grace`` in seconds.

    ``restart_whole``: whether gangs that need pods which were lost restart whole at once.
    """

    treatment: DepartureTreatment = DepartureTreatment.SHRINK
    checkpoint_grace: float = 60.0
    restart_whole: bool = True


DEFAULT_DEPARTURE_RULES = DepartureRules()


STAGES = tuple(DepartureStage)
"""The surest first."""


class Departure(Struct, frozen=True):
    """``stage``: how certain it is that the node goes; ``signal``: the reason, for people."""

    stage: DepartureStage
    signal: str


class DepartureSignals(Struct, frozen=True):
    """The signals by what they name. One look at a node costs its taints, conditions and labels."""

    taints: dict[str, list[NodeSignal]] = field(default_factory=dict)
    conditions: dict[str, list[NodeSignal]] = field(default_factory=dict)
    labels: dict[str, list[NodeSignal]] = field(default_factory=dict)

    @classmethod
    def of(cls, signals: Iterable[NodeSignal]) -> "DepartureSignals":
        """These signals, by key."""
        made = cls()
        for each in signals:
            for name, by_key in (
                (each.taint, made.taints),
                (each.condition, made.conditions),
                (each.label, made.labels),
            ):
                if name is not None:
                    by_key.setdefault(name, []).append(each)
        return made

    def departure(self, node: Node) -> Departure | None:
        """The surest signal of a node; None if it has none.

        A node that is being deleted is leaving: its finalizers drain it first.
        """
        found = [*self._found(node)]
        if node.metadata.deletion_timestamp is not None:
            found.append(Departure(DepartureStage.LEAVING, "it is being deleted"))
        return min(found, key=lambda each: STAGES.index(each.stage), default=None)

    def _found(self, node: Node) -> Iterator[Departure]:
        for taint in node.spec.taints:
            for each in self.taints.get(taint.key, ()):
                if each.counts(taint.value, taint.effect):
                    yield Departure(each.stage, f"taint {taint.key}")
        for condition in node.status.conditions:
            for each in self.conditions.get(condition.type, ()):
                if condition.status in (each.values or ("True",)):
                    yield Departure(each.stage, f"condition {condition.type}")
        if not self.labels.keys().isdisjoint(node.metadata.labels):
            for key, signals in self.labels.items():
                value = node.metadata.labels.get(key)
                for each in signals if value is not None else ():
                    if each.counts(value or ""):
                        yield Departure(each.stage, f"label {key}={value}")


BUILT_IN = DepartureSignals.of(DEFAULT_SIGNALS)
