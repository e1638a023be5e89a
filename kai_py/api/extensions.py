"""Scores and actions of installed packages, by the entry points that name them.

A package adds one by an entry point of the group ``kai_py.scores`` or ``kai_py.actions``. Names are
read from the metadata of installed packages; code is loaded only for names that the configuration
uses, and only by the planner.
"""

import enum
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

from pydantic import AfterValidator

from kai_py.api.problems import unknown_name


class ExtensionGroup(enum.StrEnum):
    """A group of entry points; the value is its name."""

    SCORES = "kai_py.scores"
    ACTIONS = "kai_py.actions"


class ExtensionError(Exception):
    """An installed extension cannot be loaded."""


def extension_names(group: ExtensionGroup) -> tuple[str, ...]:
    """The names that installed packages add to a group, sorted."""
    return tuple(sorted(entry_points(group=group.value).names))


def load_extension(group: ExtensionGroup, name: str) -> Any:
    """The object that an entry point names; raises ExtensionError if it cannot be loaded."""
    found = tuple(entry_points(group=group.value, name=name))
    if len(found) != 1:
        packages = ", ".join(_package(each) for each in found) or "no package"
        raise ExtensionError(f"{group.value}: {name} comes from {packages}, one is expected")
    try:
        return found[0].load()
    except Exception as error:
        # The code of the package runs here and may raise anything: report which package it is.
        raise ExtensionError(
            f"{group.value}: {name} of {_package(found[0])} cannot be loaded: {error!r}"
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _known_action(name: str) -> str:
    known = extension_names(ExtensionGroup.ACTIONS)
    if name not in known:
        raise ValueError(unknown_name("installed action", name, known))
    return name


InstalledAction = Annotated[str, AfterValidator(_known_action)]
"""The name of an action of an installed package."""
