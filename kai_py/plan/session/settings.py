"""The part of the configuration that a cycle follows."""

from msgspec import Struct

from kai_py.api.choices import FillStrategy
from kai_py.api.node_departures import DEFAULT_DEPARTURE_RULES, DepartureRules
from kai_py.plan.extensions import extension_keys
from kai_py.plan.plan import Action
from kai_py.plan.session.spot_choices import DEFAULT_SPOT_RULES, SpotRules
from kai_py.policy.ageing import NO_AGEING, Ageing
from kai_py.policy.fairness_rules import NATIVE, FairnessRules
from kai_py.policy.lost_work import NO_LOSS_RULES, LossRules
from kai_py.policy.score.registry import WeightedScore


class CycleSettings(Struct, frozen=True, kw_only=True):
    """The configuration of a cycle; ``actions`` run in the order given.

    ``victim_probes``: trial placements of all searches for victims in a cycle, and of one search.
    ``max_relocated_pods``: for one gang. ``staleness_grace`` in seconds, as is
    ``reservation_seconds``: how long capacity stays reserved for pods that are not created yet.
    """

    rules: FairnessRules = NATIVE
    gpu_strategy: FillStrategy = FillStrategy.BINPACK
    cpu_strategy: FillStrategy = FillStrategy.BINPACK
    sharing_strategy: FillStrategy = FillStrategy.BINPACK
    scores: tuple[WeightedScore, ...] = ()
    default_scores: tuple[WeightedScore, ...] = ()
    """In place of missing ``scores`` where pods could leave GPUs free that no pod can use."""
    victim_probes: int = 20_000
    victim_probes_per_gang: int = 500
    max_relocated_pods: int = 16
    staleness_grace: float = 60.0
    ageing: Ageing = NO_AGEING
    reservation_seconds: float = 300.0
    cooldown: float = 0.0
    loss_rules: LossRules = NO_LOSS_RULES
    departures: DepartureRules = DEFAULT_DEPARTURE_RULES
    spot: SpotRules = DEFAULT_SPOT_RULES
    suspend_jobs: bool = False
    actions: tuple[Action, ...] = (
        Action.ALLOCATE,
        Action.CONSOLIDATE,
        Action.RECLAIM,
        Action.PREEMPT,
        Action.STALE,
    )
    extra_actions: tuple[str, ...] = ()
    """Registered actions that run after ``allocate``, before those that evict."""

    @property
    def extension_keys(self) -> tuple[str, ...]:
        """The keys of the scores and actions of installed packages."""
        return extension_keys(self.scores, self.extra_actions)
