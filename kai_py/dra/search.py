"""Exact search for devices that satisfy all claims of a pod on one node.

Claims, requests and device slots are filled in order; a request takes devices in ascending order,
alternatives are tried in order. The first complete assignment wins, so the result is the
lexicographically smallest one: exactly what depth-first search with full backtracking gives, which
is what Kubernetes does (reference allocator of 1.37). Three things keep it from being exponential;
none of them ever cuts off a solution:

    symmetric devices   after a device failed in a slot, devices that are interchangeable with it
                        are not tried there (``symmetry``)
    no-goods            a state that was searched without success is not entered again, also not
                        through devices that differ in name only (``symmetry``)
    bounds              at the first dead end, counting decides whether any solution can exist
                        (``bounds``)

What remains is cut off by a budget of steps; running out of it is an outcome of its own.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM
from kai_py.dra.bounds import provably_infeasible
from kai_py.dra.eligibility import DeviceCheck, DeviceRejection
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from kai_py.dra.parsed_claims import Option
from kai_py.dra.search_state import DevicePick, SearchState
from kai_py.dra.symmetry import Symmetry

DEFAULT_BUDGET = 100_000
"""Devices tried before a search gives up, about a second."""

TURNS_PER_POLL = 128


class Order(Protocol):
    """The order in which the devices of the view are tried for an option."""

    def __call__(self, search_state: SearchState, option: Option, /) -> Sequence[int]:
        """The devices to try, in order."""

    def again(
        self, search_state: SearchState, option: Option, left: Sequence[int], /
    ) -> Sequence[int]:
        """The devices ``left`` for the next slot of the option, in order."""

    def steps(self, search_state: SearchState, option: Option, /) -> int:
        """What finding the order costs, in devices tried."""


class SearchStatus(enum.Enum):
    """How a search ended."""

    FOUND = "found"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"


class DeviceSearchResult(Struct, frozen=True):
    """The result of a search; ``picks`` in the order of results."""

    status: SearchStatus
    picks: tuple[DevicePick, ...] = ()
    steps: int = 0


@dataclass(slots=True, eq=False)
class _Frame:
    """A slot of an option, or, without an option, the choice among a request's options."""

    request: int
    option: Option | None = None
    slot: int = 0
    cursor: int = 0
    order: Sequence[int] = ()
    filled: bool = False
    failed: set[object] = field(default_factory=set)
    key: object = None


@dataclass(slots=True, eq=False)
class Search:
    """One search; ``all_mode_devices``: the devices of each All-mode option, by position."""

    search_state: SearchState
    all_mode_devices: dict[int, tuple[int, ...]]
    order: Order | None = None
    """Without it devices are tried in the order of the view."""
    budget: int = DEFAULT_BUDGET
    poll: Callable[[], None] = lambda: None
    steps: int = 0
    _turns: int = 0
    _requests: list[tuple[Option, ...]] = field(init=False)
    _stack: list[_Frame] = field(default_factory=list)
    _symmetry: Symmetry | None = None
    _failed: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        claims = self.search_state.eligibility.claims.claims
        self._requests = [request for claim in claims for request in claim.requests]

    def run(self) -> DeviceSearchResult:
        """Search.

        :raises AllocationError: a device or request can't be evaluated.
        """
        if self._enter_request(0):
            return self._success()
        while self._stack:
            self._turns += 1
            if not self._turns % TURNS_PER_POLL:
                self.poll()
            frame = self._stack[-1]
            if frame.filled:
                self._undo_pick(frame)
            if self.steps > self.budget:
                return DeviceSearchResult(SearchStatus.UNDECIDED, steps=self.steps)
            if frame.option is None:
                done = self._next_option(frame)
            else:
                done = self._next_device(frame, frame.option)
            if done is None and self._backtrack(frame):
                break
            if done:
                return self._success()
        return DeviceSearchResult(SearchStatus.INFEASIBLE, steps=self.steps)

    def _success(self) -> DeviceSearchResult:
        return DeviceSearchResult(SearchStatus.FOUND, self.search_state.picks(), self.steps)

    def _enter_request(self, request: int) -> bool:
        """Start on ``request``; True when there is none left, which completes the assignment."""
        if request == len(self._requests):
            return True
        options = self._requests[request]
        frame = _Frame(request)
        if len(options) == 1:
            return self._enter_option(request, options[0])
        self._push(frame)
        return False

    def _enter_option(self, request: int, option: Option) -> bool:
        """Start on the slots of ``option``, unless it can't be taken here."""
        count = self._count(option)
        if option.is_all_mode and not count:
            return False
        if self.search_state.device_counts[option.claim] + count > MAX_RESULTS_PER_CLAIM:
            return False
        if not count:
            return self._enter_request(request + 1)
        order = self.all_mode_devices.get(option.position) or self._order(option)
        self._push(_Frame(request, option, order=order))
        return False

    def _push(self, frame: _Frame) -> None:
        """Enter ``frame`` unless the same state was searched without success before."""
        if self._symmetry is not None:
            option = -1 if frame.option is None else frame.option.position
            state = self._symmetry.state(self._claim(frame), frame.order, frame.cursor)
            frame.key = (frame.request, option, frame.slot, state)
            if frame.key in self._failed:
                return
        self._stack.append(frame)

    def _backtrack(self, frame: _Frame) -> bool:
        """Give up on ``frame``; True when the whole search is proven infeasible."""
        self._stack.pop()
        if frame.key is not None:
            self._failed.add(frame.key)
        # Not before the first dead end: most searches have none, and this takes time.
        if self._symmetry is None and self._stack:
            ordered = self._devices_that_may_raise()
            self._symmetry = Symmetry(self.search_state, ordered)
            if ordered:
                return False
            return provably_infeasible(self.search_state, self._requests, self.all_mode_devices)
        return False

    def _devices_that_may_raise(self) -> frozenset[int]:
        """Devices of an All request that may break a constraint: an error unless one is in use.

        They are tried in order, so it matters which of two equal ones is in use.
        """
        eligibility = self.search_state.eligibility
        if eligibility.strategy is not AllocationStrategy.FIRST_FIT:
            return frozenset()
        return frozenset(
            device
            for option in eligibility.claims.options
            if option.is_all_mode and option.constraints
            for device in self.all_mode_devices[option.position]
        )

    def _next_option(self, frame: _Frame) -> bool | None:
        options = self._requests[frame.request]
        if frame.cursor == len(options):
            return None
        option = options[frame.cursor]
        frame.cursor += 1
        self.steps += 1
        return self._enter_option(frame.request, option)

    def _undo_pick(self, frame: _Frame) -> None:
        """Release the device of a slot after everything that follows has failed."""
        self.search_state.undo()
        frame.filled = False
        if self._symmetry is not None:
            frame.failed.add(self._equivalence_key(self._symmetry, frame))

    def _equivalence_key(self, symmetry: Symmetry, frame: _Frame) -> object:
        """Identify the device under the cursor up to interchangeable ones."""
        return symmetry.equivalence_key(self._claim(frame), frame.order, frame.cursor - 1)

    def _has_failed_equivalent(self, frame: _Frame) -> bool:
        if self._symmetry is None or not frame.failed:
            return False
        return self._equivalence_key(self._symmetry, frame) in frame.failed

    def _next_device(self, frame: _Frame, option: Option) -> bool | None:
        """Fill the slot with the next possible device; None when there is none left."""
        last = frame.slot + 1 if option.is_all_mode else len(frame.order)
        while frame.cursor < last:
            device = frame.order[frame.cursor]
            frame.cursor += 1
            self.steps += 1
            rejection = self.search_state.rejection(option, device)
            if rejection is None:
                if self._has_failed_equivalent(frame):
                    continue
                self.search_state.take(option, device)
                frame.filled = True
                return self._next_slot(frame, option)
            self._check_all_mode_constraint(option, device, rejection)
        return None

    def _next_slot(self, frame: _Frame, option: Option) -> bool:
        if frame.slot + 1 == self._count(option):
            return self._enter_request(frame.request + 1)
        order, cursor = self._next_order(frame, option)
        self._push(_Frame(frame.request, option, frame.slot + 1, cursor=cursor, order=order))
        return False

    def _next_order(self, frame: _Frame, option: Option) -> tuple[Sequence[int], int]:
        """The order for the slot after ``frame``, and where to start in it.

        What was taken changes ranks. After a dead end devices keep their order: the search may
        then enter slots very often.
        """
        if self.order is None or option.is_all_mode or self._symmetry is not None:
            return frame.order, frame.cursor
        self.steps += self.order.steps(self.search_state, option)
        return self.order.again(self.search_state, option, frame.order[frame.cursor :]), 0

    def _order(self, option: Option) -> Sequence[int]:
        if self.order is None:
            return range(len(self.search_state.usage.devices))
        self.steps += self.order.steps(self.search_state, option)
        return self.order(self.search_state, option)

    def _count(self, option: Option) -> int:
        if option.is_all_mode:
            return len(self.all_mode_devices[option.position])
        return option.count

    def _claim(self, frame: _Frame) -> int:
        return self._requests[frame.request][0].claim

    def _check_all_mode_constraint(
        self, option: Option, device: int, rejection: DeviceRejection
    ) -> None:
        """Raise where kube-scheduler does: an All request whose devices break a constraint."""
        eligibility = self.search_state.eligibility
        if (
            option.is_all_mode
            and rejection.check is DeviceCheck.CONSTRAINT
            and eligibility.strategy is AllocationStrategy.FIRST_FIT
        ):
            raise AllocationError(
                f"{option.location}: cannot add device {eligibility.view.rows[device].id} because "
                "a claim constraint would not be satisfied"
            )
