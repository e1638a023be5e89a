"""The values of a gauge by its labels, replaced as a whole.

Most of them are as they were before. Only the others are set: a gauge that is cleared creates all
its children again.
"""

from collections.abc import Mapping

from prometheus_client import Gauge

Labels = tuple[str, ...]


class GaugeValues:
    """What a gauge shows; nothing else may set it."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: dict[Labels, float] = {}

    def show(self, values: Mapping[Labels, float]) -> None:
        """Show ``values`` and nothing else."""
        for labels in [each for each in self._shown if each not in values]:
            self._gauge.remove(*labels)
            del self._shown[labels]
        for labels, value in values.items():
            if self._shown.get(labels) != value:
                self._gauge.labels(*labels).set(value)
                self._shown[labels] = value
