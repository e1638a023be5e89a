"""Can fairness ever give a gang the GPUs it asks for? A "no" is proven without any search.

Moving a victim frees nothing in sum. So the GPUs that are free on all nodes together, and those of
the victims that may be lost, must reach what the gang asks for. How many may be lost of a queue is
bounded by how far it is above its due (``reclaim_rules.most_victims``), times the largest of them.
O(queues) per gang, after one pass over the units of each queue.
"""

import numpy as np

from kai_py.api.gpu_share import CARD
from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Room
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.reclaim_rules import Reclaimer, most_victims
from kai_py.policy.standing import facing
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.resources import Bools


def may_suffice(
    state: CycleState, pool: VictimPool, reclaimer: Reclaimer, ask: Ask, asked_queues: Bools
) -> bool:
    """Whether enough GPUs could come free; ``asked_queues``: (queues,) whose pods may be lost."""
    needed = sum(member.shape.reported_requests.get(CARD, 0.0) for member in ask.members)
    free = _free_gpus(state)
    return needed <= free or needed <= free + _most_lost(state, pool, reclaimer, asked_queues)


def _free_gpus(state: CycleState) -> float:
    card = state.snapshot.resources.positions.get(CARD)
    if card is None:
        return 0.0
    _, parts = state.statement.shared.all_parts(Room.LATER)
    return float(np.maximum(state.statement.later[card], 0.0).sum() + np.maximum(parts, 0.0).sum())


def _most_lost(
    state: CycleState, pool: VictimPool, reclaimer: Reclaimer, asked_queues: Bools
) -> float:
    standing, gpu = state.quota.standing, state.quota.resources.index(GPU)
    _, theirs = facing(standing.queues, reclaimer.queue)
    givers = [queue for queue in pool.queues() if asked_queues[queue]]
    smallest = np.full(standing.allocated.shape, np.inf)
    largest, whole = np.zeros(len(standing.queues)), np.zeros(len(standing.queues))
    for queue in givers:
        least, most, everything = pool.range(queue)
        side = theirs[queue]
        np.minimum(smallest[:, side], least, out=smallest[:, side])
        largest[side] = max(largest[side], most[gpu])
        whole[side] += everything[gpu]
    sides = list(dict.fromkeys(int(theirs[queue]) for queue in givers))
    counts = most_victims(standing, reclaimer, smallest, state.quota.rules)
    bound = [min(whole[s], counts[s] * largest[s] if largest[s] else 0.0) for s in sides]
    return float(sum(bound))
