"""Settings for autoscalers: how pending pods request nodes.

Cluster Autoscaler and Karpenter add nodes for pods with the condition ``Unschedulable``; Cluster
Autoscaler also for a ProvisioningRequest, which covers all pods of a gang at once.
"""

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kai_py.api.model import Amount, ApiModel, Name
from kai_py.api.queue import GROUP
from kai_py.api.times import Duration

NO_CLASS = "none"
PROTECTING_ANNOTATIONS = (
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
)
"""Annotations of nodes that keep Karpenter and Cluster Autoscaler from removing them."""
PROMISED_KEY = f"{GROUP}/promised"
"""Annotation of nodes: those of these annotations that we wrote, separated by commas."""


class ProvisioningConfig(ApiModel):
    """ProvisioningRequests (autoscaling.x-k8s.io): one for each gang that is short of capacity."""

    class_name: Name | None = None
    """Class of the requests, such as ``best-effort-atomic-scale-up.autoscaling.x-k8s.io``; without
    it only workloads annotated ``scheduling.kai.io/provisioning-class-name`` get one."""
    parameters: dict[str, Annotated[str, Field(max_length=255)]] = Field(
        default_factory=dict, max_length=100
    )
    """Parameters of the class."""
    retry_after: Annotated[Duration, Field(gt=0)] = 300.0
    """Time after which a request that failed, or whose capacity was not used, is created again."""


class GroupTaint(ApiModel):
    """A taint of the nodes of a group."""

    key: Annotated[str, Field(min_length=1, max_length=316)]
    value: Annotated[str, Field(max_length=63)] = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class GroupDevices(ApiModel):
    """Equal devices that a DRA driver publishes for a node of a group."""

    driver: Name
    """Name of the driver."""
    count: Annotated[int, Field(ge=1, le=128, strict=True)]
    """Devices of a node."""
    attributes: dict[str, bool | int | Annotated[str, Field(max_length=64)]] = Field(
        default_factory=dict, max_length=32
    )
    """Their attributes."""
    capacity: dict[str, Amount] = Field(default_factory=dict, max_length=32)
    """Their capacities, such as memory."""


class NodeGroupConfig(ApiModel):
    """A node group that an autoscaler fills, as one node of it will be."""

    name: Name
    """Its name in ``kai-py what-if --add-nodes NAME=COUNT`` and in suggestions."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Labels of its nodes."""
    taints: Annotated[tuple[GroupTaint, ...], Field(max_length=32)] = ()
    """Taints of its nodes."""
    allocatable: dict[str, Amount] = Field(default_factory=dict, max_length=64)
    """What its nodes have for pods, by resource."""
    devices: Annotated[tuple[GroupDevices, ...], Field(max_length=16)] = ()
    """Devices that drivers publish for its nodes."""


class AutoscalingConfig(ApiModel):
    """Scale-up requests."""

    node_groups: Annotated[tuple[NodeGroupConfig, ...], Field(max_length=64)] = ()
    """Node groups that may have no node at present, for what-if questions and suggestions."""

    surplus: bool = True
    """Whether elastic pods (above minMember) also trigger scale-ups."""
    futile_scale_ups: Annotated[int, Field(ge=1, strict=True)] = 3
    """After this many scale-ups without more capacity for it, a gang triggers no more."""
    settled_after: Annotated[Duration, Field(gt=0)] = 300.0
    """Time from the first new node of a scale-up until all of it is ready for pods."""
    protect_promised: bool = True
    """Whether nodes on which capacity is promised to pods are annotated, so that Karpenter and
    Cluster Autoscaler do not remove them in the meantime."""
    provisioning: ProvisioningConfig = ProvisioningConfig()
    """Requests for the nodes of a whole gang at once."""

    @model_validator(mode="after")
    def _group_names_differ(self) -> "AutoscalingConfig":
        counts = Counter(each.name for each in self.node_groups)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"nodeGroups has two groups named {twice[0]}: rename one")
        return self
