"""Which strategy does a name stand for?

Beside the strategies themselves: ``together`` is bin-packing without scores, ``default`` what a
configuration that says nothing about placement does with the pods of a trace.
"""

from benchmarks.openb.replay import Replay
from benchmarks.openb.trace import Trace
from kai_py.config import Configuration
from kai_py.planner import cycle_settings
from kai_py.policy.score.strategies import ScoreStrategy

DEFAULT, TOGETHER = "default", "together"
CHOICES = (*(strategy.value for strategy in ScoreStrategy), TOGETHER, DEFAULT)


def chosen_strategy(name: str, trace: Trace) -> ScoreStrategy | None:
    """The strategy of a name in ``CHOICES``; None for bin-packing without scores."""
    if name == TOGETHER:
        return None
    if name != DEFAULT:
        return ScoreStrategy(name)
    settings = cycle_settings(Configuration())
    if settings.strategy is not None or not Replay(trace, None).could_strand(trace.arrivals):
        return settings.strategy
    return settings.default_strategy
