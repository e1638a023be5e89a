"""Pods on nodes as rules between pods (affinity, anti-affinity, topology spread) see them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kai_py.api.records.core import Pod, PodAffinityTerm
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node, with the terms of its required anti-affinity."""

    uid: str
    node: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    anti_affinity_terms: tuple[PodAffinityTerm, ...] = ()


class PlacedPods(PodTable):
    """All pods on nodes, and whether any pod, on a node or waiting, has rules about others."""

    def __init__(self, unplaced_pods: Callable[[], Iterable[str]]) -> None:
        """Start empty; ``unplaced_pods``: the uids of the pods that wait."""
        self._unplaced_pods = unplaced_pods
        self._placed: dict[str, PlacedPod] = {}
        self._with_rules: dict[str, None] = {}
        self._with_anti_affinity: dict[str, None] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Take in where a pod is.

        With the first pod that has required anti-affinity the labels of all waiting pods begin to
        matter, so that those have to be derived again.
        """
        labels_mattered = self.any_anti_affinity
        parsed, node = pod.parsed.pod, pod.placement.node
        affinity = parsed.spec.affinity
        terms = (
            affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
        )
        if node:
            meta = parsed.metadata
            self._placed[pod.uid] = PlacedPod(pod.uid, node, meta.namespace, meta.labels, terms)
        else:
            self._placed.pop(pod.uid, None)
        _set_flag(self._with_rules, pod.uid, value=has_pod_rules(parsed))
        _set_flag(self._with_anti_affinity, pod.uid, value=bool(terms))
        if labels_mattered or not terms:
            return ()
        return tuple(uid for uid in self._unplaced_pods() if uid != pod.uid)

    def release(self, uid: str) -> Uids:
        """The pod is gone or finished."""
        self._placed.pop(uid, None)
        self._with_rules.pop(uid, None)
        self._with_anti_affinity.pop(uid, None)
        return ()

    @property
    def any_anti_affinity(self) -> bool:
        """Whether any pod has required anti-affinity, so that the labels of all pods matter."""
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
