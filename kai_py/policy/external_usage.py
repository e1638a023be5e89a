"""What every queue used in the past, as somebody else measured it.

Takes the place of our own ``usage_history``: amounts come from outside, averaged over a window, and
count as a part of what the cluster has now. Amounts that were measured too long ago count as none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.snapshot.resources import Floats

UsageByQueue = Mapping[str, Mapping[str, float]]
"""Queue to resource to amount, in row units."""


@dataclass
class ExternalUsage:
    """The last measurement; it counts for ``stale_after`` seconds."""

    stale_after: float
    _amounts: UsageByQueue = field(default_factory=dict, init=False)
    _measured_at: float = field(default=-np.inf, init=False)

    def record(self, amounts: UsageByQueue, at: float) -> None:
        """``amounts`` were measured ``at`` (seconds since the epoch)."""
        self._amounts, self._measured_at = amounts, at

    def fractions(
        self, now: float, queues: Sequence[str], resources: Sequence[str], total: Floats
    ) -> Floats:
        """(resources, queues) past use as a part of ``total`` (resources,)."""
        used = np.zeros((len(resources), len(queues)))
        if now > self._measured_at + self.stale_after:
            return used
        for column, queue in enumerate(queues):
            amounts = self._amounts.get(queue)
            if amounts:
                used[:, column] = [amounts.get(name, 0.0) for name in resources]
        offered = np.broadcast_to(total[:, None], used.shape)
        return np.divide(used, offered, out=np.zeros_like(used), where=offered > 0)
