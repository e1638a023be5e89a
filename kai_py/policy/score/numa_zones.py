"""The preference for nodes on which pods need the fewest NUMA zones.

Of nodes that are equal in all that users state, a pod goes where one zone has all of its aligned
resources. A node that reports no zones counts as one zone. As a node fills, the next pod may need
more of them: its capacity is split into layers, so many pods with one zone each, then so many with
two, and the layers of all nodes are filled together. O(zones x nodes) beside the fill. The rule is
that of *least NUMA nodes* of the scheduler-plugins' NodeResourceTopologyMatch, counted on what is
free as the cycle places pods.
"""

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.policy.fill import fill
from kai_py.snapshot.resources import Floats, Ints


def fill_by_numa_zones(
    count: int,
    replicas: Ints,
    preference: Ints,
    slack: Floats,
    strategy: FillStrategy,
    *,
    replicas_by_zones: Ints | None,
    preferred_replicas: Ints | None = None,
) -> list[tuple[int, int]]:
    """(node row, pods) in placement order, as ``fill`` with the preference for few zones.

    ``preference``: ranks, higher first: (zones, nodes) by the zones that a pod needs, or (nodes,)
    if those make no difference. ``replicas_by_zones``: (zones, nodes) pods that start in a row with
    at most so many zones each, ``count`` where there are as many or more; None where no node
    differs.
    """
    if replicas_by_zones is None or (replicas_by_zones[0] >= np.minimum(replicas, count)).all():
        ranks = preference if preference.ndim == 1 else preference[0]
        return fill(count, replicas, ranks, slack, strategy, preferred_replicas=preferred_replicas)
    zones, nodes = replicas_by_zones.shape
    chunks = fill(
        count,
        _replicas_by_layer(replicas_by_zones, replicas, count),
        np.broadcast_to(preference, (zones, nodes)).reshape(-1),
        np.tile(slack, zones),
        strategy,
        preferred_replicas=None
        if preferred_replicas is None
        else _replicas_by_layer(replicas_by_zones, preferred_replicas, count),
    )
    return [(row % nodes, pods) for row, pods in chunks]


def zone_layers(replicas_by_zones: Ints) -> Ints:
    """(zones, 1) the preference of layers: a pod that needs one zone, two, and so on."""
    return -np.arange(len(replicas_by_zones))[:, None]


def fewer_zones(replicas_by_zones: Ints) -> Ints:
    """(nodes,) the preference of one more pod; argument as of ``fill_by_numa_zones``."""
    further: Ints = np.count_nonzero(replicas_by_zones[:-1] < 1, axis=0)
    return -further


def _replicas_by_layer(replicas_by_zones: Ints, replicas: Ints, count: int) -> Ints:
    """(zones x nodes,) of the replicas those that need just so many zones."""
    reached = np.where(
        replicas_by_zones >= count, replicas, np.minimum(replicas_by_zones, replicas)
    )
    return np.diff(reached, axis=0, prepend=0).reshape(-1)
