"""What an action says of victims: the candidates, which of them may be lost, and why they are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.units import (
    VictimUnit,
)
from kai_py.snapshot.gangs import Gang


@dataclass
class VictimStrategy(ABC):
    """How an action chooses victims for one ``request`` of a preemptor, the gang.

    ``action``: to which evictions are attributed. ``backs_off``: a search that used up its probes
    is not repeated before a pod has left or a node has come.
    """

    action: ClassVar[Action]
    backs_off: ClassVar[bool] = False

    state: CycleState
    pool: VictimPool
    gang: Gang
    request: PlacementRequest

    @abstractmethod
    def candidates(self) -> Iterable[VictimUnit] | None:
        """The eviction units in the order to take them; None where no eviction can help."""

    @abstractmethod
    def may_evict(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """The first of ``units`` that may not be lost after those before it; None if all may."""

    @abstractmethod
    def reason(self, unit: VictimUnit) -> str:
        """Why the pods of ``unit`` are evicted, for their owner."""

    @property
    def max_pods(self) -> int | None:
        """The most pods to evict for the request; None: as many as it takes."""
        return None

    def other_candidates(self, priority: int) -> Iterable[VictimUnit] | None:
        """Units of gangs up to ``priority`` of which fewer may do; None: keep those selected."""
        del priority
        return None

    def helpers(self, rejected: VictimUnit) -> Iterable[VictimUnit]:
        """Units whose eviction could let ``rejected``, which may not be lost, be relocated."""
        del rejected
        return ()

    def placed(self, gang_queue: GangQueue, victims: Sequence[VictimUnit]) -> None:
        """The request was placed for ``victims``: go on with equivalent gangs, if any."""
        del gang_queue, victims
