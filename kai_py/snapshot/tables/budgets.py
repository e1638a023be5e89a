"""PodDisruptionBudgets: the pods that each protects, and how many of them may be evicted now.

Kept step by step: a pod is compared with the budgets of its namespace once what they see of it has
changed, a budget whose selector changed with all pods. The API server counts what may be disrupted;
the Eviction API has the last word. It evicts no pod that several budgets select, so that the first
two of each pod say all. It evicts pods that have not started whatever their budgets allow, and
others that are not ready where the budget says so or has as many healthy pods as it requires.

Source: policy/v1, registry/core/pod/storage/eviction.go of Kubernetes.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from kai_py.api.records.core import Pod
from kai_py.api.records.policy import PodDisruptionBudget
from kai_py.api.selectors import label_selector_matches
from kai_py.snapshot.tables.pod_table import PodTable, Uids
from kai_py.snapshot.tables.readiness import ready_condition

MAX_BUDGETS = 2
"""Budgets that are kept of each pod: the Eviction API evicts none that several select."""


class DisruptionBudget(Struct, frozen=True):
    """``pods``: uids of the pods it protects, of which ``allowed`` may be evicted now.

    A pod that more than two budgets protect is among the pods of the first two by name.
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

    def __init__(self, is_ours: Callable[[Pod], bool]) -> None:
        """Start without budgets and pods."""
        self._is_ours = is_ours
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        """Those of ours that have started, by namespace and uid, as compared with the budgets."""
        self._protecting: dict[str, list[str]] = {}
        self._protected: dict[tuple[str, str], set[str]] = {}
        self._unready: set[str] = set()
        self._snapshot: tuple[DisruptionBudget, ...] | None = None

    def observe(self, pod: Pod) -> Uids:
        """Compare the pod with the budgets of its namespace, if what they see of it changed."""
        if pod.status.phase == "Pending" or not self._is_ours(pod):
            return self.remove(pod)
        namespace, uid, labels = pod.metadata.namespace, pod.metadata.uid, pod.metadata.labels
        if _is_unready(pod) != (uid in self._unready):
            (self._unready.remove if uid in self._unready else self._unready.add)(uid)
            if uid in self._protecting:
                self._snapshot = None
        in_namespace = self._pods.setdefault(namespace, {})
        known, in_namespace[uid] = in_namespace.get(uid), pod
        if known is None or known.metadata.labels != labels:
            budgets = self._budgets.get(namespace, {})
            self._protect(pod, [name for name in sorted(budgets) if _selects(budgets[name], pod)])
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone, or not to be protected."""
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        self._unready.discard(uid)
        in_namespace = self._pods.get(namespace, {})
        if in_namespace.pop(uid, None) is not None:
            self._protect(pod, [])
            if not in_namespace:
                del self._pods[namespace]
        return ()

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a PodDisruptionBudget; O(pods there) if its selector changed."""
        changed = new or old
        if not isinstance(changed, PodDisruptionBudget):
            return
        namespace, name = changed.metadata.namespace, changed.metadata.name
        known = self._budgets.get(namespace, {}).get(name)
        self._snapshot = None
        if isinstance(new, PodDisruptionBudget):
            self._budgets.setdefault(namespace, {})[name] = new
        elif known is not None:
            del self._budgets[namespace][name]
            if not self._budgets[namespace]:
                del self._budgets[namespace]
        if isinstance(new, PodDisruptionBudget) and known is not None and known.spec == new.spec:
            return
        for pod in self._pods.get(namespace, {}).values():
            self._compare(changed, pod, exists=new is not None)

    def _compare(self, budget: PodDisruptionBudget, pod: Pod, *, exists: bool) -> None:
        """Note whether a budget that was changed protects the pod."""
        name, names = budget.metadata.name, self._protecting.get(pod.metadata.uid, [])
        position = bisect_left(names, name)
        before = names[position : position + 1] == [name]
        protects = exists and _selects(budget, pod)
        if protects != before:
            after = names[position + before :]
            self._protect(pod, [*names[:position], *([name] if protects else []), *after])

    def _protect(self, pod: Pod, names: list[str]) -> None:
        """Note the budgets that protect the pod, by name."""
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        before = self._protecting.pop(uid, [])
        if names:
            self._protecting[uid] = names
        if before[:MAX_BUDGETS] == names[:MAX_BUDGETS]:
            return
        self._snapshot = None
        for name in before[:MAX_BUDGETS]:
            protected = self._protected[namespace, name]
            protected.remove(uid)
            if not protected:
                del self._protected[namespace, name]
        for name in names[:MAX_BUDGETS]:
            self._protected.setdefault((namespace, name), set()).add(uid)

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
            )
        return self._snapshot

    def _exempt(self, budget: PodDisruptionBudget, protected: set[str]) -> frozenset[str]:
        status = budget.status
        is_healthy = status.current_healthy >= status.desired_healthy > 0
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or is_healthy:
            return frozenset(protected & self._unready)
        return frozenset()


def _is_unready(pod: Pod) -> bool:
    ready = ready_condition(pod)
    return ready is not None and ready.status != "True"


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return label_selector_matches(budget.spec.selector, pod.metadata.labels)
