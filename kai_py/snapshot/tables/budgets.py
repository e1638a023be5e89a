"""Which pods does a PodDisruptionBudget protect, and how many of them may be evicted now?

Kept step by step: a pod is compared with the budgets of its namespace, a budget whose selector
changed with all pods. The API server counts what may be disrupted; the Eviction API has the last
word. Source: policy/v1.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.disruption import PodDisruptionBudget
from kai_py.snapshot.label_selector import label_selector_matches


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """``pods``: uids of the pods it protects, of which ``allowed`` may be evicted now."""

    name: str
    allowed: int
    pods: frozenset[str]


class DisruptionBudgets:
    """All budgets of the cluster and whom they protect."""

    def __init__(self) -> None:
        """There are none yet."""
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        self._pods: dict[tuple[str, str], set[str]] = {}

    def set_pod(self, pod: Pod) -> None:
        """The pod is there, with these labels."""
        namespace = pod.metadata.namespace
        for name, budget in self._budgets.get(namespace, {}).items():
            protected = self._pods[namespace, name]
            if label_selector_matches(budget.spec.selector, pod.metadata.labels):
                protected.add(pod.metadata.uid)
            else:
                protected.discard(pod.metadata.uid)

    def remove_pod(self, pod: Pod) -> None:
        """The pod is gone."""
        namespace = pod.metadata.namespace
        for name in self._budgets.get(namespace, {}):
            self._pods[namespace, name].discard(pod.metadata.uid)

    def apply(self, old: object | None, new: object | None, pods: Iterable[Pod]) -> None:
        """Take in a change of a budget; ``pods`` are all there are."""
        if isinstance(new, PodDisruptionBudget):
            meta = new.metadata
            known = self._budgets.setdefault(meta.namespace, {}).get(meta.name)
            self._budgets[meta.namespace][meta.name] = new
            if known is None or known.spec != new.spec:
                self._pods[meta.namespace, meta.name] = {
                    pod.metadata.uid
                    for pod in pods
                    if pod.metadata.namespace == meta.namespace
                    and label_selector_matches(new.spec.selector, pod.metadata.labels)
                }
        elif isinstance(old, PodDisruptionBudget):
            meta = old.metadata
            self._budgets.get(meta.namespace, {}).pop(meta.name, None)
            self._pods.pop((meta.namespace, meta.name), None)

    def snapshot(self) -> tuple[DisruptionBudget, ...]:
        """Every budget that protects a pod, by name."""
        return tuple(
            DisruptionBudget(
                f"{namespace}/{name}",
                max(0, self._budgets[namespace][name].status.disruptions_allowed),
                frozenset(protected),
            )
            for (namespace, name), protected in sorted(self._pods.items())
            if protected
        )
