"""Spot nodes: which nodes are spot nodes, and whether pods of a shape may use them."""

from dataclasses import dataclass

import numpy as np

from kai_py.api.spot import SpotUse
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools

SpotLabelValues = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of spot nodes with their values, in order."""


@dataclass(frozen=True, slots=True)
class SpotChoice:
    """Whether pods go to spot nodes, which ``labels`` tell."""

    use: SpotUse
    labels: SpotLabelValues


def spot_nodes(labels: SpotLabelValues, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the spot nodes."""
    found = np.zeros(len(nodes), dtype=np.bool_)
    for key, values in labels:
        found |= nodes.label(key).matches(values)
    return found
