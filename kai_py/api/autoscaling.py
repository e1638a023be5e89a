"""Settings for autoscalers: how pending pods request nodes.

Cluster Autoscaler and Karpenter add nodes for pods with the condition ``Unschedulable``; Cluster
Autoscaler also for a ProvisioningRequest, which covers all pods of a gang at once.
"""

from typing import Annotated

from pydantic import Field

from kai_py.api.duration import Duration
from kai_py.api.model import ApiModel, Name

NO_CLASS = "none"


class ProvisioningConfig(ApiModel):
    """ProvisioningRequests (autoscaling.x-k8s.io): one for each gang that waits for room."""

    class_name: Name | None = None
    """Class of the requests, such as ``best-effort-atomic-scale-up.autoscaling.x-k8s.io``; without
    it only workloads annotated ``scheduling.kai.io/provisioning-class-name`` get one."""
    parameters: dict[str, Annotated[str, Field(max_length=255)]] = Field(
        default_factory=dict, max_length=100
    )
    """Parameters of the class."""
    retry_after: Annotated[Duration, Field(gt=0)] = 300.0
    """Time after which a request that failed, or whose room was given up, is made anew."""


class AutoscalingConfig(ApiModel):
    """Calling for nodes."""

    surplus: bool = True
    """Whether pods above the floor of a gang call for nodes, too."""
    futile_scale_ups: Annotated[int, Field(ge=1, strict=True)] = 3
    """A gang that has no more room than before after so many scale-ups calls no more."""
    settled_after: Annotated[Duration, Field(gt=0)] = 300.0
    """Time from the first new node of a scale-up until all of it is ready for pods."""
    provisioning: ProvisioningConfig = ProvisioningConfig()
    """Asking for the nodes of a gang at once."""
