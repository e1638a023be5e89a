"""Trial placements of one search: the units are evicted, and the request is placed."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import (
    VictimUnit,
)


@dataclass
class TrialPlacements:
    """``probes``: how many are left. ``is_exact``: enough counted capacity is all it takes.

    Both change while the search goes on.
    """

    strategy: VictimStrategy
    probes: int
    _: KW_ONLY
    is_exact: bool

    def fits(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the request fits without ``units``, for one probe; False if none is left."""
        if self.probes <= 0:
            return False
        self.probes -= 1
        with self.strategy.state.statement.trial():
            return self.place(units, explain=False)

    def place(self, units: Sequence[VictimUnit], *, explain: bool) -> bool:
        """Evict the units and place the request; ``explain``: with reasons, as it may be kept."""
        statement = self.strategy.state.statement
        for unit in units:
            reason = self.strategy.reason(unit) if explain else ""
            for member in unit.members:
                statement.evict(
                    Evicted(member, unit.gang, self.strategy.action, self.strategy.gang, reason)
                )
        blocked = self.strategy.state.placer.place(
            statement,
            self.strategy.gang,
            self.strategy.request.members,
            self.strategy.action,
            capacity=Capacity.FUTURE_IDLE,
            explain=False,
        )
        return blocked is None
