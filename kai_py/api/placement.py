"""The configuration of placement: fill strategies and scores.

Names of scores and actions are those that come with the scheduler and those of installed packages;
any other is an error that gives the nearest.

Scores and actions of installed packages, by the entry points that name them.

A package adds one by an entry point of the group ``kai_py.scores`` or ``kai_py.actions``. Names are
read from the metadata of installed packages; code is loaded only for names that the configuration
uses, and only by the planner.
"""

import enum
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from kai_py.api.choices import NO_SCORE, BuiltInScore, FillStrategy
from kai_py.api.model import ApiModel
from kai_py.api.problems import unknown_name


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


def _known_score(name: str) -> str:
    known = (*BuiltInScore, *extension_names(ExtensionGroup.SCORES))
    if name not in known:
        raise ValueError(unknown_name("score", name, known))
    return name


def _known_action(name: str) -> str:
    known = extension_names(ExtensionGroup.ACTIONS)
    if name not in known:
        raise ValueError(unknown_name("installed action", name, known))
    return name


def _known_strategy(name: str) -> str:
    return name if name == NO_SCORE else _known_score(name)


ScoreName = Annotated[str, AfterValidator(_known_score)]
InstalledAction = Annotated[str, AfterValidator(_known_action)]
"""The name of an action of an installed package."""


class ScoreConfig(ApiModel):
    """A score among several."""

    name: ScoreName
    """``best-fit``, ``fgd``, ``frugal``, or the name of an installed score."""
    weight: Annotated[int, Field(ge=1, le=100, strict=True)] = 1
    """Factor of the score in the sum."""


class PlacementConfig(ApiModel):
    """Choice of nodes, by the requests of pods."""

    gpu: FillStrategy = FillStrategy.BINPACK
    """For pods that request GPUs or other devices."""
    cpu: FillStrategy = FillStrategy.BINPACK
    """For pods that request none."""
    strategy: Annotated[str, AfterValidator(_known_strategy)] | None = None
    """A score that places pods one by one, instead of ``gpu`` and ``cpu``; pods with claims
    always use those. One of ``best-fit``, ``fgd``, ``frugal``, the name of an installed score,
    or ``together`` for no score. By default ``frugal`` while GPUs could become unusable through
    fragmentation, everything else here is ``binpack`` and the rules are native, and ``together``
    otherwise."""
    scores: Annotated[tuple[ScoreConfig, ...], Field(max_length=16)] = ()
    """Scores that are normalised to 0 to 100, multiplied by ``weight`` and added; instead of
    ``strategy``, which names one."""
    shared_gpus: FillStrategy | None = None
    """Among the GPUs of a node, for pods that request a fraction of one; by default as ``gpu``."""

    @model_validator(mode="after")
    def _names_scores_once(self) -> "PlacementConfig":
        if self.scores and self.strategy is not None:
            raise ValueError("strategy is the short form of one score: set it or scores, not both")
        names = [each.name for each in self.scores]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"scores: {repeated} is listed twice")
        return self
