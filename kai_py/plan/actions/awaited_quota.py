"""Quota that terminating pods still have, kept for the gang that waits for it.

A gang that exceeds a bound of its queue only until terminating pods have gone can start as soon as
they have. What starts on the rest of the quota meanwhile would be evicted for it then. So what such
a gang requests counts as allocated for all gangs after it, if it fits on the nodes. Terminating
pods that are overdue are not waited for, so that this ends.
"""

from collections.abc import Sequence

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import exceeded_later
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats


class AwaitedQuota:
    """The requests that wait for terminating pods of their queues, in the order of their turns."""

    def __init__(self, state: CycleState) -> None:
        """Nothing waits yet."""
        self._state = state
        self._waiting: list[tuple[Gang, Floats]] = []

    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self._waiting)

    def may_wait(self, gang: Gang, request: PlacementRequest) -> bool:
        """Whether the request, which exceeds a bound now, will not exceed it after those ahead."""
        state, quota = self._state, self._state.quota
        if state.settings.rules.bypass_policy is not BypassPolicy.PREEMPT_FIRST:
            return False
        path = quota.queues.ancestors(quota.queues.positions[gang.queue])
        if not quota.leaving[:, path].any():
            return False
        cost, ahead = state.request_cost(gang), self._ahead_of(gang)
        return exceeded_later(quota, gang, request.members, cost, ahead) is None

    def add(self, gang: Gang) -> None:
        """Count the next request of a gang from now on."""
        self._waiting.append((gang, self._state.request_cost(gang)))

    def refuse(self, gang: Gang, members: Sequence[Member]) -> Unschedulable | None:
        """The reason if ``members`` would take quota that a gang ahead waits for, else None.

        Then no victims are searched for them, either, as they need none.
        """
        state, ahead = self._state, self._ahead_of(gang)
        if not ahead:
            return None
        over = exceeded_later(state.quota, gang, members, state.request_cost(gang), ahead)
        if over is None:
            return None
        state.search_budgets.searches_ended.add(gang.key)
        queues = state.quota.queues
        position = queues.positions[over.queue]
        first = next(
            each.key
            for each, _ in ahead
            if position in queues.ancestry[queues.positions[each.queue]]
        )
        return Unschedulable(
            Stage.QUEUE_MAX,
            f"the remaining quota of queue {over.queue} is kept for {first}, which waits until "
            "terminating pods have gone.",
        )

    def _ahead_of(self, gang: Gang) -> list[tuple[Gang, Floats]]:
        """What waits, but for the gang's own requests."""
        return [each for each in self._waiting if each[0].key != gang.key]
