"""The budgets of searches for victims and devices in one cycle, and where they ran out.

Gangs whose search ran out of budget come last in the next cycle (``in_rotation``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class SearchBudgets:
    """What searches may still cost in this cycle, and which gangs have searched."""

    probes: int
    """Trial placements that searches for victims may still make in this cycle."""
    probes_per_gang: int
    """Trial placements that one search may make."""
    minimised_units: int = 32_768
    """Units that may still be considered to find cheaper victims."""
    out_of_probes_before: Mapping[str, int] = field(default_factory=dict)
    """Gang key to the last cycle in which its search ran out of probes."""
    cut_short_before: Mapping[str, int] = field(default_factory=dict)
    """Gang key to the last cycle in which the budget of device searches did not suffice."""
    searched: dict[str, bool] = field(default_factory=dict)
    """Keys of gangs that searched for victims in this cycle, and whether probes ran out."""
    searches_ended: set[str] = field(default_factory=set)
    """Keys of gangs for which no victims are searched after their turn of allocate."""
    too_many_pods: set[str] = field(default_factory=set)
    """Keys of gangs for which more pods would have to be relocated than is allowed."""
    cut_short: set[str] = field(default_factory=set)
    """Keys of gangs for which the budget of device searches did not suffice in this cycle."""

    @property
    def probes_of_search(self) -> int:
        """Trial placements that the next search may make."""
        return min(self.probes, self.probes_per_gang)

    @property
    def ran_out(self) -> bool:
        """Whether a search of this cycle ended because its budget was spent."""
        return any(self.searched.values()) or bool(self.cut_short)

    def record_search(self, gang: str, *, ran_out: bool) -> None:
        """Note a search for victims for the gang with this key, and whether its probes ran out."""
        self.searched[gang] = ran_out or self.searched.get(gang, False)
