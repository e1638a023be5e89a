"""Pods that stand on nodes, as rules between pods see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.api.records.core import Pod, PodAffinityTerm


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pod on a node, and whom it refuses (its required anti-affinity)."""

    uid: str
    node: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    refuses: tuple[PodAffinityTerm, ...] = ()


class Neighbours:
    """All pods on nodes, and whether any pod, on a node or waiting, has rules about others."""

    def __init__(self) -> None:
        """Start empty."""
        self._standing: dict[str, Neighbour] = {}
        self._ruling: dict[str, None] = {}
        self._refusing: dict[str, None] = {}

    def set(self, pod: Pod, node: str) -> None:
        """The pod stands on ``node``, or waits ("")."""
        uid, affinity = pod.metadata.uid, pod.spec.affinity
        refuses = (
            affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
        )
        if node:
            self._standing[uid] = Neighbour(
                uid, node, pod.metadata.namespace, pod.metadata.labels, refuses
            )
        else:
            self._standing.pop(uid, None)
        _mark(self._ruling, uid, wanted=has_pod_rules(pod))
        _mark(self._refusing, uid, wanted=bool(refuses))

    def remove(self, uid: str) -> None:
        """The pod is gone or finished."""
        self._standing.pop(uid, None)
        self._ruling.pop(uid, None)
        self._refusing.pop(uid, None)

    @property
    def refuse(self) -> bool:
        """Whether any pod refuses others, so that everybody's labels matter."""
        return bool(self._refusing)

    def standing(self) -> tuple[Neighbour, ...]:
        """All pods on nodes; nothing when no pod has rules about others."""
        return tuple(self._standing.values()) if self._ruling else ()


def has_pod_rules(pod: Pod) -> bool:
    """Whether the pod's placement depends on other pods."""
    affinity = pod.spec.affinity
    between = affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)
    return between or bool(pod.spec.topology_spread_constraints)


def _mark(table: dict[str, None], uid: str, *, wanted: bool) -> None:
    if wanted:
        table[uid] = None
    else:
        table.pop(uid, None)
