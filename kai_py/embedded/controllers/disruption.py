"""Status of PodDisruptionBudgets: how many pods may be evicted now.

allowed = healthy - desired, never below 0; desired is minAvailable, or expected - maxUnavailable.
If minAvailable is a number, as many pods are expected as match. With a percentage or maxUnavailable
it is the replicas of their controllers, which only ReplicaSets and StatefulSets have: any other pod
allows no disruption, and a condition says so.

Source: pkg/controller/disruption of k8s.io/kubernetes.
"""

from collections.abc import Callable, Iterable, Sequence

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.deployments import resolve_int_or_string
from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.documents import (
    Json,
    controller_of,
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    name_of,
    namespace_of,
    seconds_of,
    with_condition,
)
from kai_py.embedded.resources import BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS
from kai_py.embedded.selectors import label_selector
from kai_py.embedded.store import Change

DISRUPTED_POD_SECONDS = 120.0
"""How long an evicted pod that still exists counts as disrupted."""

_SCALABLE = (REPLICA_SETS.kind, STATEFUL_SETS.kind)


class _NoScaleError(Exception):
    pass


def reconcile(work: Work) -> None:
    """Bring one budget's status up to date."""
    namespace, name = work.key
    budget = work.api.find(BUDGETS, name, namespace)
    if budget is None or is_deleting(budget):
        return
    selects = label_selector(budget["spec"].get("selector"))
    pods = [
        pod
        for pod in work.api.list(PODS, namespace)
        if selects(pod["metadata"].get("labels") or {}) and not is_finished(pod)
    ]
    disrupted = _still_disrupted(work, budget, pods)
    healthy = sum(
        is_ready(pod) and is_active(pod) and name_of(pod) not in disrupted for pod in pods
    )
    counts, problem = budget_counts(budget, pods, healthy, work.api.store.by_uid)
    if problem:
        condition = _condition("False", "SyncFailed", problem)
    elif counts["disruptionsAllowed"]:
        condition = _condition("True", "SufficientPods", "")
    else:
        condition = _condition("False", "InsufficientPods", "")
    before = budget.get("status") or {}
    status = {
        "conditions": with_condition(before, condition, now=work.now)["conditions"],
        **counts,
        "disruptedPods": disrupted or None,
        "observedGeneration": budget["metadata"]["generation"],
    }
    work.api.patch_status(BUDGETS, budget, status)


def budget_counts(
    budget: Json, pods: Sequence[Json], healthy: int, by_uid: Callable[[str], Json | None]
) -> tuple[Json, str]:
    """The numbers in a budget's status for these pods, and why they cannot be computed, or "".

    ``pods``: those selected that have not ended; ``healthy``: how many of them are healthy.
    """
    problem, allowed = "", 0
    try:
        expected, desired = _expected_and_desired(by_uid, budget, pods)
    except _NoScaleError as error:
        problem, expected, desired = str(error), len(pods), 0
    else:
        # Without pods there is nothing to disrupt, whatever the numbers say.
        allowed = max(healthy - desired, 0) if expected > 0 else 0
    counts = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
    }
    return counts, problem


def _still_disrupted(work: Work, budget: Json, pods: Sequence[Json]) -> dict[str, str]:
    present = {name_of(pod) for pod in pods if not is_deleting(pod)}
    recent = {}
    for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
        remaining = seconds_of(since) + DISRUPTED_POD_SECONDS - work.now
        if name in present and remaining > 0:
            recent[name] = since
            work.requeue_after(remaining)
    return recent


def _expected_and_desired(
    by_uid: Callable[[str], Json | None], budget: Json, pods: Sequence[Json]
) -> tuple[int, int]:
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        expected = _scale(by_uid, pods)
        unavailable = resolve_int_or_string(spec["maxUnavailable"], expected, round_up=True)
        return expected, max(expected - unavailable, 0)
    minimum = spec.get("minAvailable", 1)
    if isinstance(minimum, int):
        return len(pods), minimum
    expected = _scale(by_uid, pods)
    return expected, resolve_int_or_string(minimum, expected, round_up=True)


def _scale(by_uid: Callable[[str], Json | None], pods: Sequence[Json]) -> int:
    replicas: dict[str, int] = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None or owner["kind"] not in _SCALABLE:
            kind = owner["kind"] if owner else "no controller"
            raise _NoScaleError(f"pod {name_of(pod)} has {kind}, which has no scale")
        document = by_uid(owner["uid"])
        if document is not None:
            replicas[owner["uid"]] = (document.get("spec") or {}).get("replicas", 1)
    return sum(replicas.values())


def _condition(status: str, reason: str, message: str) -> Json:
    condition = {"type": "DisruptionAllowed", "status": status, "reason": reason}
    return {**condition, "message": message}


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == BUDGETS.storage:
        yield key_of(change.object)
        return
    labels = change.object["metadata"].get("labels") or {}
    for budget in api.list(BUDGETS, namespace_of(change.object)):
        if label_selector(budget["spec"].get("selector"))(labels):
            yield key_of(budget)
            # As in Kubernetes, only one: a pod with several budgets can't be evicted anyway.
            return


DISRUPTION_CONTROLLER = Controller(
    name="disruption",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({BUDGETS.storage, PODS.storage}),
)
