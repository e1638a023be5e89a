"""Settings of eviction: when pods are evicted for others, and how lost work is weighed."""

from typing import Annotated

from pydantic import Field

from kai_py.api.model import ApiModel
from kai_py.api.times import Duration, PositiveDuration


class EvictionConfig(ApiModel):
    """When running pods may be relocated or evicted for others."""

    preempt: bool = True
    """Inside a queue, by priority."""
    reclaim: bool = True
    """Between queues, by fair share."""
    consolidate: bool = True
    """Consolidation: relocating pods so that a gang fits; only when all of them can be
    relocated."""
    consolidate_at_most: Annotated[int, Field(ge=0, strict=True)] = 16
    """Maximum number of pods relocated for one gang."""
    preempt_min_runtime: Duration = 0.0
    """Time a workload runs before it may be preempted, unless its queue says otherwise."""
    reclaim_min_runtime: Duration = 0.0
    """Time a workload runs before it may be reclaimed, unless its queue says otherwise."""
    staleness_grace: Duration = 60.0
    """Time a gang may run below minMember before its remaining pods are evicted."""
    suspend_jobs: bool = False
    """Jobs all of whose pods are evicted are suspended, and resumed when they fit again, unless
    their annotation scheduling.kai.io/on-eviction says otherwise. Jobs that would fail
    are suspended in any case."""
    cooldown: Duration = 0.0
    """Time after an eviction for which no pod of the same workload is evicted again."""
    patience: Duration = 1800.0
    """How long a gang whose queue has had its share waits for pods that are about to end before
    others are evicted for it, or up to four times as long if its victims would lose more than the
    wait costs; 0: not at all. When pods end is known from ``scheduling.kai.io/expected-runtime``
    and from how long such pods ran before. Not with the ``kai`` rules."""
    settling_time: Duration = 150.0
    """Time after its start for which a pod is not relocated, and not evicted if it is expected to
    end by itself; not with the ``kai`` rules."""
    evictions_per_day: Annotated[int, Field(ge=0, le=1000, strict=True)] = 2
    """Evictions within a day after which a workload loses pods only to queues within what they
    deserve; 0: no limit. Not with the ``kai`` rules."""
    restart_cost: Duration = 60.0
    """Start-up time that an eviction costs each pod, where victims are weighed by lost work."""
    max_grace_period: PositiveDuration = 1800.0
    """Longest grace period of an evicted pod, whatever its ``terminationGracePeriodSeconds``; a pod
    that was deleted with a longer one counts as running until no more than this is left."""
    hold_expiry: PositiveDuration = 300.0
    """Time for which capacity freed by eviction stays nominated for its gang."""
