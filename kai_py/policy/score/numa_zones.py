"""On which nodes do pods get by with the fewest NUMA zones?

    wish[node] = -ZONE_MALUS x (zones that the next pod needs there - 1)

It comes after all that users state and before how nodes are packed, so that of nodes that are equal
otherwise a pod goes where one zone has all of its aligned resources. A node that reports no zones
counts as one zone. As a node fills, the next pod may need more of them: its room is split into
layers, so many pods with one zone each, then so many with two, and the layers of all nodes are
filled together. O(zones x nodes) beside the fill. The rule is that of *least NUMA nodes* of the
scheduler-plugins' NodeResourceTopologyMatch, counted on what is free as the cycle places pods.
"""

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.policy.fill import fill
from kai_py.snapshot.resources import Floats, Ints

ZONE_PENALTY = 5e-7
"""What a further zone counts: 15 of them less than any alternative of a claim."""


def fill_by_numa_zones(
    count: int,
    replicas: Ints,
    preference: Floats,
    slack: Floats,
    strategy: FillStrategy,
    *,
    replicas_by_zones: Ints | None,
    preferred_replicas: Ints | None = None,
) -> list[tuple[int, int]]:
    """(node row, pods) in placement order, as ``fill`` with the wish for few zones.

    ``within``: (zones, nodes) pods that start in a row with at most so many zones each, ``count``
    where there are as many or more; None where no node differs.
    """
    if replicas_by_zones is None or (replicas_by_zones[0] >= np.minimum(replicas, count)).all():
        return fill(
            count, replicas, preference, slack, strategy, preferred_replicas=preferred_replicas
        )
    zones, nodes = replicas_by_zones.shape
    chunks = fill(
        count,
        _replicas_by_layer(replicas_by_zones, replicas, count),
        (preference - ZONE_PENALTY * np.arange(zones)[:, None]).reshape(-1),
        np.tile(slack, zones),
        strategy,
        preferred_replicas=None
        if preferred_replicas is None
        else _replicas_by_layer(replicas_by_zones, preferred_replicas, count),
    )
    return [(row % nodes, pods) for row, pods in chunks]


def numa_zone_preference(replicas_by_zones: Ints) -> Floats:
    """(nodes,) what one more pod would rather; ``within`` as of ``fill_by_zones``."""
    malus: Floats = np.count_nonzero(replicas_by_zones[:-1] < 1, axis=0) * np.float64(-ZONE_PENALTY)
    return malus


def _replicas_by_layer(replicas_by_zones: Ints, replicas: Ints, count: int) -> Ints:
    """(zones x nodes,) of the copies those that need just so many zones."""
    reached = np.where(
        replicas_by_zones >= count, replicas, np.minimum(replicas_by_zones, replicas)
    )
    return np.diff(reached, axis=0, prepend=0).reshape(-1)
