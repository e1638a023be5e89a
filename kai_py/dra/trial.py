"""The devices taken so far in one search, and whether one more may join them.

Taking a device charges its counters, capacity, groups and constraints; giving back the device
taken last restores all of them exactly.
"""

from dataclasses import dataclass, field

from kai_py.dra.capacity import Amounts
from kai_py.dra.claims import Option
from kai_py.dra.constraints import ConstraintState, extended
from kai_py.dra.counters import CounterLayout, CounterSetID, joined_groups
from kai_py.dra.selection import Eligibility, Fit, Refusal, Step
from kai_py.dra.standing import Standing


@dataclass(frozen=True, slots=True)
class Pick:
    """A device of the view, chosen for an option; ``consumed`` for shares."""

    option: int
    device: int
    consumed: Amounts = ()


@dataclass(slots=True, eq=False)
class Taken:
    """One taken device with what giving it back has to restore."""

    pick: Pick
    charged: bool
    constraints: tuple[ConstraintState, ...]
    """The claim's constraint states before."""
    groups: dict[CounterSetID, frozenset[str] | None]
    """Changed groups before."""


@dataclass(slots=True, eq=False)
class Trial:
    """Bookkeeping of one search; ``left``, ``constraints`` and the rest change as it proceeds."""

    eligibility: Eligibility
    layout: CounterLayout
    standing: Standing
    left: list[int] = field(init=False)
    """Per counter what is left of it, in nano-units."""
    groups: dict[CounterSetID, frozenset[str]] = field(init=False)
    constraints: list[tuple[ConstraintState, ...]] = field(init=False)
    """Per claim the states of its constraints."""
    holders: dict[int, list[int]] = field(default_factory=dict)
    """Device to the claims that took it in this search."""
    consumed: dict[int, dict[str, int]] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    results: list[int] = field(init=False)
    """Per claim the number of devices taken."""

    def __post_init__(self) -> None:
        claims = self.eligibility.claims.claims
        self.left = list(self.standing.left)
        self.groups = dict(self.standing.groups)
        self.constraints = [(None,) * len(claim.constraints) for claim in claims]
        self.results = [0] * len(claims)

    def is_shareable(self, device: int) -> bool:
        """Whether the device can be held by several claims, with the switches as they are."""
        sharing = self.eligibility.features.consumable_capacity
        return sharing and self.eligibility.view.rows[device].shareable

    def in_use(self, option: Option, device: int) -> bool:
        """Tell whether the device is closed to ``option`` by those who hold it."""
        taken_by = self.holders.get(device, ())
        if option.admin_access:
            return option.claim in taken_by and not self.is_shareable(device)
        holding = self.standing.holdings[device]
        if self.is_shareable(device):
            return bool(holding.whole)
        return bool(taken_by) or not holding.empty

    def refusal(self, option: Option, device: int) -> Refusal | None:
        """Tell why the device cannot be taken now.

        :raises AllocationError: the device or the request cannot be judged.
        """
        if self.in_use(option, device):
            return Refusal(Step.IN_USE)
        outcome = self.eligibility.judge(option, device)
        if isinstance(outcome, Refusal):
            return outcome
        if not self._has_room(device, outcome):
            return Refusal(Step.CAPACITY_LEFT)
        return self._partition_refusal(device) or self._constraint_refusal(option, device)

    def take(self, option: Option, device: int) -> None:
        """Take a device that ``refusal`` has nothing against."""
        outcome = self.eligibility.judge(option, device)
        consumed = outcome.consumed if isinstance(outcome, Fit) else ()
        before = self.constraints[option.claim]
        charged = not self._is_charged(device)
        self.taken.append(
            Taken(
                Pick(option.position, device, consumed), charged, before, self._join_groups(device)
            )
        )
        if charged:
            for number, amount in self.layout.draws[device]:
                self.left[number] -= amount
        if option.constraints:
            self.constraints[option.claim] = self._extended(option, device) or before
        self.holders.setdefault(device, []).append(option.claim)
        self._consume(device, consumed, 1)
        self.results[option.claim] += 1

    def give_back(self) -> None:
        """Undo the latest ``take``."""
        last = self.taken.pop()
        device = last.pick.device
        claim = self.eligibility.claims.options[last.pick.option].claim
        self.results[claim] -= 1
        self._consume(device, last.pick.consumed, -1)
        self.holders[device].pop()
        if not self.holders[device]:
            del self.holders[device]
        self.constraints[claim] = last.constraints
        if last.charged:
            for number, amount in self.layout.draws[device]:
                self.left[number] += amount
        for key, before in last.groups.items():
            if before is None:
                del self.groups[key]
            else:
                self.groups[key] = before

    def picks(self) -> tuple[Pick, ...]:
        """The devices taken, in order."""
        return tuple(taken.pick for taken in self.taken)

    def _is_charged(self, device: int) -> bool:
        """Counters are charged by the first holder of a device, not by further shares.

        An administrator charges them like anybody else.
        """
        if not self.is_shareable(device):
            return False
        return device in self.holders or not self.standing.holdings[device].empty

    def _has_room(self, device: int, fit: Fit) -> bool:
        if not fit.consumed:
            return True
        before = dict(self.standing.holdings[device].consumed)
        now = self.consumed.get(device, {})
        capacities = self.eligibility.view.rows[device].capacities
        return all(
            before.get(capacity.name, 0) + now.get(capacity.name, 0) + amount <= capacity.value
            for capacity, (_, amount) in zip(capacities, fit.consumed, strict=True)
        )

    def _consume(self, device: int, amounts: Amounts, sign: int) -> None:
        if not amounts:
            return
        now = self.consumed.setdefault(device, {})
        for name, amount in amounts:
            now[name] = now.get(name, 0) + sign * amount

    def _partition_refusal(self, device: int) -> Refusal | None:
        draw = self.layout.draws[device]
        row = self.eligibility.view.rows[device]
        if not row.consumes:
            return None
        pool = self.eligibility.view.pool_of_row[device]
        if self.layout.grouped and joined_groups(pool, row.consumes, self.groups) is None:
            return Refusal(Step.GROUPS)
        if self._is_charged(device):
            return None
        if pool in self.standing.overdrawn or any(
            self.left[number] < amount for number, amount in draw
        ):
            return Refusal(Step.COUNTERS)
        return None

    def _constraint_refusal(self, option: Option, device: int) -> Refusal | None:
        if not option.constraints or self._extended(option, device) is not None:
            return None
        return Refusal(Step.CONSTRAINT)

    def _extended(self, option: Option, device: int) -> tuple[ConstraintState, ...] | None:
        constraints = self.eligibility.claims.claims[option.claim].constraints
        states = list(self.constraints[option.claim])
        for index in option.constraints:
            elements = self.eligibility.elements(option, index, device)
            state = extended(constraints[index].kind, states[index], elements)
            if state is None:
                return None
            states[index] = state
        return tuple(states)

    def _join_groups(self, device: int) -> dict[CounterSetID, frozenset[str] | None]:
        if not self.layout.grouped:
            return {}
        view = self.eligibility.view
        consumes = view.rows[device].consumes
        joined = joined_groups(view.pool_of_row[device], consumes, self.groups) or {}
        before = {key: self.groups.get(key) for key in joined}
        self.groups.update(joined)
        return before
