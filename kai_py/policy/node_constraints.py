"""What of a shape decides which nodes admit its pods, apart from what is free on them.

Shapes that differ only in amounts mostly have equal constraints, so static fits are found once for
all of them. Filters read nothing else of a shape, so no field can be missing from ``key``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kai_py.api.gpu_share import GPU_RESOURCE, MIG_PREFIX
from kai_py.api.records.core import Affinity, NodeSelector, Toleration
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.spot import SpotChoice


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """``claim_selectors``: the names of allocated claims, and where they can be used.

    ``shares_gpus``: part of a GPU is requested; ``uses_gpus``, ``uses_mig``: whole GPUs, and MIG
    devices, of a device plugin. ``extended_resources``: those that a claim could serve.
    """

    node_selector: Mapping[str, str]
    affinity: Affinity | None
    tolerations: tuple[Toleration, ...]
    volume_selectors: tuple[NodeSelector, ...]
    claim_selectors: tuple[tuple[str, NodeSelector], ...]
    spot: SpotChoice | None
    shares_gpus: bool
    uses_gpus: bool
    uses_mig: bool
    extended_resources: tuple[str, ...]
    node_features: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """Equal for equal constraints only."""
        return _ENCODER.encode(self)


def constraints_of(shape: Shape) -> NodeConstraints:
    """The constraints of a shape."""
    return NodeConstraints(
        node_selector=shape.node_selector,
        affinity=shape.affinity,
        tolerations=shape.tolerations,
        volume_selectors=shape.volume_selectors,
        claim_selectors=tuple(
            (use.name, use.node_selector) for use in shape.claims if use.node_selector is not None
        ),
        spot=shape.spot,
        shares_gpus=shape.gpu_share is not None,
        uses_gpus=GPU_RESOURCE in shape.requests,
        uses_mig=any(name.startswith(MIG_PREFIX) for name in shape.requests),
        extended_resources=tuple(shape.extended.resources),
        node_features=shape.node_features,
    )


_ENCODER = msgspec.json.Encoder(order="deterministic")
