"""What nodes hold while nothing runs on them: the one answer for explanations and for demand.

Two sets of nodes are asked about: those that admit a shape *in time*, once cordons, unready nodes
and other passing states are over, and those that admit it now (``StaticFits``).
"""

import numpy as np

from kai_py.policy.fit import matches_own_selectors, replicas_that_fit
from kai_py.policy.node_selector import matches_selector
from kai_py.policy.tolerations import tolerated_in_time
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

MOST_PODS = 1 << 20
"""More pods than one node holds: keeps sums over nodes within int64."""


def admitted_in_time(shape: Shape, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: its selector, affinity, lasting taints and volumes admit the node."""
    mask = matches_own_selectors(shape, nodes) & tolerated_in_time(shape.tolerations, nodes)
    for selector in shape.volume_selectors:
        mask = mask & matches_selector(selector, nodes)
    return mask


def replicas_on_empty(shape: Shape, snapshot: Snapshot, admitted: Bools) -> Ints:
    """(nodes,) int64: how many pods of ``shape`` each ``admitted`` node holds by resources.

    At most ``MOST_PODS`` each.
    """
    whole = snapshot.nodes.allocatable
    fit = replicas_that_fit(shape, snapshot.resources, whole, admitted, whole)
    return np.minimum(fit, MOST_PODS)
