"""What a client may rely on, asked the same way of every kind of cluster.

The embedded cluster must not drift from a real API server: what passes here on one must pass on
the other.
"""

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.api import JSON_PATCH, STRATEGIC_MERGE_PATCH, Api, ApiError
from tests.cluster.clusters import Cluster
from tests.cluster.eventually import eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NUMBERS = itertools.count()

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A namespace of one test's own and the paths in it."""

    cluster: Cluster
    namespace: str

    @property
    def api(self) -> Api:
        return self.cluster.api

    def path(self, plural: str, group_version: str = "") -> str:
        root = f"/apis/{group_version}" if group_version else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}"

    @property
    def pods(self) -> str:
        return self.path("pods")

    @property
    def maps(self) -> str:
        return self.path("configmaps")

    @property
    def group(self) -> str:
        return f"{self.namespace}.example.com"

    @property
    def widgets(self) -> str:
        return f"/apis/{self.group}/v1/widgets"

    @property
    def claims(self) -> str:
        return self.path("resourceclaims", "resource.k8s.io/v1")

    @property
    def budgets(self) -> str:
        return self.path("poddisruptionbudgets", "policy/v1")

    @property
    def jobs(self) -> str:
        return self.path("jobs", "batch/v1")


@pytest.fixture
async def place(cluster: Cluster) -> Place:
    namespace = f"conformance-{next(NUMBERS)}"
    await cluster.create_namespace(namespace)
    return Place(cluster, namespace)


def pod(name: str, **spec: Any) -> Json:
    meta: Json = {"name": name}
    for field in ("labels", "finalizers", "ownerReferences"):
        if field in spec:
            meta[field] = spec.pop(field)
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": containers, **spec},
    }


def config_map(name: str, **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **meta},
        "data": {"k": "v"},
    }


def claim(name: str, **meta: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **meta},
        "spec": {"devices": {"requests": [request]}},
    }


def allocation(device: str) -> Json:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}
    return {"devices": {"results": [result]}}


async def bind(place: Place, name: str, node: str, **meta: Any) -> Json:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **meta},
        "target": {"kind": "Node", "name": node},
    }
    return await place.api.post(f"{place.pods}/{name}/binding", body)


def widget_definition(group: str) -> Json:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.limit) || self.limit >= self.size", "message": "limit below size"}
        ],
    }
    status = {"type": "object", "properties": {"used": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version],
        },
    }


def widget(place: Place, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"{place.group}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


async def serve_widgets(place: Place) -> None:
    await place.api.post(DEFINITIONS, widget_definition(place.group))

    async def established() -> bool:
        try:
            return bool(await place.api.get(place.widgets))
        except ApiError:
            return False

    await eventually(established, what="widgets")


async def refusal(request: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value


async def events(place: Place, path: str, count: int, **parameters: str) -> list[Json]:
    """Return the first `count` events of a watch."""
    found: list[Json] = []
    async for line in place.api.watch(path, timeoutSeconds="10", **parameters):
        found.append(json.loads(line))
        if len(found) == count:
            break
    return found


def told(found: list[Json]) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"]["name"]) for each in found]


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
    assert (await refusal(api.get("/apis/nobody.example.com/v1/things"))).code == 404
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
    await api.post(place.pods, pod("gated", schedulingGates=[{"name": "example.com/g"}]))
    assert (await refusal(bind(place, "gated", "n"))).code == 409


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
    await api.delete(f"{place.pods}/a", gracePeriodSeconds="0")
    assert (await refusal(api.get(f"{place.pods}/a"))).code == 404
    await api.post(place.maps, config_map("held", finalizers=["example.com/hold"]))
    await api.delete(f"{place.maps}/held")
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert (await refusal(api.patch(f"{place.maps}/held", more))).code == 422
    await api.patch(f"{place.maps}/held", {"metadata": {"finalizers": None}})
    assert (await refusal(api.get(f"{place.maps}/held"))).code == 404


async def test_a_list_continues_on_the_state_of_its_first_page(place: Place):
    api = place.api
    for name in "abcde":
        await api.post(place.maps, config_map(name, labels={"page": "x"}))
    first = await api.get(place.maps, limit="2", labelSelector="page=x")
    await api.delete(f"{place.maps}/d")
    token = first["metadata"]["continue"]
    second = await api.get(
        place.maps, **{"limit": "2", "labelSelector": "page=x", "continue": token}
    )
    token = second["metadata"]["continue"]
    third = await api.get(
        place.maps, **{"limit": "2", "labelSelector": "page=x", "continue": token}
    )
    pages = [
        [each["metadata"]["name"] for each in page["items"]] for page in (first, second, third)
    ]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert "continue" not in third["metadata"]
    revisions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(revisions) == 1


async def test_selectors(place: Place):
    api = place.api
    for name in ("a", "b", "c"):
        await api.post(place.pods, pod(name, labels={"tier": name}))
    await bind(place, "a", "n")

    async def names(**parameters: str) -> list[str]:
        return [each["metadata"]["name"] for each in await api.items(place.pods, **parameters)]

    assert await names(labelSelector="tier in (a,b)") == ["a", "b"]
    assert await names(labelSelector="tier,tier!=a") == ["b", "c"]
    assert await names(fieldSelector="spec.nodeName=n") == ["a"]
    assert await names(fieldSelector="spec.nodeName=,metadata.name!=b") == ["c"]
    assert await names(fieldSelector="status.phase=Pending,spec.schedulerName=other") == []
    assert (await refusal(api.get(place.pods, fieldSelector="spec.colour=red"))).code == 400
    assert (await refusal(api.get(place.pods, labelSelector="a=b=c"))).code == 400


async def test_a_watch_continues_a_list(place: Place):
    api = place.api
    await api.post(place.maps, config_map("a"))
    revision = (await api.get(place.maps))["metadata"]["resourceVersion"]
    await api.post(place.maps, config_map("b"))
    await api.patch(f"{place.maps}/a", {"data": {"k": "2"}})
    await api.delete(f"{place.maps}/b")
    found = await events(place, place.maps, 3, resourceVersion=revision)
    assert told(found) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    revisions = [int(each["object"]["metadata"]["resourceVersion"]) for each in found]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > int(revision)


async def test_a_watch_can_begin_with_a_list(place: Place):
    api = place.api
    for name in ("a", "b"):
        await api.post(place.pods, pod(name))
    found = await events(
        place,
        place.pods,
        3,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert sorted(told(found[:2])) == [("ADDED", "a"), ("ADDED", "b")]
    assert found[2]["type"] == "BOOKMARK"
    meta = found[2]["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(meta["resourceVersion"]) >= int(found[1]["object"]["metadata"]["resourceVersion"])
    error = await refusal(events(place, place.pods, 1, sendInitialEvents="true"))
    assert error.code == 422


async def test_leaving_a_selection_is_a_deletion(place: Place):
    api = place.api
    revision = (await api.get(place.pods))["metadata"]["resourceVersion"]
    await api.post(place.pods, pod("a"))
    await bind(place, "a", "n")
    bound = await api.get(f"{place.pods}/a")
    found = await events(
        place, place.pods, 2, resourceVersion=revision, fieldSelector="spec.nodeName="
    )
    assert told(found) == [("ADDED", "a"), ("DELETED", "a")]
    assert found[1]["object"]["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    found = await events(
        place, place.pods, 1, resourceVersion=revision, fieldSelector="spec.nodeName=n"
    )
    assert told(found) == [("ADDED", "a")]


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


async def test_claims_keep_their_spec_and_their_allocation(place: Place):
    api = place.api
    created = await api.post(place.claims, claim("c", finalizers=["example.com/hold"]))
    exactly = created["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    changed = {**created, "spec": {"devices": {"requests": []}}}
    assert (await refusal(api.put(f"{place.claims}/c", changed))).code == 422

    async def status(**fields: Any) -> Json:
        return await api.patch(f"{place.claims}/c/status", {"status": fields})

    user = await api.post(place.pods, pod("p"))
    consumer = {"resource": "pods", "name": "p", "uid": user["metadata"]["uid"]}
    error = await refusal(status(reservedFor=[consumer]))
    assert "status.reservedFor: Forbidden" in str(error)
    other = allocation("d")
    other["devices"]["results"][0]["request"] = "other"
    assert (await refusal(status(allocation=other))).code == 422
    await status(allocation=allocation("gpu-0"), reservedFor=[consumer])
    error = await refusal(status(allocation=allocation("gpu-1"), reservedFor=[consumer]))
    assert error.code == 422
    assert (await refusal(status(allocation=None))).code == 422


async def test_one_consumer_leaves_a_claim_by_its_uid(place: Place):
    api = place.api
    pods = [await api.post(place.pods, pod(name)) for name in ("a", "b")]
    consumers = [
        {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in pods
    ]
    created = await api.post(place.claims, claim("c"))
    status = {"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers}}
    await api.patch(f"{place.claims}/c/status", status)
    body = {
        "metadata": {"uid": created["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": consumers[0]["uid"]}]},
    }
    shown = await api.patch(f"{place.claims}/c/status", body, content_type=STRATEGIC_MERGE_PATCH)
    assert [each["name"] for each in shown["status"]["reservedFor"]] == ["b"]
    body["metadata"]["uid"] = "other"
    error = await refusal(
        api.patch(f"{place.claims}/c/status", body, content_type=STRATEGIC_MERGE_PATCH)
    )
    assert error.code == 422


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"name": "g", "exactly": {"count": 1}}, "exactly.deviceClassName: Required value"),
        (
            {"name": "g", "exactly": {"deviceClassName": "x", "allocationMode": "Some"}},
            "exactly.allocationMode",
        ),
        (
            {"name": "g", "exactly": {"deviceClassName": "x", "allocationMode": "All", "count": 2}},
            "exactly.count: Invalid value",
        ),
        ({"name": "g"}, "spec.devices.requests[0]"),
    ],
)
async def test_impossible_claims_are_refused(place: Place, request_: Json, field: str):
    given = claim("c")
    given["spec"]["devices"]["requests"] = [request_]
    error = await refusal(place.api.post(place.claims, given))
    assert error.code == 422
    assert field in str(error)


async def test_custom_resources_are_pruned_defaulted_and_checked(place: Place):
    await serve_widgets(place)
    api = place.api
    created = await api.post(
        place.widgets, {**widget(place, "a", size=1, extra=1), "status": {"used": 1}}
    )
    assert created["spec"] == {"size": 1, "colour": "red"}
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    for spec, field in (
        ({}, "spec.size: Required value"),
        ({"size": "1"}, "spec.size: Invalid value"),
        ({"size": -1}, "spec.size: Invalid value"),
        ({"size": 1, "colour": "green"}, "spec.colour: Unsupported value"),
        ({"size": 2, "limit": 1}, "limit below size"),
    ):
        error = await refusal(api.post(place.widgets, widget(place, "b", **spec)))
        assert error.code == 422
        assert field in str(error)
    assert (await refusal(api.put(f"{place.widgets}/a", widget(place, "a", size=2)))).code == 422
    strict = api.request(
        "POST",
        place.widgets,
        widget(place, "c", size=1, extra=1),
        parameters={"fieldValidation": "Strict"},
    )
    error = await refusal(strict)
    assert error.code == 400
    assert 'unknown field "spec.extra"' in str(error)
    body = {"status": {"used": 3}, "spec": {"size": 9}}
    shown = await api.patch(f"{place.widgets}/a/status", body)
    assert (shown["status"], shown["spec"]["size"]) == ({"used": 3}, 1)
    assert shown["metadata"]["generation"] == 1
    shown = await api.patch(f"{place.widgets}/a", {"spec": {"size": 2}})
    assert (shown["metadata"]["generation"], shown["status"]) == (2, {"used": 3})
    error = await refusal(
        api.patch(f"{place.widgets}/a", {"spec": {}}, content_type=STRATEGIC_MERGE_PATCH)
    )
    assert error.code == 415


async def test_tables_and_metadata_only(place: Place):
    await serve_widgets(place)
    api = place.api
    await api.post(place.widgets, widget(place, "a", size=7))
    table = json.loads(await api.request("GET", place.widgets, accept=TABLE))
    assert table["kind"] == "Table"
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["a", 7]
    assert table["rows"][0]["object"]["metadata"]["name"] == "a"
    await api.post(place.pods, pod("p"))
    table = json.loads(await api.request("GET", place.pods, accept=TABLE))
    columns = [each["name"] for each in table["columnDefinitions"] if each["priority"] == 0]
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age"]
    cells = dict(
        zip(
            (each["name"] for each in table["columnDefinitions"]),
            table["rows"][0]["cells"],
            strict=True,
        )
    )
    assert (cells["Name"], str(cells["Ready"]), cells["Status"]) == ("p", "0/1", "Pending")
    partial = json.loads(await api.request("GET", place.pods, accept=METADATA))
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "spec" not in partial["items"][0]
    assert partial["items"][0]["metadata"]["name"] == "p"


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
    for name in ("a", "b"):
        await api.delete(f"{place.pods}/{name}", gracePeriodSeconds="0")


async def test_dependents_go_with_their_owner(place: Place):
    api = place.api
    owner = await api.post(place.maps, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    await api.post(place.maps, config_map("child", ownerReferences=[reference]))
    await api.delete(f"{place.maps}/owner")

    async def gone() -> bool:
        names = [each["metadata"]["name"] for each in await api.items(place.maps)]
        return "child" not in names

    await eventually(gone, within=30, what="no dependents")


async def test_a_job_gets_pods_and_they_get_claims(place: Place):
    api = place.api
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim("c")["spec"]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    await api.create({**kind, **template}, namespace=place.namespace)
    pod_spec = {
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "busybox:1"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    spec = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {"spec": pod_spec},
    }
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    job = await api.post(place.jobs, {**kind, "metadata": {"name": "j"}, "spec": spec})

    async def claimed() -> list[Json]:
        pods = await api.items(place.pods)
        return (
            pods
            if len(pods) == 2 and all(p["status"].get("resourceClaimStatuses") for p in pods)
            else []
        )

    pods = await eventually(claimed, what="two pods with claims")
    index = "batch.kubernetes.io/job-completion-index"
    assert sorted(each["metadata"]["annotations"][index] for each in pods) == ["0", "1"]
    for each in pods:
        assert each["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert each["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
        name = each["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        made = await api.get(f"{place.claims}/{name}")
        assert made["metadata"]["ownerReferences"][0]["uid"] == each["metadata"]["uid"]
        assert made["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    await api.delete(f"{place.jobs}/j", {"propagationPolicy": "Background"})

    async def empty() -> bool:
        return not await api.items(place.pods) and not await api.items(place.claims)

    await eventually(empty, within=30, what="no pods and claims")


async def test_suspending_a_job_takes_its_pods_back_without_failing_them(place: Place):
    api = place.api
    pod_spec = {
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "busybox:1"}],
    }
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod_spec}}
    await api.post(place.jobs, {**kind, "metadata": {"name": "j"}, "spec": spec})

    async def pods(count: int) -> bool:
        return len(await api.items(place.pods)) == count

    for round_ in range(2):
        await eventually(lambda: pods(2), what=f"two pods in round {round_}")
        await api.patch(f"{place.jobs}/j", {"spec": {"suspend": True}})
        await eventually(lambda: pods(0), what="no pods")

        async def suspended() -> bool:
            status = (await api.get(f"{place.jobs}/j"))["status"]
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            return conditions.get("Suspended") == "True" and not status.get("active")

        await eventually(suspended, what="suspension")
        status = (await api.get(f"{place.jobs}/j"))["status"]
        assert not status.get("failed")
        await api.patch(f"{place.jobs}/j", {"spec": {"suspend": False}})
