"""What pods get that request devices by claim: alternatives, parts, shares, taints, safety."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.cluster.fake_kubelet import FakeNode
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim, claim_template, job, pod, pod_spec, queue
from tests.support.cluster.view import View, condition, devices_of

pytestmark = pytest.mark.usefixtures("scheduler")

DRIVER = "card.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def nodes(count: int = 1) -> list[FakeNode]:
    return [FakeNode(name=f"node-{i}") for i in range(count)]


def device_class(name: str = DRIVER, expression: str = "") -> Document:
    selector = {"cel": {"expression": expression or f"device.driver == '{DRIVER}'"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }


def pool(node: str, *parts: Document) -> list[Document]:
    """The slices of a node's pool; each part is their devices or counters."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{number}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(parts)},
                **part,
            },
        }
        for number, part in enumerate(parts)
    ]


def card(number: int, model: str = "plain", **more: Any) -> Document:
    attributes = {"model": {"string": model}, "index": {"int": number}}
    return {"name": f"card-{number}", "attributes": attributes} | more


def cards(count: int, **more: Any) -> Document:
    return {"devices": [card(i, **more) for i in range(count)]}


def wanted(name: str = "card", *, model: str = "", **exactly: Any) -> Document:
    """A request, or one alternative of a request, without what stands around it."""
    asked: Document = {"deviceClassName": DRIVER} | exactly
    if model:
        text = f"device.attributes['{DRIVER}'].model == '{model}'"
        asked["selectors"] = [{"cel": {"expression": text}}]
    return {"name": name} | asked


def exactly(**asked: Any) -> Document:
    request = wanted(**asked)
    return {"name": request.pop("name"), "exactly": request}


async def given(view: View) -> dict[str, list[str]]:
    """Devices by the pods that claims are reserved for."""
    return {
        user["name"]: sorted(device for _, _, device in devices_of(claim))
        for claim in await view.claims()
        for user in claim.get("status", {}).get("reservedFor") or ()
    }


async def running(view: View, prefix: str, count: int) -> None:
    async def started() -> bool:
        phases = [each["status"].get("phase") for each in await view.pods(prefix)]
        assert phases.count("Running") == count, f"{phases}: {await view.say(prefix)}"
        return True

    await eventually(started, within=30.0)


async def submit(cluster: Cluster, *documents: Document | Sequence[Document]) -> None:
    for each in (queue(), device_class(), *documents):
        await cluster.submit(*([each] if isinstance(each, dict) else each))


def claiming(name: str = "one-gpu") -> Document:
    return pod_spec(template=name)


async def test_the_second_choice_is_given_when_the_first_is_not_there(cluster: Cluster, view: View):
    choices = [wanted("fast", model="fast"), wanted("slow", model="slow", count=2)]
    template = claim_template("one-gpu", {"name": "card", "firstAvailable": choices})
    devices = [card(0, "fast"), card(1, "slow"), card(2, "slow")]
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", {"devices": devices}), template)
        await cluster.submit(pod("first", claiming()))
        await running(view, "first", 1)
        await cluster.submit(pod("second", claiming()))
        await running(view, "second", 1)
        assert await given(view) == {"first": ["card-0"], "second": ["card-1", "card-2"]}
        names = {
            result["request"]
            for each in await view.claims()
            for result in each["status"]["allocation"]["devices"]["results"]
        }
        assert names == {"card/fast", "card/slow"}


async def test_four_parts_of_a_card_go_to_four_pods_and_never_five(cluster: Cluster, view: View):
    def draws(amount: int) -> Document:
        counters = {"slots": {"value": str(amount)}}
        return {"consumesCounters": [{"counterSet": "card", "counters": counters}]}

    parts = [card(i, "part", **draws(1)) for i in range(6)]
    counters = {"sharedCounters": [{"name": "card", "counters": {"slots": {"value": "4"}}}]}
    devices = {"devices": [card(9, "whole", **draws(4)), *parts]}
    template = claim_template("one-gpu", exactly(model="part"))
    whole = claim_template("whole", exactly(model="whole"))
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", counters, devices), template, whole)
        await cluster.submit(job("parts", 4, claiming()))
        await running(view, "parts", 4)
        await cluster.submit(pod("fifth", claiming()), pod("all", claiming("whole")))
        for name in ("fifth", "all"):
            message = await view.wait_pending(name, 1, reason="Unschedulable")
            assert "counters" in message, message
        held = await view.held()
        assert len(held) == len(set(held)) == 4


async def test_a_card_is_shared_until_its_memory_is_used_up(cluster: Cluster, view: View):
    memory = {"value": "80Gi", "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Gi"}}}
    shared = card(0, allowMultipleAllocations=True, capacity={"memory": memory})
    template = claim_template("one-gpu", exactly(capacity={"requests": {"memory": "10Gi"}}))
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", {"devices": [shared]}), template)
        await cluster.submit(job("shares", 8, claiming()))
        await running(view, "shares", 8)
        await cluster.submit(pod("ninth", claiming()))
        message = await view.wait_pending("ninth", 1, reason="Unschedulable")
        assert "insufficient allocatable devices" in message, message
        shares = [
            result["shareID"]
            for each in await view.claims()
            for result in (each.get("status", {}).get("allocation") or {"devices": {}})[
                "devices"
            ].get("results", ())
        ]
        assert len(shares) == len(set(shares)) == 8


async def test_a_tainted_card_is_not_given_and_its_pod_moves_on(cluster: Cluster, view: View):
    template = claim_template("one-gpu", exactly())
    async with cluster.run_nodes(nodes(2)):
        await submit(cluster, pool("node-0", cards(1)), pool("node-1", cards(1)), template)
        await cluster.submit(job("train", 1, claiming()))
        await running(view, "train", 1)
        [(first, at)] = (await view.bound("train")).items()
        taint = {"key": f"{DRIVER}/broken", "value": "yes", "effect": "NoExecute"}
        tainted = cards(1, taints=[taint])
        spec = (await cluster.api.get(f"{SLICES}/{at}-0"))["spec"]
        generation = {**spec["pool"], "generation": 2}
        await cluster.api.patch(
            f"{SLICES}/{at}-0", {"spec": {**spec, **tainted, "pool": generation}}
        )

        async def moved() -> bool:
            bound = await view.bound("train")
            assert bound, await view.say("train")
            assert first not in bound
            assert set(bound.values()) == {"node-0", "node-1"} - {at}
            return True

        await eventually(moved, within=40.0)


async def maintenance(cluster: Cluster, effect: str, **devices: str) -> Document:
    """A rule that taints devices of the driver."""
    return {
        "apiVersion": await served(cluster, "DeviceTaintRule"),
        "kind": "DeviceTaintRule",
        "metadata": {"name": "maintenance"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, **devices},
            "taint": {"key": "example.com/maintenance", "effect": effect},
        },
    }


async def test_a_taint_rule_moves_a_pod_to_another_card(cluster: Cluster, view: View):
    async with cluster.run_nodes(nodes(2)), contextlib.AsyncExitStack() as stack:
        await submit(cluster, pool("node-0", cards(1)), pool("node-1", cards(1)))
        await cluster.submit(claim_template("one-gpu", exactly()), job("train", 1, claiming()))
        await running(view, "train", 1)
        [(first, at)] = (await view.bound("train")).items()
        rule = await maintenance(cluster, "NoExecute", pool=at)
        await stack.enter_async_context(made(cluster, rule))

        async def moved() -> bool:
            bound = await view.bound("train")
            assert bound, await view.say("train")
            assert first not in bound
            assert set(bound.values()) == {"node-0", "node-1"} - {at}
            return True

        await eventually(moved, within=40.0)


async def test_a_taint_rule_keeps_a_card_from_new_pods(cluster: Cluster, view: View):
    rule = await maintenance(cluster, "NoSchedule", device="card-0")
    tolerations = [{"key": "example.com/maintenance", "operator": "Exists"}]
    templates = [
        claim_template("one-gpu", exactly()),
        claim_template("tolerant", exactly(tolerations=tolerations)),
    ]
    async with cluster.run_nodes(nodes()), contextlib.AsyncExitStack() as stack:
        await submit(cluster, pool("node-0", cards(2)), templates)
        await stack.enter_async_context(made(cluster, rule))
        await cluster.submit(pod("first", claiming()))
        await running(view, "first", 1)
        await cluster.submit(pod("second", claiming()))
        message = await view.wait_pending("second", 1, reason="Unschedulable")
        assert "example.com/maintenance" in message, message
        await cluster.submit(pod("tolerant", claiming("tolerant")))
        await running(view, "tolerant", 1)
        assert await given(view) == {"first": ["card-1"], "tolerant": ["card-0"]}


@contextlib.asynccontextmanager
async def made(cluster: Cluster, rule: Document) -> AsyncIterator[None]:
    """A DeviceTaintRule for the duration of a block: it would taint the devices of later tests."""
    await cluster.submit(rule)
    try:
        yield
    finally:
        name = rule["metadata"]["name"]
        await cluster.api.delete(f"/apis/{rule['apiVersion']}/devicetaintrules/{name}")


async def served(cluster: Cluster, kind: str) -> str:
    """The API version that serves a kind of resource.k8s.io, the newest first."""
    for version in ("v1", "v1beta2", "v1alpha3"):
        with contextlib.suppress(ApiError):
            if kind in await cluster.api.types(f"resource.k8s.io/{version}"):
                return f"resource.k8s.io/{version}"
    pytest.fail(f"{kind} is not served")


async def test_admin_access_sees_a_card_in_use_where_its_namespace_may(
    cluster: Cluster, view: View
):
    admin = claim("monitor", exactly(adminAccess=True))
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", cards(1)), claim_template("one-gpu", exactly()))
        await cluster.submit(pod("user", claiming()))
        await running(view, "user", 1)
        with pytest.raises(ApiError, match=r"admin-access"):
            await cluster.submit(admin)
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await cluster.api.patch("/api/v1/namespaces/default", label)
        await cluster.submit(admin, pod("monitor", pod_spec(claim="monitor")))
        await running(view, "monitor", 1)
        assert await given(view) == {"user": ["card-0"], "monitor": ["card-0"]}
        await cluster.api.patch(
            "/api/v1/namespaces/default",
            {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}},
        )


async def test_three_pods_share_one_claim_on_one_node(cluster: Cluster, view: View):
    async with cluster.run_nodes(nodes(2)):
        await submit(
            cluster,
            pool("node-0", cards(1)),
            pool("node-1", cards(1)),
            claim("shared", exactly()),
            *(pod(f"sharer-{i}", pod_spec(claim="shared")) for i in range(3)),
        )
        await running(view, "sharer", 3)
        assert len(set((await view.bound("sharer")).values())) == 1
        assert len(await view.held()) == 1


async def test_claims_that_others_edit_meanwhile_are_allocated_once(cluster: Cluster, view: View):
    stop = asyncio.Event()

    async def scribble() -> None:
        count = 0
        while not stop.is_set():
            for each in await view.claims():
                count += 1
                path = f"{view.path('resourceclaims')}/{each['metadata']['name']}"
                with contextlib.suppress(ApiError):
                    note = {"metadata": {"annotations": {"example.com/note": str(count)}}}
                    await cluster.api.patch(path, note)
            await asyncio.sleep(0.005)

    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", cards(8)), claim_template("one-gpu", exactly()))
        writing = asyncio.create_task(scribble())
        try:
            await cluster.submit(job("train", 8, claiming()))
            await running(view, "train", 8)
        finally:
            stop.set()
            await writing
        held = await view.held()
        assert len(held) == len(set(held)) == 8


async def test_a_card_that_vanishes_in_use_is_not_given_again_when_it_is_back(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", cards(1)), claim_template("one-gpu", exactly()))
        await cluster.submit(pod("holder", claiming()))
        await running(view, "holder", 1)
        await cluster.api.delete(f"{SLICES}/node-0-0")
        await cluster.submit(pod("next", claiming()))
        await view.wait_pending("next", 1, reason="Unschedulable")
        await cluster.submit(*pool("node-0", cards(1)))
        message = await view.wait_pending("next", 1, reason="Unschedulable")

        async def told() -> bool:
            message = await view.wait_pending("next", 1, reason="Unschedulable")
            assert "insufficient allocatable devices" in message, message
            return True

        await eventually(told, what=message, within=20.0)
        assert await given(view) == {"holder": ["card-0"]}
        await cluster.api.delete(f"{view.path('pods')}/holder")
        await running(view, "next", 1)


async def test_a_pod_waits_until_the_driver_has_attached_its_card(cluster: Cluster, view: View):
    fabric = cards(1, bindsToNode=True, bindingConditions=["Attached"])
    fabric["devices"][0]["bindingFailureConditions"] = ["AttachFailed"]
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", fabric), claim_template("one-gpu", exactly()))
        await cluster.submit(pod("train", claiming()))

        async def allocated() -> Document:
            [found] = [each for each in await view.claims() if devices_of(each)]
            return found

        found = await eventually(lambda: unless_missing(allocated), what="an allocation")
        assert found["status"]["allocation"]["allocationTimestamp"]
        assert await view.bound("train") == {}
        attached = {"type": "Attached", "status": "True", "reason": "Cabled", "message": ""}
        attached["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        [(driver, of_pool, name)] = devices_of(found)
        device = {"driver": driver, "pool": of_pool, "device": name, "conditions": [attached]}
        path = f"{view.path('resourceclaims')}/{found['metadata']['name']}/status"
        await cluster.api.patch(path, {"status": {"devices": [device]}})
        await running(view, "train", 1)
        assert condition(await cluster.api.get(f"{view.path('pods')}/train"), "PodScheduled")


@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_devices_take_no_cpus_where_the_server_keeps_no_mappings(
    cluster: Cluster, view: View
):
    """Its gate DRANodeAllocatableResources is off; tests/node has it on."""
    mapping = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1000"}}}
    template = claim_template("one-gpu", exactly())
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", cards(1, **mapping)), template)
        await cluster.submit(pod("p", claiming()))
        await running(view, "p", 1)
        [found] = await view.pods("p")
        assert "nodeAllocatableResourceClaimStatuses" not in found["status"]


async def unless_missing(read: Any) -> Document | None:
    with contextlib.suppress(ValueError):
        found: Document = await read()
        return found
    return None
