"""Lost work: what an eviction destroys, as far as it is known.

    work of a pod that is lost = restart cost + time since its start, or since its last checkpoint
    lost work of several pods  = sum of each, times the part of the cluster that the pod holds
    weight of a gang           = 1 + the times it was evicted within a day

Checkpoints are taken at multiples of the declared interval from the start of the pod. A workload
that declares too short an interval only becomes more likely to be evicted.
"""

from msgspec import Struct

from kai_py.snapshot.gangs import Gang, Member


class LossRules(Struct, frozen=True, kw_only=True):
    """How evictions are weighed against time; times in seconds, 0 turns a rule off.

    ``patience``: how long a gang waits for pods that are about to end before it evicts others. A
    gang that waited longer, by as much as its victims would lose, gets them whatever they lose.
    ``settling``: for how long a pod that will end by itself is not evicted after its start.
    ``evictions_per_day``: after that many within a day a gang loses pods only to queues
    within what they deserve. ``restart_cost``: the start-up of a pod. ``reserve_after``: how long
    the largest gang waits before nodes are reserved for it where its queue does not say.
    ``by_loss``: whether candidates that lose less come first.
    """

    patience: float = 0.0
    settling: float = 0.0
    evictions_per_day: int = 0
    restart_cost: float = 0.0
    reserve_after: float = 0.0
    by_loss: bool = False


NO_LOSS_RULES = LossRules()

EARLY_SECONDS = 120.0
"""Seconds: a pod evicted sooner after its start has hardly done more than start up."""


def lost_seconds(gang: Gang, member: Member, now: float, restart_cost: float) -> float:
    """Seconds of its time that a running pod has to repeat if it is evicted at ``now``."""
    if not member.bound_since:
        return restart_cost
    ran, interval = max(now - member.bound_since, 0.0), gang.settings.checkpoint_interval
    return restart_cost + (ran % interval if interval else ran)


def next_checkpoint(gang: Gang, member: Member, now: float) -> float | None:
    """When a running pod next saves its work, seconds since the epoch; None if it never does."""
    interval = gang.settings.checkpoint_interval
    if not interval or not member.bound_since:
        return None
    taken = max(now - member.bound_since, 0.0) // interval
    return member.bound_since + (taken + 1.0) * interval
