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

ZONE_MALUS = 5e-7
"""What a further zone counts: 15 of them less than any alternative of a claim."""


def fill_by_zones(
    count: int,
    copies: Ints,
    preference: Floats,
    slack: Floats,
    strategy: FillStrategy,
    *,
    within: Ints | None,
    first: Ints | None = None,
) -> list[tuple[int, int]]:
    """(node row, pods) in placement order, as ``fill`` with the wish for few zones.

    ``within``: (zones, nodes) pods that start in a row with at most so many zones each, ``count``
    where there are as many or more; None where no node differs.
    """
    if within is None or (within[0] >= np.minimum(copies, count)).all():
        return fill(count, copies, preference, slack, strategy, first=first)
    zones, nodes = within.shape
    chunks = fill(
        count,
        _layers(within, copies, count),
        (preference - ZONE_MALUS * np.arange(zones)[:, None]).reshape(-1),
        np.tile(slack, zones),
        strategy,
        first=None if first is None else _layers(within, first, count),
    )
    return [(row % nodes, pods) for row, pods in chunks]


def wish_for_few(within: Ints) -> Floats:
    """(nodes,) what one more pod would rather; ``within`` as of ``fill_by_zones``."""
    malus: Floats = np.count_nonzero(within[:-1] < 1, axis=0) * np.float64(-ZONE_MALUS)
    return malus


def _layers(within: Ints, copies: Ints, count: int) -> Ints:
    """(zones x nodes,) of the copies those that need just so many zones."""
    reached = np.where(within >= count, copies, np.minimum(within, copies))
    return np.diff(reached, axis=0, prepend=0).reshape(-1)
