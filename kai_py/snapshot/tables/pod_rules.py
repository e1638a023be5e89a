"""Pods that stand on nodes, as rules between pods see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.api.records.core import Pod, PodAffinityTerm


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node, and whom it refuses (its required anti-affinity)."""

    uid: str
    node: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    anti_affinity_terms: tuple[PodAffinityTerm, ...] = ()


class PlacedPods:
    """All pods on nodes, and whether any pod, on a node or waiting, has rules about others."""

    def __init__(self) -> None:
        """Start empty."""
        self._placed: dict[str, PlacedPod] = {}
        self._with_rules: dict[str, None] = {}
        self._with_anti_affinity: dict[str, None] = {}

    def set(self, pod: Pod, node: str) -> None:
        """The pod stands on ``node``, or waits ("")."""
        uid, affinity = pod.metadata.uid, pod.spec.affinity
        refuses = (
            affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
        )
        if node:
            self._placed[uid] = PlacedPod(
                uid, node, pod.metadata.namespace, pod.metadata.labels, refuses
            )
        else:
            self._placed.pop(uid, None)
        _set_flag(self._with_rules, uid, value=has_pod_rules(pod))
        _set_flag(self._with_anti_affinity, uid, value=bool(refuses))

    def remove(self, uid: str) -> None:
        """The pod is gone or finished."""
        self._placed.pop(uid, None)
        self._with_rules.pop(uid, None)
        self._with_anti_affinity.pop(uid, None)

    @property
    def any_anti_affinity(self) -> bool:
        """Whether any pod refuses others, so that everybody's labels matter."""
        return bool(self._with_anti_affinity)

    def snapshot(self) -> tuple[PlacedPod, ...]:
        """All pods on nodes; nothing when no pod has rules about others."""
        return tuple(self._placed.values()) if self._with_rules else ()


def has_pod_rules(pod: Pod) -> bool:
    """Whether the pod's placement depends on other pods."""
    affinity = pod.spec.affinity
    between = affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)
    return between or bool(pod.spec.topology_spread_constraints)


def _set_flag(table: dict[str, None], uid: str, *, value: bool) -> None:
    if value:
        table[uid] = None
    else:
        table.pop(uid, None)
