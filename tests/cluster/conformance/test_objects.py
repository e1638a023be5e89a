"""Names, revisions, status, deletion, patches: what holds for objects of any kind."""

import json

from kai_py.api.times import parse_time
from tests.cluster.conformance.place import Json, Place, bind, config_map, pod, refusal
from tests.support.cluster.api import JSON_PATCH, STRATEGIC_MERGE_PATCH

APPLY = "application/apply-patch+yaml"


async def test_writes_conflict_by_revision_and_uid(place: Place):
    api = place.api
    first = await api.post(place.maps, config_map("a"))
    second = await api.put(f"{place.maps}/a", {**first, "data": {"k": "1"}})
    assert (
        await refusal(api.put(f"{place.maps}/a", {**first, "data": {"k": "2"}}))
    ).reason == "Conflict"
    same = await api.put(f"{place.maps}/a", second)
    assert same["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    unconditional = await api.put(f"{place.maps}/a", config_map("a"))
    assert unconditional["data"] == {"k": "v"}
    stranger = {**unconditional, "metadata": {**unconditional["metadata"], "uid": "other"}}
    assert (await refusal(api.put(f"{place.maps}/a", stranger))).code == 409
    assert (await refusal(api.post(place.maps, config_map("a")))).reason == "AlreadyExists"
    assert (await refusal(api.put(f"{place.maps}/b", config_map("b")))).code == 404
    assert (await refusal(api.put(f"{place.maps}/a", config_map("b")))).code == 400


async def test_what_is_not_there_is_404_and_what_cannot_be_is_405(place: Place):
    api = place.api
    assert (await refusal(api.get(f"{place.maps}/a"))).reason == "NotFound"
    assert (await refusal(api.get("/apis/missing.example.com/v1/things"))).code == 404
    assert (await refusal(api.get(f"{place.pods}/a/binding"))).code in (404, 405)
    assert (
        await refusal(api.post("/api/v1/namespaces/nowhere/configmaps", config_map("a")))
    ).code == 404
    assert (await refusal(api.put(place.maps, config_map("a")))).code == 405
    assert (await refusal(api.post(f"{place.maps}/a", config_map("a")))).code == 405


async def test_names_are_generated_and_checked(place: Place):
    generated = config_map("")
    generated["metadata"] = {"generateName": "x-"}
    name = (await place.api.post(place.maps, generated))["metadata"]["name"]
    assert name.startswith("x-")
    assert len(name) == 7
    error = await refusal(place.api.post(place.maps, config_map("Not_A_Name")))
    assert (error.code, error.reason) == (422, "Invalid")
    assert (await refusal(place.api.post(place.maps, config_map("")))).code == 422


async def test_deleting_with_grace_finalizers_and_preconditions(place: Place):
    api = place.api
    await api.post(place.pods, pod("a"))
    await bind(place, "a", "no-such-node")
    wrong = {"preconditions": {"uid": "other"}}
    assert (await refusal(api.delete(f"{place.pods}/a", wrong))).code == 409
    await api.delete(f"{place.pods}/a")
    leaving = (await api.get(f"{place.pods}/a"))["metadata"]
    assert leaving["deletionTimestamp"]
    assert leaving["deletionGracePeriodSeconds"] == 30
    assert (await refusal(bind(place, "a", "n"))).code == 409
    shorter = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a"},
        "deleteOptions": {"gracePeriodSeconds": 20},
    }
    await api.post(f"{place.pods}/a/eviction", shorter)
    await api.delete(f"{place.pods}/a", gracePeriodSeconds="25")
    await api.delete(f"{place.pods}/a")
    evicted = (await api.get(f"{place.pods}/a"))["metadata"]
    assert evicted["deletionGracePeriodSeconds"] == 20
    ends, before = (parse_time(each["deletionTimestamp"]) for each in (evicted, leaving))
    assert (before - ends).total_seconds() == 10
    await api.delete(f"{place.pods}/a", gracePeriodSeconds="0")
    assert (await refusal(api.get(f"{place.pods}/a"))).code == 404
    await api.post(place.maps, config_map("held", finalizers=["example.com/hold"]))
    await api.delete(f"{place.maps}/held")
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert (await refusal(api.patch(f"{place.maps}/held", more))).code == 422
    await api.patch(f"{place.maps}/held", {"metadata": {"finalizers": None}})
    assert (await refusal(api.get(f"{place.maps}/held"))).code == 404


async def test_patches(place: Place):
    api = place.api
    await api.post(place.maps, config_map("a"))
    merged = await api.patch(f"{place.maps}/a", {"data": {"k": None, "l": "1"}})
    assert merged["data"] == {"l": "1"}
    operations = [
        {"op": "test", "path": "/data/l", "value": "1"},
        {"op": "remove", "path": "/data/l"},
    ]
    patched = await api.patch(f"{place.maps}/a", operations, content_type=JSON_PATCH)
    assert not patched.get("data")
    error = await refusal(api.patch(f"{place.maps}/a", operations, content_type=JSON_PATCH))
    assert error.code in (404, 422)
    stale = {
        "metadata": {"resourceVersion": merged["metadata"]["resourceVersion"]},
        "data": {"x": "1"},
    }
    assert (await refusal(api.patch(f"{place.maps}/a", stale))).code == 409
    body = {"metadata": {"finalizers": ["example.com/a"]}}
    await api.patch(f"{place.maps}/a", body, content_type=STRATEGIC_MERGE_PATCH)
    body = {"metadata": {"finalizers": ["example.com/b"]}}
    both = await api.patch(f"{place.maps}/a", body, content_type=STRATEGIC_MERGE_PATCH)
    assert sorted(both["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}
    none = await api.patch(f"{place.maps}/a", body, content_type=STRATEGIC_MERGE_PATCH)
    assert not none["metadata"].get("finalizers")


async def test_conditions_are_patched_by_type(place: Place):
    api = place.api
    await api.post(place.pods, pod("a"))

    def condition(kind: str, status: str) -> Json:
        return {"status": {"conditions": [{"type": kind, "status": status}]}}

    for kind, status in (
        ("example.com/A", "True"),
        ("example.com/B", "True"),
        ("example.com/A", "False"),
    ):
        body = condition(kind, status)
        shown = await api.patch(f"{place.pods}/a/status", body, content_type=STRATEGIC_MERGE_PATCH)
    assert [(each["type"], each["status"]) for each in shown["status"]["conditions"]] == [
        ("example.com/B", "True"),
        ("example.com/A", "False"),
    ]


async def test_applying(place: Place):
    api = place.api

    async def apply(manager: str, data: Json, **parameters: str) -> Json:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
        answer = await api.request(
            "PATCH",
            f"{place.maps}/a",
            body,
            content_type=APPLY,
            parameters={"fieldManager": manager, **parameters},
        )
        return json.loads(answer)

    assert (await apply("one", {"a": "1", "b": "1"}))["data"] == {"a": "1", "b": "1"}
    assert (await apply("one", {"a": "2"}))["data"] == {"a": "2"}
    assert (await apply("two", {"a": "2", "c": "3"}))["data"] == {"a": "2", "c": "3"}
    error = await refusal(apply("two", {"a": "9"}))
    assert error.code == 409
    assert (await apply("two", {"a": "9"}, force="true"))["data"] == {"a": "9"}


async def test_a_dry_run_stores_nothing(place: Place):
    answer = await place.api.request(
        "POST", place.maps, config_map("a"), parameters={"dryRun": "All"}
    )
    assert json.loads(answer)["metadata"]["uid"]
    assert (await refusal(place.api.get(f"{place.maps}/a"))).code == 404
