"""How many pods empty nodes hold, for explanations and for the demand of queues.

It is computed for two sets of nodes: those that admit a shape now (``StaticFits``), and those that
*eventually* do, once cordons, unreadiness and other passing states have ended.
"""

import numpy as np

from kai_py.policy.fit import matches_own_selectors, replicas_that_fit
from kai_py.policy.node_selector import matches_selector
from kai_py.policy.tolerations import eventually_tolerated
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints, ResourceIndex
from kai_py.snapshot.shape import Shape

MOST_PODS = 1 << 20
"""More pods than one node holds: keeps sums over nodes within int64."""


def eventually_admitted(shape: Shape, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: its selector, affinity, lasting taints and volumes admit the node."""
    mask = matches_own_selectors(shape, nodes) & eventually_tolerated(shape.tolerations, nodes)
    for selector in shape.volume_selectors:
        mask = mask & matches_selector(selector, nodes)
    return mask


def replicas_on_empty(
    shape: Shape, nodes: NodeColumns, resources: ResourceIndex, admitted: Bools
) -> Ints:
    """(nodes,) int64: how many pods of ``shape`` each ``admitted`` node holds by resources.

    At most ``MOST_PODS`` each.
    """
    whole = nodes.allocatable
    fit = replicas_that_fit(shape, resources, whole, admitted, whole)
    return np.minimum(fit, MOST_PODS)
