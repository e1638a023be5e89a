"""The actions: those of every cycle, and those that are added by name.

An action is a function of the cycle's state and the gangs that are pending. It places and evicts
through ``state.statement``, which keeps the accounts, and calls no API.
"""

from collections.abc import Callable, Mapping, Sequence

from kai_py.plan.actions.allocate import allocate
from kai_py.plan.actions.allocate_without_bypass import VictimAction
from kai_py.plan.actions.consolidate import consolidate
from kai_py.plan.actions.preempt import preempt
from kai_py.plan.actions.reclaim import reclaim
from kai_py.plan.actions.stale import stale
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang

ActionFunction = Callable[[CycleState, Sequence[Gang]], None]

ACTIONS: Mapping[Action, ActionFunction] = {
    Action.ALLOCATE: allocate,
    Action.CONSOLIDATE: consolidate,
    Action.RECLAIM: reclaim,
    Action.PREEMPT: preempt,
    Action.STALE: stale,
}
"""The actions in the order in which they run: those that evict no pod come first."""

VICTIM_ACTIONS: Mapping[Action, VictimAction] = {
    Action.CONSOLIDATE: consolidate,
    Action.RECLAIM: reclaim,
    Action.PREEMPT: preempt,
}

_ADDED: dict[str, ActionFunction] = {}


def register_action(name: str, action: ActionFunction) -> None:
    """Make an action known by ``name``; raises ValueError if one has that name already."""
    if name in _ADDED:
        raise ValueError(f"an action {name} is registered already")
    _ADDED[name] = action


def registered_actions() -> tuple[str, ...]:
    """The names of all added actions."""
    return tuple(_ADDED)


def registered_action(name: str) -> ActionFunction:
    """The action of a name; raises KeyError if there is none."""
    return _ADDED[name]
