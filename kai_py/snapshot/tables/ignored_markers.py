"""Waiting pods that ask for more than one gang, and the markers of those they are not in."""

from kai_py.api.references import PodRef
from kai_py.snapshot.snapshot import IgnoredMarkers
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids


class IgnoredMarkerTable(PodTable):
    """Ignored markers by pod uid."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_pod: dict[str, IgnoredMarkers] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Take in what a pod without a node asks for."""
        spec = pod.parsed.gang_spec
        if spec is None or not spec.ignored_markers or pod.placement.node:
            return self.release(pod.uid)
        reference = PodRef.of(pod.parsed.pod.metadata)
        self._by_pod[pod.uid] = IgnoredMarkers(reference, spec.key, spec.ignored_markers)
        return ()

    def release(self, uid: str) -> Uids:
        """The pod does not wait any more."""
        self._by_pod.pop(uid, None)
        return ()

    def snapshot(self) -> tuple[IgnoredMarkers, ...]:
        """All of them, by pod."""
        return tuple(sorted(self._by_pod.values(), key=lambda each: each.pod))
