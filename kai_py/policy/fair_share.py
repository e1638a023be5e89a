"""How much is each queue entitled to this cycle?

Per resource and top-down: the roots divide the cluster, the children of a queue divide what it got.
The division among siblings is a rule of the profile (``exact_division``, ``whole_units``): what is
deserved first, then the surplus by priority and weight, never more than demand or maximum.

In the native profile a queue stands for the demand that its subtree can really use: below a maximum
no more than that, below a weight of 0 no more than what is deserved. So nothing is given to a
branch in which nobody may take it.

All resources are divided side by side: O(resources x queues log queues) in about a hundred numpy
calls per level.
"""

from dataclasses import dataclass

import numpy as np

from kai_py.policy.exact_division import divide_exactly
from kai_py.policy.fairness_rules import Division, FairnessRules
from kai_py.policy.siblings import Siblings
from kai_py.policy.water_fill import NEGLIGIBLE
from kai_py.policy.whole_units import divide_whole_units
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import QueueTable


@dataclass(frozen=True, slots=True)
class FairShare:
    """The entitlement of each queue, (resources, queues) each, and how it came about.

    ``fair`` = ``deserved`` + ``surplus``. ``weight_share`` is the queue's part of the surplus of
    its priority among its siblings. ``scaled`` marks guarantees that were cut because there is less
    than their sum. ``remaining`` (resources,) is what nobody may or wants to use.
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

    ``demand`` (resources, queues) is what each queue's subtree runs and waits for. ``usage`` of the
    same shape is past usage as a part of the cluster, decayed; None where none is known.
    """
    exact = rules.division is Division.EXACT
    wanted = usable_demand(queues, demand) if exact else demand
    ceiling = np.minimum(wanted, queues.max)
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
    most = np.where(queues.weight > 0, queues.max, np.minimum(queues.max, queues.deserved))
    usable = np.array(demand, np.float64)
    for level in reversed(list(queues.levels())):
        cut = np.maximum(usable[:, level] - most[:, level], 0.0)
        usable[:, level] -= cut
        if level.start:
            lost = demand[:, level] - usable[:, level]
            np.subtract.at(usable.T, queues.parent[level], lost.T)
    return np.maximum(usable, 0.0)


def _level_above(queues: QueueTable, level: slice) -> slice:
    """The parents of the level's queues; -1 stands for the cluster above the roots."""
    if level.start == 0:
        return slice(-1, 0)
    return slice(int(queues.level_starts[queues.depth[level.start] - 1]), level.start)
