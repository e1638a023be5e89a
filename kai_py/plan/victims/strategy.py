"""What differs between preempt, reclaim and consolidate: candidates, permission, reason."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.reclaim_rules import ReclaimAllowance
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools


@dataclass
class VictimStrategy(ABC):
    """How an action chooses victims for one ``request`` of ``gang``, the preemptor.

    A victim that is relocated is not lost; only those that fit nowhere else are lost.

    ``action``: recorded with the evictions. ``backs_off``: whether a search that has spent its
    probe budget is repeated only once a pod has ended or a node has been added. ``batches``:
    whether equivalent single pods are placed in batches (``batch``). ``loses_victims``: whether
    victims may fit nowhere else. ``pool``: the eviction units of each queue. ``possible_nodes``: by
    number of a shape of the request, (nodes,) the only nodes to count on (``possible_nodes``).
    """

    action: ClassVar[Action]
    backs_off: ClassVar[bool] = False
    batches: ClassVar[bool] = False
    loses_victims: ClassVar[bool] = True

    state: CycleState
    pool: VictimPool
    gang: Gang
    request: PlacementRequest
    possible_nodes: Mapping[int, Bools] = field(default_factory=dict)

    def may_find_victims(self) -> bool:
        """Whether a search makes sense; False only where it would certainly fail. O(1)."""
        return True

    @property
    def needs_victims(self) -> bool:
        """Whether the request certainly fits nowhere unless pods are evicted."""
        fits, statement = self.state.placer.shapes.fits, self.state.statement
        shapes = (group[0].shape for group in by_shape(self.request.members))
        return any(fits.exceeds_free(statement, each, Capacity.FUTURE_IDLE) for each in shapes)

    @abstractmethod
    def candidates(self) -> Iterable[VictimUnit] | None:
        """The eviction units in the order in which to take them; None if no eviction can help."""

    @abstractmethod
    def refused_unit(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """The first of ``units`` that may not be evicted; None if all may be.

        ``units``: the victims that were not relocated, in the order in which they are evicted.
        """

    def refused_like(self, refused: VictimUnit) -> Callable[[VictimUnit], bool] | None:
        """Which other units may never be evicted, as ``refused`` may not be; None: unknown."""
        del refused
        return None

    @abstractmethod
    def reason(self, unit: VictimUnit) -> str:
        """Why the pods of ``unit`` are evicted: the text of their event and condition."""

    def may_evict(self, gang: Gang) -> bool:
        """Whether pods of ``gang`` may be among the candidates; False only if none ever is."""
        del gang
        return True

    @property
    def max_pods(self) -> int | None:
        """The most pods to evict for the request; None for no limit."""
        return None

    def evict(self, unit: VictimUnit, reason: str) -> None:
        """Evict the unit for the gang, in the statement."""
        for member in unit.members:
            evicted = Evicted(member, unit.gang, self.action, self.gang, reason)
            self.state.statement.evict(evicted)

    def other_candidates(self, max_priority: int) -> Iterable[VictimUnit] | None:
        """Candidates for a cheaper set of victims (``minimise``); None if there is to be none.

        Only units of gangs with at most ``max_priority``.
        """
        del max_priority
        return None

    def allowance(self) -> ReclaimAllowance | None:
        """What queues may lose together; None where other rules decide what is refused."""
        return None

    def helpers(self, refused: VictimUnit) -> Iterable[VictimUnit]:
        """Units to evict as well, one at a time, so that ``refused`` may fit elsewhere."""
        del refused
        return ()

    def batch_candidates(self) -> Iterator[VictimUnit]:
        """For a batch, the candidates; each must be evicted before the next is requested."""
        raise NotImplementedError

    def may_evict_batch(self, count: int, units: Sequence[VictimUnit]) -> bool:
        """Whether ``count`` gangs like this one may evict ``units``, one after the other.

        By the usage of queues before ``batch_candidates``.
        """
        raise NotImplementedError
