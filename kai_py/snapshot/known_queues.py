"""Which queues are there? Those of every API that writes them, and one of our own at most."""

from collections.abc import Callable, Iterator

from kai_py.snapshot.queue_specs import DeviceLimit, QueueInfo


class QueueInfos:
    """Queues by name and the collection in which they were found.

    ``queue_spec`` turns a watched Queue into its spec. ``own`` is there as long as no object of its
    name is.
    """

    def __init__(self, queue_info: Callable[[object], QueueInfo], own: QueueInfo | None) -> None:
        self._queue_info = queue_info
        self._own = own
        self._queues: dict[tuple[str, str], QueueInfo] = {}

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in a change of a Queue of the collection ``kind``."""
        if old is not None:
            self._queues.pop((self._queue_info(old).name, kind), None)
        if new is not None:
            spec = self._queue_info(new)
            self._queues[spec.name, kind] = spec

    def specs(self) -> tuple[QueueInfo, ...]:
        """All of them, in an order that arrival does not change."""
        found = tuple(self._queues[key] for key in sorted(self._queues))
        if self._own is None or any(spec.name == self._own.name for spec in found):
            return found
        return (*found, self._own)

    def device_limits(self) -> Iterator[DeviceLimit]:
        """What is counted by attributes of devices."""
        return (limit for spec in self._queues.values() for limit in spec.device_limits)
