"""Which gang does a pod belong to, in a cluster whose users speak KAI? One step before our rules.

A pod that names a PodGroup belongs to it. Any other is grouped by our own rules, with KAI's
defaults if its workload is addressed in KAI's way.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.dialects.kai.pod_groups import pod_group_gang
from kai_py.dialects.kai.workloads import Addressing, with_kai_defaults
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owners import Owners

Identify = Callable[[Pod, Owners], GangSpec]


@dataclass(frozen=True, slots=True)
class KaiGrouping:
    """``identify`` groups by our own rules."""

    identify: Identify
    addressing: Addressing

    def __call__(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``."""
        named = pod_group_gang(pod, owners, queue=self.addressing.default_queue)
        if named is not None:
            return named
        return with_kai_defaults(self.identify(pod, owners), pod, owners, self.addressing)
