"""Objects whose fields have another type than the API declares are refused by both clusters."""

import pytest

from tests.cluster.conformance.place import Place, pod, refusal

BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def priority_class(value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "typed"},
        "value": value,
    }


@pytest.mark.parametrize("value", [1.5, "7", True, [1], 2**31, -(2**31) - 1, 2**63])
async def test_the_value_of_a_priority_class_is_an_int32(place: Place, value):
    assert (await refusal(place.api.post(CLASSES, priority_class(value)))).code == 400


async def test_the_value_of_a_priority_class_is_bounded_for_users(place: Place):
    assert (await refusal(place.api.post(CLASSES, priority_class(2_000_000_000)))).code == 422


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"priority": "high"}},
        {"spec": {"containers": {}}},
        {"spec": {"nodeSelector": {"a": 1}}},
        {"spec": {"tolerations": "all"}},
        {"metadata": {"labels": {"a": 1}}},
        {"metadata": {"annotations": ["a"]}},
    ],
)
async def test_fields_of_pods_have_types(place: Place, change):
    made = pod("typed")
    for name, fields in change.items():
        made[name] = {**made[name], **fields}
    assert (await refusal(place.api.post(place.pods, made))).code == 400


async def test_a_budget_without_spec_has_an_empty_one(place: Place):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "empty"},
    }
    created = await place.api.post(BUDGETS.format(place.namespace), budget)
    assert created["spec"] == {}


async def test_lists_and_maps_may_be_null(place: Place):
    made = pod("null")
    made["spec"] |= {"nodeSelector": None, "tolerations": None, "initContainers": None}
    assert (await place.api.post(place.pods, made))["metadata"]["name"] == "null"
