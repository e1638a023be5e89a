"""PodDisruptionBudgets: the pods that each protects, and how many of them may be evicted now.

Kept step by step: a pod is compared with the budgets of its namespace, a budget whose selector
changed with all pods. The API server counts what may be disrupted; the Eviction API has the last
word. Source: policy/v1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.disruption import PodDisruptionBudget
from kai_py.snapshot.label_selector import label_selector_matches
from kai_py.snapshot.tables.pod_table import PodTable, Uids


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """``pods``: uids of the pods it protects, of which ``allowed`` may be evicted now."""

    name: str
    allowed: int
    pods: frozenset[str]


class DisruptionBudgets(PodTable):
    """All budgets of the cluster, and the pods that they protect, finished ones included."""

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        """Start without budgets; ``pods``: all that the API has, by uid."""
        self._pods = pods
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        self._protected: dict[tuple[str, str], set[str]] = {}

    def observe(self, pod: Pod) -> Uids:
        """Compare the labels of the pod with the budgets of its namespace."""
        namespace = pod.metadata.namespace
        for name, budget in self._budgets.get(namespace, {}).items():
            protected = self._protected[namespace, name]
            if label_selector_matches(budget.spec.selector, pod.metadata.labels):
                protected.add(pod.metadata.uid)
            else:
                protected.discard(pod.metadata.uid)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone."""
        namespace = pod.metadata.namespace
        for name in self._budgets.get(namespace, {}):
            self._protected[namespace, name].discard(pod.metadata.uid)
        return ()

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a PodDisruptionBudget; O(pods) if its selector changed."""
        if isinstance(new, PodDisruptionBudget):
            meta = new.metadata
            known = self._budgets.setdefault(meta.namespace, {}).get(meta.name)
            self._budgets[meta.namespace][meta.name] = new
            if known is None or known.spec != new.spec:
                self._protected[meta.namespace, meta.name] = {
                    pod.metadata.uid
                    for pod in self._pods.values()
                    if pod.metadata.namespace == meta.namespace
                    and label_selector_matches(new.spec.selector, pod.metadata.labels)
                }
        elif isinstance(old, PodDisruptionBudget):
            meta = old.metadata
            self._budgets.get(meta.namespace, {}).pop(meta.name, None)
            self._protected.pop((meta.namespace, meta.name), None)

    def snapshot(self) -> tuple[DisruptionBudget, ...]:
        """Every budget that protects a pod, by name."""
        return tuple(
            DisruptionBudget(
                f"{namespace}/{name}",
                max(0, self._budgets[namespace][name].status.disruptions_allowed),
                frozenset(protected),
            )
            for (namespace, name), protected in sorted(self._protected.items())
            if protected
        )
