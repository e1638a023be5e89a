"""The controllers go on whatever is stored."""

import pytest

from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import BUDGETS, JOBS, PODS
from tests.embedded.manifests import job, node, pod
from tests.embedded.placing import names

BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "c"},
    "value": 1.5,
}
BROKEN = [
    (BUDGETS.storage, {**BUDGET, "spec": None}),
    (BUDGETS.storage, {**BUDGET, "spec": {"minAvailable": "many", "selector": {}}}),
    (JOBS.storage, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}),
    (PODS.storage, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}),
]


@pytest.mark.parametrize(("storage", "document"), BROKEN)
def test_a_stored_object_stops_no_controller(cluster, storage, document):
    cluster.create(node("n"))
    meta = {**document["metadata"], "namespace": "default", "uid": "x", "generation": 1}
    cluster.store.insert(storage, {**document, "metadata": meta})
    cluster.clock.advance(1.0)
    cluster.create(job("j", parallelism=2))
    cluster.clock.advance(1.0)
    assert len([each for each in names(cluster, PODS) if each.startswith("j-")]) == 2


@pytest.mark.parametrize("made", [CLASS, {**pod("p"), "spec": {"containers": {}}}])
def test_a_field_of_another_type_is_refused(cluster, made):
    with pytest.raises(RequestError) as refused:
        cluster.create(made)
    assert refused.value.code == 400
