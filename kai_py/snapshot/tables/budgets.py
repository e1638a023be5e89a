"""PodDisruptionBudgets: the pods that each protects, and how many of them may be evicted now.

Kept step by step: a pod is compared with the budgets of its namespace, a budget whose selector
changed with all pods. The API server counts what may be disrupted; the Eviction API has the last
word. It evicts pods that have not started whatever their budgets allow, and others that are not
ready where the budget says so or has as many healthy pods as it requires.

Source: policy/v1, registry/core/pod/storage/eviction.go of Kubernetes.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from msgspec import Struct

from kai_py.api.records.core import Pod
from kai_py.api.records.policy import PodDisruptionBudget
from kai_py.api.selectors import label_selector_matches
from kai_py.snapshot.tables.pod_table import PodTable, Uids
from kai_py.snapshot.tables.readiness import ready_condition


class DisruptionBudget(Struct, frozen=True):
    """``pods``: uids of the pods it protects, of which ``allowed`` may be evicted now.

    ``exempt``: those of them whose eviction it neither prevents nor counts.
    """

    name: str
    allowed: int
    pods: frozenset[str]
    exempt: frozenset[str] = frozenset()


class DisruptionBudgets(PodTable):
    """The budgets of the cluster, and the pods of ours that they protect, finished ones included.

    No other pods are evicted, so that budgets which protect only others limit nothing.
    """

    kinds: ClassVar[tuple[str, ...]] = ("poddisruptionbudgets",)

    def __init__(self, pods: Mapping[str, Pod], is_ours: Callable[[Pod], bool]) -> None:
        """Start without budgets; ``pods``: all that the API has, by uid."""
        self._pods = pods
        self._is_ours = is_ours
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        self._protected: dict[tuple[str, str], set[str]] = {}
        self._unready: set[str] = set()
        self._snapshot: tuple[DisruptionBudget, ...] | None = None

    def observe(self, pod: Pod) -> Uids:
        """Compare the pod with the budgets of its namespace."""
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        became = self._is_unready(pod) != (uid in self._unready)
        if became:
            (self._unready.remove if uid in self._unready else self._unready.add)(uid)
        for name, budget in self._budgets.get(namespace, {}).items():
            protected, protects = self._protected[namespace, name], self._protects(budget, pod)
            if protects == (uid in protected):
                if protects and became:
                    self._snapshot = None
                continue
            (protected.add if protects else protected.remove)(uid)
            self._snapshot = None
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone."""
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        self._unready.discard(uid)
        for name in self._budgets.get(namespace, {}):
            if uid in self._protected[namespace, name]:
                self._protected[namespace, name].remove(uid)
                self._snapshot = None
        return ()

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a PodDisruptionBudget; O(pods) if its selector changed."""
        if isinstance(new, PodDisruptionBudget):
            meta = new.metadata
            known = self._budgets.setdefault(meta.namespace, {}).get(meta.name)
            self._budgets[meta.namespace][meta.name] = new
            self._snapshot = None
            if known is None or known.spec != new.spec:
                self._protected[meta.namespace, meta.name] = {
                    pod.metadata.uid
                    for pod in self._pods.values()
                    if pod.metadata.namespace == meta.namespace and self._protects(new, pod)
                }
        elif isinstance(old, PodDisruptionBudget):
            meta = old.metadata
            in_namespace = self._budgets.get(meta.namespace, {})
            in_namespace.pop(meta.name, None)
            if not in_namespace:
                self._budgets.pop(meta.namespace, None)
            self._protected.pop((meta.namespace, meta.name), None)
            self._snapshot = None

    def snapshot(self) -> tuple[DisruptionBudget, ...]:
        """Every budget that protects a pod of ours, by name."""
        if self._snapshot is None:
            self._snapshot = tuple(
                DisruptionBudget(
                    f"{namespace}/{name}",
                    max(0, self._budgets[namespace][name].status.disruptions_allowed),
                    frozenset(protected),
                    self._exempt(self._budgets[namespace][name], protected),
                )
                for (namespace, name), protected in sorted(self._protected.items())
                if protected
            )
        return self._snapshot

    def _protects(self, budget: PodDisruptionBudget, pod: Pod) -> bool:
        if pod.status.phase == "Pending":
            return False
        selected = label_selector_matches(budget.spec.selector, pod.metadata.labels)
        return selected and self._is_ours(pod)

    def _is_unready(self, pod: Pod) -> bool:
        ready = ready_condition(pod)
        return ready is not None and ready.status != "True" and self._is_ours(pod)

    def _exempt(self, budget: PodDisruptionBudget, protected: set[str]) -> frozenset[str]:
        status = budget.status
        is_healthy = status.current_healthy >= status.desired_healthy > 0
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or is_healthy:
            return frozenset(protected & self._unready)
        return frozenset()
