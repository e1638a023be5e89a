"""Actions that are added to those of the cycle, by name.

An action is a function of the cycle's state and the gangs that are pending. It places and evicts
through ``state.statement``, which keeps the accounts, and calls no API.
"""

from collections.abc import Callable, Sequence

from kai_py.plan.session import CycleState
from kai_py.snapshot.gangs import Gang

ActionFunction = Callable[[CycleState, Sequence[Gang]], None]

_ACTIONS: dict[str, ActionFunction] = {}


def register_action(name: str, action: ActionFunction) -> None:
    """Make an action known by ``name``; raises ValueError if one has that name already."""
    if name in _ACTIONS:
        raise ValueError(f"an action {name} is registered already")
    _ACTIONS[name] = action


def registered_actions() -> tuple[str, ...]:
    """The names of all added actions."""
    return tuple(_ACTIONS)


def registered_action(name: str) -> ActionFunction:
    """The action of a name; raises KeyError if there is none."""
    return _ACTIONS[name]
