"""Scores and actions of installed packages, by the entry points that name them.

A package adds one by an entry point of the group ``kai_py.scores`` or ``kai_py.actions``. Names are
read from the metadata of installed packages; code is loaded only for names that the configuration
uses, and only by the planner.
"""

import enum
from importlib.metadata import EntryPoint, entry_points
from typing import Any


class ExtensionGroup(enum.StrEnum):
    """What entry points add."""

    SCORES = "kai_py.scores"
    ACTIONS = "kai_py.actions"


class ExtensionError(Exception):
    """An installed extension cannot be loaded."""


def extension_names(group: ExtensionGroup) -> tuple[str, ...]:
    """The names that installed packages add to a group, sorted."""
    return tuple(sorted(entry_points(group=group.value).names))


def load_extension(group: ExtensionGroup, name: str) -> Any:
    """What an entry point refers to; raises ExtensionError if it cannot be had."""
    found = tuple(entry_points(group=group.value, name=name))
    if len(found) != 1:
        packages = ", ".join(_package(each) for each in found) or "no package"
        raise ExtensionError(f"{group.value}: {name} comes from {packages}, one is expected")
    try:
        return found[0].load()
    except Exception as error:
        # The code of the package runs here: whatever it raises, the name is what helps.
        raise ExtensionError(
            f"{group.value}: {name} of {_package(found[0])} cannot be loaded: {error!r}"
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
