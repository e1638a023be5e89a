"""Pods: defaults, validity, binding, eviction."""

from typing import Any

import pytest

from tests.cluster.conformance.place import Json, Place, bind, pod, refusal
from tests.support.cluster.api import STRATEGIC_MERGE_PATCH
from tests.support.cluster.eventually import eventually

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ANY_OF_NONE = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


async def test_status_is_written_apart(place: Place):
    api = place.api
    created = await api.post(place.pods, {**pod("a"), "status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    body = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
    main = await api.patch(f"{place.pods}/a", body)
    assert (main["metadata"]["labels"], main["status"]["phase"]) == ({"x": "y"}, "Pending")
    body = {"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}}
    status = await api.patch(f"{place.pods}/a/status", body)
    assert status["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in status["spec"]


async def test_pods_get_defaults(place: Place):
    resources = {"limits": {"example.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    given = pod("a")
    given["spec"]["containers"][0]["resources"] = resources
    spec = (await place.api.post(place.pods, given))["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"example.com/gpu": "1", "cpu": "1"}
    shown = {
        key: spec[key] for key in ("restartPolicy", "schedulerName", "priority", "preemptionPolicy")
    }
    assert shown == {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy: Unsupported value"),
        ({"containers": [{"name": "A", "image": "x"}]}, "spec.containers[0].name: Invalid value"),
        (
            {"containers": [{"name": "a", "image": "x", "resources": {"claims": [{"name": "c"}]}}]},
            "spec.containers[0].resources.claims[0]",
        ),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims[0]"),
        (
            {"resourceClaims": [{"name": "a", "resourceClaimName": "c"}] * 2},
            "spec.resourceClaims[1].name: Duplicate value",
        ),
        ({"tolerations": [{"key": "a", "operator": "Is"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"value": "a"}]}, "spec.tolerations[0].operator: Invalid value"),
        ({"tolerations": [{"operator": "Exists", "effect": "No"}]}, "spec.tolerations[0].effect"),
        (
            {"tolerations": [{"operator": "Exists", "tolerationSeconds": 5}]},
            "spec.tolerations[0].effect: Invalid value",
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
            "nodeSelectorTerms: Required value",
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ANY_OF_NONE]}}}},
            "matchExpressions[0].values: Required value",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": {}}]}}},
            f"{REQUIRED}[0].topologyKey: Required value",
        ),
        ({"topologySpreadConstraints": [SPREAD | {"maxSkew": 0}]}, "[0].maxSkew: Invalid value"),
        ({"topologySpreadConstraints": [SPREAD, SPREAD]}, "[0].{topologyKey, whenUnsatisfiable}"),
        ({"schedulingGates": [{"name": "a.b/c"}] * 2}, "spec.schedulingGates[1]"),
        (
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "x",
                        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                    }
                ]
            },
            "spec.containers[0].resources.requests: Invalid value",
        ),
    ],
)
async def test_impossible_pods_are_refused(place: Place, spec: Json, field: str):
    error = await refusal(
        place.api.post(place.pods, {**pod("a"), "spec": {**pod("a")["spec"], **spec}})
    )
    assert error.code == 422
    assert field in str(error)


async def test_an_unknown_priority_class_is_forbidden(place: Place):
    error = await refusal(place.api.post(place.pods, pod("a", priorityClassName="missing")))
    assert error.code == 403


async def test_a_pod_spec_is_fixed(place: Place):
    await place.api.post(place.pods, pod("a"))
    for change in ({"nodeName": "n"}, {"nodeSelector": {"a": "b"}}, {"schedulerName": "x"}):
        error = await refusal(place.api.patch(f"{place.pods}/a", {"spec": change}))
        assert error.code == 422
    body = {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}
    patched = await place.api.patch(f"{place.pods}/a", body, content_type=STRATEGIC_MERGE_PATCH)
    assert {"key": "x", "operator": "Exists"} in patched["spec"]["tolerations"]


async def test_a_binding_for_an_older_version_of_its_pod_is_refused(place: Place):
    created = (await place.api.post(place.pods, pod("a")))["metadata"]
    body = {"metadata": {"uid": created["uid"], "annotations": {"example.com/mark": "1"}}}
    seen = (await place.api.patch(f"{place.pods}/a", body))["metadata"]
    sent = {"uid": seen["uid"], "resourceVersion": created["resourceVersion"]}
    late = await refusal(bind(place, "a", "n", **sent))
    assert (late.code, late.reason) == (409, "Conflict")
    await bind(place, "a", "n", uid=seen["uid"], resourceVersion=seen["resourceVersion"])
    assert (await place.api.get(f"{place.pods}/a"))["spec"]["nodeName"] == "n"


async def test_binding_happens_once(place: Place):
    api = place.api
    created = await api.post(place.pods, pod("a"))
    other = await refusal(bind(place, "a", "n", uid="other"))
    assert other.code == 409
    answer = await bind(place, "a", "n", uid=created["metadata"]["uid"])
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    bound = await api.get(f"{place.pods}/a")
    assert bound["spec"]["nodeName"] == "n"
    scheduled = [each for each in bound["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert [each["status"] for each in scheduled] == ["True"]
    assert (await refusal(bind(place, "a", "n"))).code == 409
    assert (await refusal(bind(place, "b", "n"))).code == 404
    stored = await api.post(place.pods, pod("gated", schedulingGates=[{"name": "example.com/g"}]))
    (condition,) = stored["status"]["conditions"]
    said = [condition[key] for key in ("type", "status", "reason", "message")]
    gated = "Scheduling is blocked due to non-empty scheduling gates"
    assert said == ["PodScheduled", "False", "SchedulingGated", gated]
    assert (await refusal(bind(place, "gated", "n"))).code == 409


async def test_a_budget_bounds_evictions(place: Place):
    api = place.api
    for name in ("a", "b"):
        await api.post(place.pods, pod(name, labels={"app": "web"}))
        await bind(place, name, "no-such-node")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch(
            f"{place.pods}/{name}/status", {"status": ready}, content_type=STRATEGIC_MERGE_PATCH
        )

    def eviction(name: str, **options: Any) -> Json:
        kind = {"apiVersion": "policy/v1", "kind": "Eviction"}
        return {**kind, "metadata": {"name": name, "namespace": place.namespace}, **options}

    stranger = {"deleteOptions": {"preconditions": {"uid": "other"}}}
    assert (
        await refusal(api.post(f"{place.pods}/a/eviction", eviction("a", **stranger)))
    ).code == 409
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    await api.post(place.budgets, {**kind, "metadata": {"name": "b"}, "spec": spec})

    async def allowed() -> bool:
        return (await api.get(f"{place.budgets}/b"))["status"].get("disruptionsAllowed") == 1

    await eventually(allowed, what="one disruption allowed")

    await api.post(f"{place.pods}/a/eviction", eviction("a"))
    evicted = await api.get(f"{place.pods}/a")
    assert evicted["metadata"]["deletionTimestamp"]
    reasons = {each["type"]: each.get("reason") for each in evicted["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    error = await refusal(api.post(f"{place.pods}/b/eviction", eviction("b")))
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert [cause["reason"] for cause in error.details["causes"]] == ["DisruptionBudget"]
    assert "retryAfterSeconds" not in error.details
    for name in ("a", "b"):
        await api.delete(f"{place.pods}/{name}", gracePeriodSeconds="0")
