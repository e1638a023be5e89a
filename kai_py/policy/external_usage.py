"""Past usage of queues as measured by an external source, such as Prometheus.

Replaces our own ``usage_history``: amounts are averages over a window and count as a fraction of
what the cluster has now. Measurements older than ``stale_after`` count as none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.snapshot.resources import Floats

UsageByQueue = Mapping[str, Mapping[str, float]]
"""Amounts by queue and resource, in quota units."""


@dataclass
class ExternalUsage:
    """The last measurement; it is valid for ``stale_after`` seconds."""

    stale_after: float
    _amounts: UsageByQueue = field(default_factory=dict, init=False)
    _measured_at: float = field(default=-np.inf, init=False)

    def record(self, amounts: UsageByQueue, at: float) -> None:
        """Store ``amounts`` measured ``at`` (seconds since the epoch)."""
        self._amounts, self._measured_at = amounts, at

    def fractions(
        self, now: float, queues: Sequence[str], resources: Sequence[str], total: Floats
    ) -> Floats:
        """(resources, queues) past usage as a fraction of ``total`` (resources,)."""
        used = np.zeros((len(resources), len(queues)))
        if now > self._measured_at + self.stale_after:
            return used
        for column, queue in enumerate(queues):
            amounts = self._amounts.get(queue)
            if amounts:
                used[:, column] = [amounts.get(name, 0.0) for name in resources]
        offered = np.broadcast_to(total[:, None], used.shape)
        return np.divide(used, offered, out=np.zeros_like(used), where=offered > 0)
