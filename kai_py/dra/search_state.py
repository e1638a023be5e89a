"""The state of one search: the devices taken so far, and whether one more may join them.

Taking a device charges its counters, capacity, groups and constraints; undoing the last device
restores all of them exactly.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from kai_py.dra.capacity import ConsumedCapacity
from kai_py.dra.constraints import ConstraintState, with_device
from kai_py.dra.counters import CounterLayout, CounterSetID, groups_with_device
from kai_py.dra.eligibility import DeviceCheck, DeviceRejection, Eligibility, Eligible
from kai_py.dra.parsed_claims import Option
from kai_py.dra.usage_classes import DeviceUsage


class DevicePick(Struct, frozen=True):
    """A device of the view, chosen for an option; ``consumed`` for shares."""

    option: int
    device: int
    consumed: ConsumedCapacity = ()


class PickRecord(Struct, eq=False):
    """One taken device with what undoing it has to restore."""

    pick: DevicePick
    charged_counters: bool
    constraints: tuple[ConstraintState, ...]
    """The claim's constraint states before the device was taken."""
    groups: dict[CounterSetID, frozenset[str] | None]
    """The previous values of changed groups."""


@dataclass(slots=True, eq=False)
class SearchState:
    """The state of one search; ``counters_left``, ``constraints`` and the rest change with it."""

    eligibility: Eligibility
    layout: CounterLayout
    usage: DeviceUsage
    counters_left: list[int] = field(init=False)
    """Per counter what is left of it, in nano-units."""
    groups: dict[CounterSetID, frozenset[str]] = field(init=False)
    constraints: list[tuple[ConstraintState, ...]] = field(init=False)
    """Per claim the states of its constraints."""
    claims_by_device: dict[int, list[int]] = field(default_factory=dict)
    """The claims that took a device in this search."""
    consumed: dict[int, dict[str, int]] = field(default_factory=dict)
    records: list[PickRecord] = field(default_factory=list)
    device_counts: list[int] = field(init=False)
    """Per claim the number of devices taken."""

    def __post_init__(self) -> None:
        claims = self.eligibility.claims.claims
        self.counters_left = list(self.usage.counters_left)
        self.groups = dict(self.usage.groups)
        self.constraints = [(None,) * len(claim.constraints) for claim in claims]
        self.device_counts = [0] * len(claims)

    def is_shareable(self, device: int) -> bool:
        """Whether the device can be allocated to several claims with the enabled features."""
        sharing = self.eligibility.claims.features.consumable_capacity
        return sharing and self.eligibility.view.rows[device].shareable

    def in_use(self, option: Option, device: int) -> bool:
        """Whether allocations of the device exclude ``option``."""
        taken_by = self.claims_by_device.get(device)
        allocation = self.usage.devices[device]
        if not taken_by and (option.admin_access or allocation.is_free):
            return False
        if option.admin_access:
            return option.claim in (taken_by or ()) and not self.is_shareable(device)
        if self.is_shareable(device):
            return bool(allocation.exclusive_holders)
        return bool(taken_by) or not allocation.is_free

    def rejection(self, option: Option, device: int) -> DeviceRejection | None:
        """Why the device can't be taken now; None if it can.

        :raises AllocationError: the device or the request can't be evaluated.
        """
        if self.in_use(option, device):
            return DeviceRejection(DeviceCheck.IN_USE)
        result = self.eligibility.check(option, device)
        if isinstance(result, DeviceRejection):
            return result
        rejected = self._partition_rejection(device) or self._constraint_rejection(option, device)
        if rejected is not None:
            return rejected
        lacking = self._short_of(device, result)
        return DeviceRejection(DeviceCheck.CAPACITY_LEFT, lacking) if lacking else None

    def take(self, option: Option, device: int) -> None:
        """Take a device for which ``rejection`` is None."""
        result = self.eligibility.check(option, device)
        consumed = result.consumed_capacity if isinstance(result, Eligible) else ()
        before = self.constraints[option.claim]
        charged = not self._is_charged(device)
        self.records.append(
            PickRecord(
                DevicePick(option.position, device, consumed),
                charged,
                before,
                self._join_groups(device),
            )
        )
        if charged:
            for number, amount in self.layout.draws[device]:
                self.counters_left[number] -= amount
        if option.constraints:
            self.constraints[option.claim] = self._constraints_with(option, device) or before
        self.claims_by_device.setdefault(device, []).append(option.claim)
        self._consume(device, consumed, 1)
        self.device_counts[option.claim] += 1

    def undo(self) -> None:
        """Undo the latest ``take``."""
        last = self.records.pop()
        device = last.pick.device
        claim = self.eligibility.claims.options[last.pick.option].claim
        self.device_counts[claim] -= 1
        self._consume(device, last.pick.consumed, -1)
        self.claims_by_device[device].pop()
        if not self.claims_by_device[device]:
            del self.claims_by_device[device]
        self.constraints[claim] = last.constraints
        if last.charged_counters:
            for number, amount in self.layout.draws[device]:
                self.counters_left[number] += amount
        for key, before in last.groups.items():
            if before is None:
                del self.groups[key]
            else:
                self.groups[key] = before

    def picks(self) -> tuple[DevicePick, ...]:
        """The devices taken, in order."""
        return tuple(record.pick for record in self.records)

    def _is_charged(self, device: int) -> bool:
        """Whether the device's counters are charged already, by an earlier share of it.

        Requests with admin access charge them like any other.
        """
        if not self.is_shareable(device):
            return False
        return device in self.claims_by_device or not self.usage.devices[device].is_free

    def _short_of(self, device: int, fit: Eligible) -> str:
        """The first capacity of which too little is left; "" if all are sufficient."""
        if not fit.consumed_capacity:
            return ""
        before = dict(self.usage.devices[device].consumed)
        now = self.consumed.get(device, {})
        capacities = self.eligibility.view.rows[device].capacities
        for capacity, (name, amount) in zip(capacities, fit.consumed_capacity, strict=True):
            if before.get(name, 0) + now.get(name, 0) + amount > capacity.value:
                return name
        return ""

    def _consume(self, device: int, amounts: ConsumedCapacity, sign: int) -> None:
        if not amounts:
            return
        now = self.consumed.setdefault(device, {})
        for name, amount in amounts:
            now[name] = now.get(name, 0) + sign * amount

    def _partition_rejection(self, device: int) -> DeviceRejection | None:
        row = self.eligibility.view.rows[device]
        if not row.consumes or self._is_charged(device):
            return None
        draw = self.layout.draws[device]
        pool = self.eligibility.view.pool_of_row[device]
        if self.layout.has_groups and groups_with_device(pool, row.consumes, self.groups) is None:
            return DeviceRejection(DeviceCheck.GROUPS)
        if pool in self.usage.overdrawn or any(
            self.counters_left[number] < amount for number, amount in draw
        ):
            return DeviceRejection(DeviceCheck.COUNTERS)
        return None

    def _constraint_rejection(self, option: Option, device: int) -> DeviceRejection | None:
        if not option.constraints or self._constraints_with(option, device) is not None:
            return None
        return DeviceRejection(DeviceCheck.CONSTRAINT)

    def _constraints_with(self, option: Option, device: int) -> tuple[ConstraintState, ...] | None:
        constraints = self.eligibility.claims.claims[option.claim].constraints
        states, elements = self.constraints[option.claim], self.eligibility.elements
        joined: dict[int, ConstraintState] = {}
        for index in option.constraints:
            values = elements(option, index, device)
            state = with_device(constraints[index].kind, states[index], values)
            if state is None:
                return None
            joined[index] = state
        return tuple(joined.get(index, state) for index, state in enumerate(states))

    def _join_groups(self, device: int) -> dict[CounterSetID, frozenset[str] | None]:
        if not self.layout.has_groups:
            return {}
        view = self.eligibility.view
        consumes = view.rows[device].consumes
        changed = groups_with_device(view.pool_of_row[device], consumes, self.groups) or {}
        before = {key: self.groups.get(key) for key in changed}
        self.groups.update(changed)
        return before
