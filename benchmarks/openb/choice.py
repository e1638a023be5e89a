"""The strategies by name: the scores, ``together`` and ``default``.

``together`` is bin-packing without scores, ``default`` what a
configuration that says nothing about placement does with the pods of a trace.
"""

from benchmarks.openb.replay import Replay
from benchmarks.openb.scores import SCORES
from benchmarks.openb.trace import Trace
from kai_py.api.choices import NO_SCORE
from kai_py.config import Configuration
from kai_py.planner import cycle_settings

DEFAULT = "default"
CHOICES = (*(score.value for score in SCORES), NO_SCORE, DEFAULT)


def chosen_score(name: str, trace: Trace) -> str | None:
    """The score of a name in ``CHOICES``; None for bin-packing without scores."""
    if name == NO_SCORE:
        return None
    if name != DEFAULT:
        return name
    settings = cycle_settings(Configuration())
    scores = settings.scores
    if not scores and Replay(trace, None).could_strand(trace.arrivals):
        scores = settings.default_scores
    return scores[0].name if scores else None
