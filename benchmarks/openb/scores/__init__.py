"""Scores that exist for the comparison with the paper, registered as any other score is.

They are too weak to be offered by the scheduler: see docs/packing.md.
"""

from enum import StrEnum

from benchmarks.openb.scores.clustering import Clustering
from benchmarks.openb.scores.dot_product import dot_product
from benchmarks.openb.scores.packing import packing
from benchmarks.openb.scores.random_score import random_score
from kai_py.api.choices import BuiltInScore
from kai_py.policy.score.registry import ScoreDefinition, register_score


class PaperScore(StrEnum):
    """The paper's other policies."""

    RANDOM = "random"
    DOT_PRODUCT = "dot-product"
    CLUSTERING = "clustering"
    PACKING = "packing"


SCORES = (*PaperScore, *BuiltInScore)
"""All that are compared, the weakest first."""

STATEFUL_SCORES = (PaperScore.RANDOM, PaperScore.CLUSTERING)
"""What they say of a node depends on more than its kind and free capacity."""

register_score(PaperScore.RANDOM, ScoreDefinition(lambda _: random_score()))
register_score(PaperScore.DOT_PRODUCT, dot_product)
register_score(
    PaperScore.CLUSTERING, ScoreDefinition(lambda workload: Clustering(len(workload.node_kind)))
)
register_score(PaperScore.PACKING, packing)
