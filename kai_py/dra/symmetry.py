"""Symmetries of a search: states that differ in the names of devices only.

Devices are connected through shared counter sets and through equal values of attributes that a
constraint reads. A component is a maximal set of connected devices, described without names: per
device its eligibility for all options, with its values and counter sets numbered in order of
appearance. Two components with equal descriptions can be exchanged, and so can two equal devices of
one component. A state of the search is then the multiset of the states of the components: which
devices are taken, what is left of counters and capacity, which values constraints have fixed.

Equal states have the same future up to renaming, which is all that the search needs to know.
Components are found by union-find over the counter sets and values that devices share. Building
costs O(devices x distinct options), a state O(components + devices taken).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kai_py.dra.constraints import AttributeElement
from kai_py.dra.eligibility import Eligible
from kai_py.dra.identity import AllocationError
from kai_py.dra.parsed_claims import Option
from kai_py.dra.search_state import SearchState


def connected_components(tokens: Sequence[Iterable[Hashable]]) -> list[int]:
    """Component number of each item, in the order of the components' first items."""
    parents = list(range(len(tokens)))

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    first: dict[Hashable, int] = {}
    for item, ties in enumerate(tokens):
        for token in ties:
            a, b = root(item), root(first.setdefault(token, item))
            parents[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(item), len(numbers)) for item in range(len(tokens))]


Tie = tuple[Literal["set"], int, str] | tuple[Literal["value"], int, int, AttributeElement]
"""What connects devices: a counter set (pool, name), or a value under a constraint of a claim."""


@dataclass(slots=True, eq=False)
class _Component:
    """Connected devices; ``ties`` numbers what connects them."""

    devices: list[int] = field(default_factory=list)
    ties: dict[Tie, int] = field(default_factory=dict)
    counters: list[int] = field(default_factory=list)
    counter_sets: list[tuple[int, str]] = field(default_factory=list)
    signature: int = 0


MAX_ORDERS_CACHED = 256
"""Orders of devices that a search keeps the states of untouched components for."""


@dataclass(slots=True, eq=False)
class _UntouchedStates:
    """Per component its state while none of it is taken, of one order of devices."""

    states: list[int]
    missing: set[int]
    """Components whose state is not computed yet: something of them was taken each time."""
    allowed: dict[int, list[int]] = field(default_factory=dict)
    """The devices of the order, by component."""


@dataclass(slots=True, eq=False)
class Symmetry:
    """The components of a search's devices; reads the search state as it changes."""

    search_state: SearchState
    distinguished: frozenset[int] = frozenset()
    """Devices that are interchangeable with no other."""
    _components: list[_Component] = field(init=False)
    _component_of: list[int] = field(init=False)
    _kinds: list[int] = field(init=False)
    """Per device its description inside its component."""
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _state_cache: dict[Hashable, int] = field(default_factory=dict)
    _untouched: dict[Hashable, _UntouchedStates] = field(default_factory=dict)

    def __post_init__(self) -> None:
        readings = {
            (option.claim, option.derived, index): (option, index)
            for option in self.search_state.eligibility.distinct
            for index in option.constraints
        }
        tokens = [
            list(self._ties(device, readings.values()))
            for device in range(len(self.search_state.usage.devices))
        ]
        self._component_of = connected_components(tokens)
        self._components = [_Component() for _ in range(max(self._component_of, default=-1) + 1)]
        for device, number in enumerate(self._component_of):
            self._components[number].devices.append(device)
        self._kinds = [0] * len(tokens)
        for component in self._components:
            self._describe(component, tokens)

    def state(self, claim: int, order: Sequence[int], cursor: int) -> Hashable:
        """Describe the search before a slot of ``claim`` that takes one of ``order[cursor:]``."""
        picks = self._picks()
        known = self._untouched_states(claim, order[cursor:])
        parts = known.states.copy()
        for number in known.missing.difference(picks):
            known.states[number] = parts[number] = self._component_state(
                number, claim, (), known.allowed.get(number, ())
            )
            known.missing.discard(number)
        for number, taken in picks.items():
            allowed = known.allowed.get(number, ())
            parts[number] = self._component_state(number, claim, taken, allowed)
        started = tuple(state is None for state in self.search_state.constraints[claim])
        return (self.search_state.device_counts[claim], started, tuple(sorted(parts)))

    def equivalence_key(self, claim: int, order: Sequence[int], cursor: int) -> Hashable:
        """Describe ``order[cursor]``: equal descriptions mean interchangeable devices."""
        device = order[cursor]
        number, numbers = self._component_of[device], self._component_of
        allowed = [other for other in order[cursor:] if numbers[other] == number]
        part = self._component_state(number, claim, self._picks().get(number, ()), allowed)
        return (part, self._device_state(claim, device, frozenset((device,))))

    def _untouched_states(self, claim: int, devices: Sequence[int]) -> _UntouchedStates:
        """The cache of the states of components of which nothing is taken."""
        key = (claim, devices if isinstance(devices, range) else tuple(devices))
        known = self._untouched.get(key)
        if known is None:
            if len(self._untouched) >= MAX_ORDERS_CACHED:
                self._untouched.clear()
            count = len(self._components)
            known = self._untouched[key] = _UntouchedStates([0] * count, set(range(count)))
            for device in devices:
                known.allowed.setdefault(self._component_of[device], []).append(device)
        return known

    def _picks(self) -> dict[int, list[tuple[int, int]]]:
        """The devices taken, by component."""
        picks: dict[int, list[tuple[int, int]]] = {}
        for record in self.search_state.records:
            pick = record.pick
            number = self._component_of[pick.device]
            picks.setdefault(number, []).append((pick.device, pick.option))
        return picks

    def _component_state(
        self,
        number: int,
        claim: int,
        picks: Sequence[tuple[int, int]],
        allowed: Sequence[int],
    ) -> int:
        """Number the state of a component, from its picks and the devices still allowed."""
        key = (number, claim, tuple(sorted(picks)), tuple(sorted(allowed)))
        cached = self._state_cache.get(key)
        if cached is None:
            cached = self._state_cache[key] = self._new_component_state(
                self._components[number], claim, frozenset(allowed)
            )
        return cached

    def _new_component_state(
        self, component: _Component, claim: int, allowed: frozenset[int]
    ) -> int:
        search_state = self.search_state
        fixed_values = tuple(
            tuple(
                sorted(
                    number
                    for element in state or ()
                    if (number := component.ties.get(("value", claim, index, element))) is not None
                )
            )
            for index, state in enumerate(search_state.constraints[claim])
        )
        return self._number(
            (
                component.signature,
                self._device_states(claim, component.devices, allowed),
                tuple(search_state.counters_left[number] for number in component.counters),
                tuple(search_state.groups.get(key) for key in component.counter_sets),
                fixed_values,
            )
        )

    def _device_states(
        self, claim: int, devices: Sequence[int], allowed: frozenset[int]
    ) -> Hashable:
        """The states of devices, regardless of their order.

        A device that this search has not taken is one number; these are the many.
        """
        taken, kinds = self.search_state.claims_by_device, self._kinds
        free = sorted([2 * kinds[d] + (d in allowed) for d in devices if d not in taken])
        others = sorted([self._device_state(claim, d, allowed) for d in devices if d in taken])
        return tuple(free), tuple(others)

    def _device_state(self, claim: int, device: int, allowed: frozenset[int]) -> tuple[Any, ...]:
        """Kind and whether it is allowed; of a device in use also by whom and how much."""
        holders = self.search_state.claims_by_device.get(device)
        consumed = self.search_state.consumed.get(device)
        amounts = tuple(sorted(e for e in consumed.items() if e[1])) if consumed else ()
        kind = self._kinds[device]
        if not holders and not amounts:
            return kind, device in allowed
        return kind, device in allowed, bool(holders), claim in (holders or ()), amounts

    def _ties(self, device: int, readings: Iterable[tuple[Option, int]]) -> Iterator[Tie]:
        view = self.search_state.eligibility.view
        for consumption in view.rows[device].consumes:
            yield ("set", view.pool_of_row[device], consumption.counter_set)
        for option, index in readings:
            for element in sorted(self._elements(option, index, device) or (), key=repr):
                yield ("value", option.claim, index, element)

    def _elements(
        self, option: Option, index: int, device: int
    ) -> frozenset[AttributeElement] | None:
        try:
            return self.search_state.eligibility.elements(option, index, device)
        except AllocationError:
            return None

    def _describe(self, component: _Component, ties: list[list[Tie]]) -> None:
        """Number the ties of a component, and the kinds of its devices."""
        seen: dict[Hashable, int] = defaultdict(int)
        for device in component.devices:
            for token in ties[device]:
                if token not in component.ties:
                    family = token[:-1] if token[0] == "value" else "set"
                    component.ties[token] = seen[family]
                    seen[family] += 1
        self._describe_counters(component)
        for device in component.devices:
            self._kinds[device] = self._number(self._kind(component, device))
        component.signature = self._number(tuple(self._kinds[d] for d in component.devices))

    def _describe_counters(self, component: _Component) -> None:
        sets = [token[1:] for token in component.ties if token[0] == "set"]
        component.counter_sets = sets
        numbers = self.search_state.layout.numbers
        component.counters = [
            number
            for (pool, (name, _)), number in sorted(numbers.items(), key=lambda item: item[0])
            if (pool, name) in sets
        ]

    def _kind(self, component: _Component, device: int) -> Hashable:
        search_state = self.search_state
        row = search_state.eligibility.view.rows[device]
        pool = search_state.eligibility.view.pool_of_row[device]
        consumes = tuple(
            (component.ties["set", pool, c.counter_set], c.counters, c.groups) for c in row.consumes
        )
        capacities = tuple((c.name, c.value) for c in row.capacities) if row.shareable else ()
        eligibility = tuple(
            self._eligibility_key(component, option, device)
            for option in search_state.eligibility.distinct
        )
        overdrawn = bool(consumes) and pool in search_state.usage.overdrawn
        return (
            eligibility,
            consumes,
            row.shareable,
            capacities,
            search_state.usage.devices[device],
            overdrawn,
            device if device in self.distinguished else None,
        )

    def _eligibility_key(self, component: _Component, option: Option, device: int) -> Hashable:
        """The eligibility of a device for an option; one that raises an error is unique."""
        try:
            result = self.search_state.eligibility.check(option, device)
            if not isinstance(result, Eligible):
                return None
            values = tuple(
                elements
                and tuple(sorted(component.ties["value", option.claim, i, e] for e in elements))
                for i in option.constraints
                for elements in (self.search_state.eligibility.elements(option, i, device),)
            )
        except AllocationError:
            return ("error", device)
        return (result.consumed_capacity, values)

    def _number(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))
