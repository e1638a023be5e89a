"""Fair share: what each queue is entitled to in this cycle.

Per resource and top-down: the roots divide the cluster, the children of a queue divide its share.
The division among siblings depends on the profile (``sibling_division``): deserved
amounts first, then the surplus by priority and weight, never more than demand or maximum.

In the native profile the demand of a queue is what its subtree can really use: below a maximum no
more than that, below a weight of 0 no more than what is deserved. So no share goes to a branch in
which no queue may use it.

All resources are divided side by side: O(resources x queues log queues) in about a hundred numpy
calls per level.
"""

from dataclasses import dataclass

import numpy as np

from kai_py.policy.fairness_rules import Division, FairnessRules
from kai_py.policy.sibling_division import NEGLIGIBLE, Siblings, divide_exactly
from kai_py.policy.whole_units import divide_whole_units
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import QueueTable


@dataclass(frozen=True, slots=True)
class FairShare:
    """The entitlement of each queue, (resources, queues) each, and its components.

    ``fair`` = ``deserved`` + ``surplus``. ``weight_share`` is the queue's fraction of the surplus
    of its priority among its siblings. ``scaled`` marks deserved amounts that were scaled down
    because the cluster is smaller than their sum. ``remaining`` (resources,) is what no queue may
    or can use.
    """

    fair: Floats
    deserved: Floats
    surplus: Floats
    weight_share: Floats
    scaled: Bools
    remaining: Floats


def fair_share(
    queues: QueueTable,
    total: Floats,
    demand: Floats,
    rules: FairnessRules,
    past_usage: Floats | None = None,
) -> FairShare:
    """Divide ``total`` (resources,) among the queues.

    ``demand`` (resources, queues) is what each queue's subtree has allocated and pending.
    ``past_usage`` of the same shape is a decayed fraction of the cluster; None where none is known.
    """
    exact = rules.division is Division.EXACT
    usable = usable_demand(queues, demand) if exact else demand
    ceiling = np.minimum(usable, queues.max)
    past = np.zeros_like(ceiling) if past_usage is None else past_usage
    fair, deserved, surplus, share = (np.zeros_like(ceiling) for _ in range(4))
    divide = divide_exactly if exact else divide_whole_units
    for level in queues.levels():
        parents = _level_above(queues, level)
        siblings = Siblings(
            group=queues.parent[level].astype(np.int64) - parents.start,
            budget=fair[:, parents] if level.start else total[:, None],
            ceiling=ceiling[:, level],
            deserved=queues.deserved[:, level],
            weight=queues.weight[:, level],
            past_usage=past[:, level],
            priority=queues.priority[level],
            creation_order=queues.creation_order[level],
        )
        portions = divide(siblings, rules.usage_weight)
        deserved[:, level] = portions.deserved
        surplus[:, level] = portions.surplus
        share[:, level] = portions.weight_share
        fair[:, level] = portions.deserved + portions.surplus
    roots = queues.depth == 0
    guaranteed = np.minimum(queues.deserved, ceiling)
    scaled = np.isfinite(queues.deserved) & (deserved < guaranteed - NEGLIGIBLE)
    remaining = np.maximum(total - fair[:, roots].sum(axis=1), 0.0)
    return FairShare(fair, deserved, surplus, share, scaled, remaining)


def usable_demand(queues: QueueTable, demand: Floats) -> Floats:
    """(resources, queues) the part of each subtree's demand that its limits let it use."""
    limit = np.where(queues.weight > 0, queues.max, np.minimum(queues.max, queues.deserved))
    usable = np.array(demand, np.float64)
    for level in reversed(list(queues.levels())):
        excess = np.maximum(usable[:, level] - limit[:, level], 0.0)
        usable[:, level] -= excess
        if level.start:
            unusable = demand[:, level] - usable[:, level]
            # Not `-=`: several queues of the level may have the same parent.
            np.subtract.at(usable.T, queues.parent[level], unusable.T)
    return np.maximum(usable, 0.0)


def _level_above(queues: QueueTable, level: slice) -> slice:
    """The parents of the level's queues; -1 is the cluster above the roots."""
    if level.start == 0:
        return slice(-1, 0)
    return slice(int(queues.level_starts[queues.depth[level.start] - 1]), level.start)
