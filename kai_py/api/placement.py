"""The configuration of placement: fill strategies and scores.

A score is one that comes with the scheduler or one of an installed package (``api.extensions``);
any other name is an error that suggests the nearest.
"""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from kai_py.api.choices import NO_SCORE, BuiltInScore, FillStrategy
from kai_py.api.extensions import ExtensionGroup, extension_names
from kai_py.api.model import ApiModel
from kai_py.api.problems import unknown_name


def _known_score(name: str) -> str:
    known = (*BuiltInScore, *extension_names(ExtensionGroup.SCORES))
    if name not in known:
        raise ValueError(unknown_name("score", name, known))
    return name


def _known_strategy(name: str) -> str:
    return name if name == NO_SCORE else _known_score(name)


ScoreName = Annotated[str, AfterValidator(_known_score)]


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
