"""An attempt to place a gang: its arguments, the nodes it may use, and its parts in turn.

The largest part comes first; each sees what those before it took. Devices are chosen as each pod is
placed, so a claim that may have any of them can get the one that another pod of the gang needs.
Then the part that does not fit is tried before those that came before it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from kai_py.plan.placement.preferences import NO_PREFERENCES, Preferences, inside_domain
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.topology import DomainCandidate
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape


class Attempt(NamedTuple):
    """The arguments that stay the same while a gang is placed.

    ``explain``: whether to find out why pods can't be placed, which takes time.
    """

    statement: Statement
    gang: Gang
    action: Action
    capacity: Capacity
    explain: bool


class NodeSet(NamedTuple):
    """The nodes that may be used.

    ``mask``: (nodes,) bool. ``preferences``: which of them the gang prefers. ``domains``: by number
    of a shape, the domain in which its pods must stay.
    """

    mask: Bools
    preferences: Preferences = NO_PREFERENCES
    domains: Mapping[int, DomainCandidate] = MappingProxyType({})

    def of(self, shape: Shape) -> "NodeSet":
        """The nodes for pods of ``shape``."""
        domain = self.domains.get(shape.number)
        if domain is None:
            return self
        preferences = inside_domain(self.preferences, domain.domain_rank)
        return NodeSet(self.mask & domain.mask, preferences)


def by_shape(members: Sequence[Member]) -> list[list[Member]]:
    """Members grouped by shape, the largest first; groups and pods of one size keep their order.

    Pods with other labels are in other groups even if their shapes have the same number.
    """
    if len(members) == 1:
        return [list(members)]
    groups: dict[object, list[Member]] = {}
    last: object = None
    group: list[Member] = []
    for member in members:
        shape = member.shape
        # Mostly neighbours share their shape, so their group is not looked up again.
        if shape is not last:
            key = (shape.number, *sorted(shape.labels.items())) if shape.labels else shape.number
            last, group = shape, groups.setdefault(key, [])
        group.append(member)
    return largest_first(groups.values())


def largest_first(groups: Iterable[list[Member]]) -> list[list[Member]]:
    """Groups, each of one shape, by the size of their pods; equal sizes keep their order."""
    return sorted(groups, key=_size, reverse=True)


def _size(group: Sequence[Member]) -> tuple[float, float, float]:
    requests = group[0].shape.requests
    return (
        group[0].charged_gpus,
        requests.get("cpu", 0.0),
        requests.get("memory", 0.0),
    )


MAX_ORDERS = 3
"""Orders in which parts with claims are tried, until all fit."""

MAX_PODS_TO_REORDER = 16
"""Most pods with claims that are tried in several orders: each pod searches for devices again."""

Part = TypeVar("Part")
"""What is placed at once: pods of one shape, or a subgroup."""


def orders_of(members: Sequence[Member]) -> int:
    """In how many orders parts are tried that consist of these pods."""
    is_small = len(members) <= MAX_PODS_TO_REORDER
    return MAX_ORDERS if is_small and any(each.shape.has_claims for each in members) else 1


def place_in_turn(
    attempt: Attempt,
    parts: Sequence[Part],
    place: Callable[[Attempt, Part], Unschedulable | None],
    *,
    orders: int,
) -> Unschedulable | None:
    """Place all parts or none, in at most ``orders`` orders; None, or the reason of the first.

    No further order is tried once a part fits nowhere even before all others.
    """
    first_reason: Unschedulable | None = None
    for _ in range(orders):
        with attempt.statement.trial() as trial:
            steps = enumerate(place(attempt, part) for part in parts)
            failed, reason = next((step for step in steps if step[1] is not None), (0, None))
            if reason is None:
                trial.keep()
                return None
        first_reason = first_reason or reason
        if not failed:
            break
        parts = [parts[failed], *parts[:failed], *parts[failed + 1 :]]
        attempt = attempt._replace(explain=False)
    return first_reason
