"""Which pods are ours: those that name our scheduler, in our pool.

Before it is bound, a pod is in the pool that its label names, which its tenant may change. A bound
pod stays in its pool whatever becomes of the label: it holds the capacity of a node there, which is
charged to its queue and which others may take back.
"""

from collections.abc import Callable

from kai_py.api.records.core import Pod
from kai_py.snapshot.settings import SnapshotSettings


class OwnPods:
    """Follows the pods whose label changes while they are bound."""

    def __init__(self, settings: SnapshotSettings) -> None:
        """Start without any pod."""
        self._settings = settings
        self._kept: dict[str, bool] = {}

    def observe(
        self, known: Pod | None, new: object | None, assumed_node: Callable[[str], str]
    ) -> None:
        """Take in a change of a pod that was ``known``, ahead of all that asks about it.

        ``assumed_node``: the node of a pod that the watch does not show as bound yet, by uid.
        """
        if known is None:
            return
        uid = known.metadata.uid
        if not isinstance(new, Pod) or not (known.spec.node_name or assumed_node(uid)):
            self._kept.pop(uid, None)
        elif uid not in self._kept:
            was = self._settings.in_pool(known.metadata)
            if was != self._settings.in_pool(new.metadata):
                self._kept[uid] = was

    def includes(self, pod: Pod) -> bool:
        """Whether the pod is ours to place, or placed by us."""
        if not self._settings.names_us(pod):
            return False
        kept = self._kept.get(pod.metadata.uid) if pod.spec.node_name else None
        return self._settings.in_pool(pod.metadata) if kept is None else kept
