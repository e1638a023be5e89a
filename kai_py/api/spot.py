"""Spot capacity: which nodes are spot nodes, and which workloads use them.

Sources of the labels: Karpenter, EKS, GKE and AKS.
"""

import enum
from typing import Annotated

from pydantic import Field

from kai_py.api.model import ApiModel, LabelValue, QualifiedName
from kai_py.api.times import DurationText


class SpotUse(enum.StrEnum):
    """Whether pods go to spot nodes."""

    PREFER = "prefer"
    """Spot nodes come first."""
    ONLY = "only"
    """No other nodes, except as a fallback."""
    NEVER = "never"
    """No spot nodes."""


class SpotFallback(ApiModel):
    """When gangs limited to spot nodes may use on-demand nodes, and how many GPUs of those."""

    after: DurationText
    """Time that a gang waits for spot nodes before it may use others."""
    max_gpus: Annotated[
        float | None, Field(ge=0, le=1_000_000, strict=True, allow_inf_nan=False)
    ] = None
    """Limit of the GPUs on on-demand nodes that such gangs of the queue have together; absent means
    no limit."""


SpotLabels = dict[
    QualifiedName,
    Annotated[tuple[LabelValue, ...], Field(min_length=1, max_length=16)],
]

DEFAULT_SPOT_LABELS: SpotLabels = {
    "karpenter.sh/capacity-type": ("spot",),
    "eks.amazonaws.com/capacityType": ("SPOT",),
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "cloud.google.com/gke-provisioning": ("spot", "preemptible"),
    "kubernetes.azure.com/scalesetpriority": ("spot",),
}


class SpotConfig(ApiModel):
    """Spot nodes."""

    labels: Annotated[SpotLabels, Field(max_length=64)] = Field(
        default_factory=lambda: dict(DEFAULT_SPOT_LABELS)
    )
    """Labels of spot nodes, with their values; a node with any of them is a spot node."""
    price_ratio: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Price of a spot node as a fraction of an on-demand node's. A gang that fell back returns to
    spot nodes if what it still has to do, and what it has to repeat, costs less there."""
