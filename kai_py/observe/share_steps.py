"""Division of each level's budget on the way to a queue's fair share, in numbers.

At each level the siblings divide what their parent got: first what each deserves, at most what it
requests and its maximum; then the rest, by priority, and within a priority by weight (reduced by
past usage). The numbers are those of the cycle's own division, not computed again.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kai_py.plan.state.queues import Quota, counted_demand
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.tables.queue_objects import in_api_units


class SiblingShare(Struct, frozen=True):
    """A queue among its siblings; amounts in API units, infinite where there is no limit.

    ``fair_share`` = ``guaranteed`` + ``from_remainder``. ``weight_share`` (0 to 1) is its part of
    the remainder of its priority, by weight and past usage; ``past_usage`` its part of the cluster
    in the past, None where no history is kept. ``scaled_down``: it is guaranteed less than it
    deserves and requests.
    """

    queue: str
    priority: int
    weight: float
    past_usage: float | None
    requested: float
    maximum: float
    deserved: float
    guaranteed: float
    weight_share: float
    from_remainder: float
    fair_share: float
    scaled_down: bool


class ShareStep(Struct, frozen=True):
    """The children of ``parent`` ("" is the cluster) divide ``budget``; ``queue`` is followed."""

    resource: str
    parent: str
    budget: float
    queue: str
    siblings: tuple[SiblingShare, ...]

    @property
    def guaranteed(self) -> float:
        """The sum of the guarantees."""
        return sum(each.guaranteed for each in self.siblings)

    @property
    def followed(self) -> SiblingShare:
        """The sibling on the path to the queue in question."""
        return next(each for each in self.siblings if each.queue == self.queue)


def share_steps(quota: Quota, queue: str, resource: str = GPU) -> tuple[ShareStep, ...]:
    """The steps from the cluster down to ``queue``; none if queue or resource is unknown."""
    position = quota.queues.positions.get(queue)
    if position is None or resource not in quota.resources:
        return ()
    row = quota.resources.index(resource)
    path = quota.queues.ancestry[position]
    return tuple(_step(quota, row, ancestor) for ancestor in path)


def _step(quota: Quota, row: int, queue: int) -> ShareStep:
    queues = quota.queues
    is_root = queues.depth[queue] == 0
    parent = int(queues.parent[queue])
    budget = quota.usage.total[row] if is_root else quota.shares.fair[row, parent]
    resource = quota.resources[row]
    siblings = [
        each
        for each in range(len(queues))
        if queues.depth[each] == queues.depth[queue] and (is_root or queues.parent[each] == parent)
    ]
    return ShareStep(
        resource=resource,
        parent="" if is_root else queues.names[parent],
        budget=_amount(resource, float(budget)),
        queue=queues.names[queue],
        siblings=tuple(_sibling(quota, row, each) for each in siblings),
    )


def _demand(quota: Quota, row: int, queue: int) -> float:
    """The demand of a queue without requests that are infeasible or incomplete."""
    excluded = quota.infeasible[row] + quota.incomplete[row]
    counted = counted_demand(quota.demand[row], excluded)
    return float(counted[queue])


def _sibling(quota: Quota, row: int, queue: int) -> SiblingShare:
    queues, shares, resource = quota.queues, quota.shares, quota.resources[row]
    name = queues.names[queue]
    past = quota.past_usage.get(name)
    offered = 0.0 if past is None else past.capacity.get(resource, 0.0)
    return SiblingShare(
        queue=name,
        priority=int(queues.priority[queue]),
        weight=float(queues.weight[row, queue]),
        past_usage=past.used.get(resource, 0.0) / offered if past and offered else None,
        requested=_amount(resource, _demand(quota, row, queue)),
        maximum=_amount(resource, float(queues.max[row, queue])),
        deserved=_amount(resource, float(queues.deserved[row, queue])),
        guaranteed=_amount(resource, float(shares.deserved[row, queue])),
        weight_share=float(shares.weight_share[row, queue]),
        from_remainder=_amount(resource, float(shares.surplus[row, queue])),
        fair_share=_amount(resource, float(shares.fair[row, queue])),
        scaled_down=bool(shares.scaled[row, queue]),
    )


def _amount(resource: str, amount: float) -> float:
    return in_api_units({resource: amount})[resource]


def share_sentences(steps: Sequence[ShareStep]) -> Iterator[str]:
    """The steps as sentences; the last one of a step gives the queue's share."""
    for step in steps:
        share = step.followed
        total = f"{step.parent}'s share" if step.parent else "the cluster"
        yield (
            f"{format_amount(step.budget)} {unit_text(step.resource)} of {total} are divided among "
            f"{_sibling_count(step)}."
        )
        reason = (
            "scaled down in proportion: the cluster is smaller than the sum of the guarantees"
            if share.scaled_down
            else _guarantee_reason(share)
        )
        yield f"  {share.queue} is guaranteed {format_amount(share.guaranteed)}: {reason}."
        rest = max(step.budget - step.guaranteed, 0.0)
        yield (
            f"  All guarantees amount to {format_amount(step.guaranteed)}; the remainder is "
            f"{format_amount(rest)}. {_surplus_sentence(share)}"
        )
        yield (
            f"  {share.queue}: {format_amount(share.guaranteed)} + "
            f"{format_amount(share.from_remainder)} = {format_amount(share.fair_share)}."
        )


def unit_text(resource: str) -> str:
    """The unit of a resource in the API, such as "CPU cores" or "bytes of memory"."""
    return {GPU: "GPUs", "cpu": "CPU cores", "memory": "bytes of memory"}.get(resource, resource)


def _sibling_count(step: ShareStep) -> str:
    return f"{len(step.siblings)} queues" if len(step.siblings) > 1 else "one queue"


def _guarantee_reason(share: SiblingShare) -> str:
    amounts = {
        f"it deserves {format_amount(share.deserved)}": share.deserved,
        f"it requests {format_amount(share.requested)}": share.requested,
        f"its max is {format_amount(share.maximum)}": share.maximum,
    }
    smallest = min(amounts.values())
    return next(text for text, amount in amounts.items() if amount == smallest)


def _surplus_sentence(share: SiblingShare) -> str:
    usable = min(share.requested, share.maximum) - share.guaranteed
    if usable <= 0:
        return f"{share.queue} can use no more."
    past = "" if share.past_usage is None else f" and past usage of {share.past_usage:.1%}"
    return (
        f"At priority {share.priority}, weight {format_amount(share.weight)}{past} give "
        f"{share.queue} a share of {share.weight_share:.1%}; it can use {format_amount(usable)} "
        f"and gets {format_amount(share.from_remainder)}."
    )


NO_LIMIT = "no limit"


def format_amount(amount: float) -> str:
    """An amount with at most two decimals."""
    return NO_LIMIT if amount == float("inf") else f"{amount:,.2f}".rstrip("0").rstrip(".")
