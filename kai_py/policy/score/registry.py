"""The scores by name, and one score made of several with weights.

A score rates how good a node is for the next pod, and names the GPU to use; the node with the
highest score is taken, the first by name where several have it. ``register_score`` adds one. A
score is a pure function of numpy arrays over nodes that have capacity for the pod:

    score(request, capacity) -> NodeScores(score, gpu)

- Its value for a node depends on the pod and on that node alone, so that only nodes that changed
  are scored again.
- Its range is 0 to 100, as kube-scheduler's ``MinNodeScore`` and ``MaxNodeScore``, or what its
  definition says. Whole numbers tie; exact ones follow noise instead of the order of the nodes.
- Alone it counts as it is. Several are normalised to whole numbers from 0 to 100 each and added by
  weight; unlike kube-scheduler's ``NormalizeScore`` by their range, not by the best candidate, for
  else placing one pod would change the scores of all nodes. The GPU is chosen by the score with the
  largest weight that names one, of several the first.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from kai_py.api.choices import BuiltInScore
from kai_py.api.problems import unknown_name
from kai_py.policy.score.best_fit import best_fit
from kai_py.policy.score.fragmentation import fragmentation, least_growth_score, stranded
from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    MAX_SCORE,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    Score,
    any_gpu,
)
from kai_py.policy.score.workload import TargetWorkload
from kai_py.snapshot.resources import Floats


class ScoreDefinition(Struct, frozen=True):
    """A score that needs more than the pod and the nodes, or has a range of its own.

    ``for_workload``: makes the score for the pods that are likely to come. ``lowest``,
    ``highest``: its range.
    """

    for_workload: Callable[[TargetWorkload], Score]
    lowest: float = 0.0
    highest: float = MAX_SCORE

    def normalize(self, score: Floats) -> Floats:
        """(n,) whole numbers 0 to 100 for scores in its range, and for those beyond its ends."""
        part = (score - self.lowest) / (self.highest - self.lowest)
        return np.floor(np.round(np.clip(part, 0.0, 1.0) * MAX_SCORE, 9))


class WeightedScore(Struct, frozen=True):
    """A registered score and how much it counts beside others."""

    name: str
    weight: int = 1


class UnknownScoreError(ValueError):
    """No score of that name is registered."""


_DEFINITIONS: dict[str, ScoreDefinition] = {
    BuiltInScore.BEST_FIT: ScoreDefinition(lambda _: best_fit),
    BuiltInScore.FGD: ScoreDefinition(lambda each: least_growth_score(each, fragmentation)),
    BuiltInScore.FRUGAL: ScoreDefinition(lambda each: least_growth_score(each, stranded)),
}


def register_score(name: str, score: Score | ScoreDefinition) -> None:
    """Make a score known by ``name``; raises ValueError if one has that name already."""
    definition = score if isinstance(score, ScoreDefinition) else ScoreDefinition(lambda _: score)
    if name in _DEFINITIONS:
        raise ValueError(f"a score {name} is registered already")
    _DEFINITIONS[name] = definition


def registered_scores() -> tuple[str, ...]:
    """The names of all scores."""
    return tuple(_DEFINITIONS)


def score_definition(name: str) -> ScoreDefinition:
    """The score of a name; raises UnknownScoreError, which names the nearest."""
    if name in _DEFINITIONS:
        return _DEFINITIONS[name]
    raise UnknownScoreError(unknown_name("score", name, _DEFINITIONS))


class InvalidScoresError(ValueError):
    """A score returned something that is no score of the nodes in question."""


OnScoreFailure = Callable[[str, Exception], None]
"""Called with the name of an installed score, once it has failed."""


def combined_score(
    scores: Sequence[WeightedScore],
    workload: TargetWorkload,
    on_failure: OnScoreFailure | None = None,
) -> Score:
    """One score of at least one registered, each by its weight.

    With ``on_failure`` an installed score that fails says the same of all nodes from then on.
    """

    def make(name: str) -> Score:
        definition = score_definition(name)
        if on_failure is None or name in tuple(BuiltInScore):
            return definition.for_workload(workload)
        return _ContainedScore(name, definition, workload, on_failure)

    if len(scores) == 1:
        return make(scores[0].name)
    heaviest_first = sorted(scores, key=lambda each: -each.weight)
    made = [(score_definition(each.name), make(each.name), each.weight) for each in heaviest_first]

    def score(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        total = np.zeros(len(capacity.rows))
        gpu = any_gpu(capacity)
        for part, function, weight in made:
            found = function(request, capacity)
            total += weight * part.normalize(found.score)
            gpu = np.where(gpu == ANY_DEVICE, found.gpu, gpu)
        return NodeScores(total, gpu)

    return score


class _ContainedScore:
    """A score of an installed package; what goes wrong in it ends here."""

    def __init__(
        self,
        name: str,
        definition: ScoreDefinition,
        workload: TargetWorkload,
        on_failure: OnScoreFailure,
    ) -> None:
        self._name, self._definition, self._workload = name, definition, workload
        self._on_failure = on_failure
        self._score: Score | None = None
        self._failed = False

    def __call__(self, request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        if not self._failed:
            try:
                if self._score is None:
                    self._score = self._definition.for_workload(self._workload)
                return _checked(self._score(request, capacity), capacity)
            except Exception as error:
                self._failed = True
                self._on_failure(self._name, error)
        lowest = np.full(len(capacity.rows), self._definition.lowest)
        return NodeScores(lowest, any_gpu(capacity))


def _checked(found: NodeScores, capacity: NodeCapacity) -> NodeScores:
    """The scores as arrays that nodes can be chosen by.

    :raises InvalidScoresError: they are not.
    """
    score, gpu = np.asarray(found.score, dtype=np.float64), np.asarray(found.gpu)
    wanted = (len(capacity.rows),)
    if score.shape != wanted or gpu.shape != wanted:
        raise InvalidScoresError(f"shapes {score.shape} and {gpu.shape} for {wanted[0]} nodes")
    if not np.isfinite(score).all():
        raise InvalidScoresError("a score is not finite")
    if not np.issubdtype(gpu.dtype, np.integer):
        raise InvalidScoresError(f"GPUs of type {gpu.dtype}")
    if ((gpu < ANY_DEVICE) | (gpu >= capacity.free_milli.shape[1])).any():
        raise InvalidScoresError("a GPU that its node does not have")
    return NodeScores(score, gpu.astype(np.int64))
