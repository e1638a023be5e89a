"""Which devices may a claim get? Random slices and claims, asked of kube-scheduler and of ours.

Each question is a claim and a pod that is pinned to one node, so that the verdict is about the
devices that this node reaches. Both leave again before the next is asked. Ours is asked of the same
documents, read from the API. Two things are left out, as kube-scheduler 1.37 decides them otherwise
than 1.36: distinct attributes (1.36 does not compare the devices of one request with each other),
and requests for all devices if these are shared (1.36 leaves out those without enough capacity).
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from tests.cluster.fake_kubelet import FakeNode
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import View, scheduled_condition
from tests.support.records import from_json
from tests.support.scenario import QUEUE, placed, queue
from tests.support.scenario import cluster as planned

NODES, STANDING, QUESTIONS, SEED = 3, 5, 40, 44
API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NIC = "nic.example.com"
ZONE = "zone"
ON_PURPOSE = ("cannot add device", "currently being updated", "CEL runtime error")
"""Errors of kube-scheduler that end its search, where ours goes on with other devices."""
TAINTS: tuple[Document, ...] = (
    {"key": "sick", "value": "hot", "effect": "NoSchedule"},
    {"key": "gone", "effect": "NoExecute"},
    {"key": "odd", "effect": "None"},
)


def documents(chance: random.Random, names: list[str]) -> Iterator[Document]:
    """Slices of all nodes, of a zone, and of one node each; classes."""
    for name in names:
        yield from pool(chance, name, {"nodeName": name})
    yield from pool(chance, "network", {"allNodes": True})
    for each in pool(chance, "n0", {"nodeName": "n0"}):
        each["metadata"]["name"] += "-old"
        each["spec"]["pool"]["generation"] = 0
        each["spec"]["pool"]["resourceSliceCount"] = 4
        yield each
    yield from pool(chance, "mixed", {"perDeviceNodeSelection": True}, names)
    broken = {"nodeName": chance.choice(names)}
    yield from pool(chance, "broken", broken, missing=chance.random() < 0.5)
    for name in names:
        yield from pool(chance, f"nic-{name}", {"nodeName": name}, driver=NIC)
    term = {"key": ZONE, "operator": "In", "values": ["x"]}
    yield from pool(
        chance, "zone-x", {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    )
    for name, expressions in CLASS_EXPRESSIONS.items():
        yield document(
            "DeviceClass", name, {"selectors": [{"cel": {"expression": e}} for e in expressions]}
        )


CLASS_EXPRESSIONS = {
    "any": [f'device.driver == "{DRIVER}"'],
    "big": [
        f'device.driver == "{DRIVER}"',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    ],
    "model-a": [f'device.driver == "{DRIVER}"', f'device.attributes["{DRIVER}"].model == "a"'],
    "every": [],
    "nic": [f'device.driver == "{NIC}"'],
}


def pool(
    chance: random.Random,
    name: str,
    where: Document,
    names: list[str] | None = None,
    *,
    missing: bool = False,
    driver: str = DRIVER,
) -> Iterator[Document]:
    slices = chance.choice((1, 1, 2))
    partitions = chance.random() < 0.4
    sets = f"{name}-counters"
    if partitions:
        counters = {"memory": {"value": chance.choice(("40Gi", "80Gi"))}, "cores": {"value": "4"}}
        shared = {"sharedCounters": [{"name": sets, "counters": counters}]}
        yield slice_of(name, slices + 1 + missing, slices, where, shared, driver)
    for index in range(slices):
        devices = [
            device(chance, f"d{index}-{i}", sets if partitions else "")
            | (reach(chance, names) if names else {})
            for i in range(chance.choice((1, 2, 3)))
        ]
        count = slices + partitions + missing
        yield slice_of(name, count, index, where, {"devices": devices}, driver)


def reach(chance: random.Random, names: list[str]) -> Document:
    term = {"key": ZONE, "operator": "NotIn", "values": ["x"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return chance.choice(
        ({"nodeName": chance.choice(names)}, {"allNodes": True}, {"nodeSelector": selector})
    )


def slice_of(
    name: str, count: int, index: int, where: Document, content: Document, driver: str
) -> Document:
    about = {"name": name, "generation": 1, "resourceSliceCount": count}
    return document(
        "ResourceSlice", f"{name}-{index}", {"driver": driver, "pool": about, **where, **content}
    )


def device(chance: random.Random, name: str, sets: str) -> Document:
    found: Document = {
        "name": name,
        "attributes": {
            "model": {"string": chance.choice("ab")},
            "index": {"int": chance.randrange(3)},
            "numa": {"int": chance.randrange(2)},
            **({"ready": {"bool": chance.random() < 0.7}} if chance.random() < 0.9 else {}),
        },
        "capacity": {"memory": {"value": chance.choice(("20Gi", "40Gi", "80Gi"))}},
    }
    if chance.random() < 0.5:
        found["attributes"]["version"] = {"version": chance.choice(("1.2.3", "2.0.0"))}
    if chance.random() < 0.2:
        found["taints"] = chance.sample(TAINTS, chance.choice((1, 1, 2)))
    if sets:
        amounts = {"memory": {"value": chance.choice(("10Gi", "20Gi", "40Gi"))}}
        if chance.random() < 0.5:
            amounts["cores"] = {"value": chance.choice(("1", "2", "3"))}
        found["consumesCounters"] = [{"counterSet": sets, "counters": amounts}]
    elif chance.random() < 0.4:
        found["allowMultipleAllocations"] = True
        policy = chance.choice(POLICIES)
        found["capacity"]["memory"] |= {"requestPolicy": policy} if policy else {}
    return found


POLICIES: tuple[Document, ...] = (
    {},
    {"default": "5Gi", "validRange": {"min": "5Gi", "step": "5Gi"}},
    {"default": "10Gi", "validRange": {"min": "10Gi", "max": "20Gi"}},
    {"default": "10Gi", "validValues": ["10Gi", "20Gi"]},
)


SELECTORS = (
    f'device.driver != "{DRIVER}"',
    f'device.attributes["{DRIVER}"].index == 0',
    f'device.attributes["{DRIVER}"].index > 0',
    f'has(device.attributes["{DRIVER}"].ready) && device.attributes["{DRIVER}"].ready',
    f'device.attributes["{DRIVER}"].model in ["a", "c"]',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("20Gi"))',
    f'"version" in device.attributes["{DRIVER}"] && '
    f'device.attributes["{DRIVER}"].version.isGreaterThan(semver("1.5.0"))',
    "device.allowMultipleAllocations == true",
)
WHOLE = "!device.allowMultipleAllocations"
TOLERATIONS: tuple[Document, ...] = (
    {"key": "sick", "operator": "Exists"},
    {"key": "sick", "value": "hot", "effect": "NoSchedule"},
    {"key": "sick", "value": "cold"},
    {"operator": "Exists"},
    {"key": "gone", "operator": "Exists", "effect": "NoExecute"},
)


def exact(chance: random.Random) -> Document:
    found: Document = {"deviceClassName": chance.choice((*CLASS_EXPRESSIONS, "any", "any"))}
    if chance.random() < 0.2:
        found["allocationMode"] = "All"
    elif chance.random() < 0.5:
        found |= {"allocationMode": "ExactCount", "count": chance.choice((1, 2, 3))}
    if chance.random() < 0.3:
        is_other = found["deviceClassName"] in ("every", "nic")
        guard = f'device.driver == "{DRIVER}" && ' if is_other else ""
        found["selectors"] = [{"cel": {"expression": f"{guard}({chance.choice(SELECTORS)})"}}]
    if found.get("allocationMode") == "All":
        found.setdefault("selectors", []).append({"cel": {"expression": WHOLE}})
    if chance.random() < 0.3:
        found["tolerations"] = [chance.choice(TOLERATIONS)]
    if chance.random() < 0.1:
        found["adminAccess"] = True
    if chance.random() < 0.3:
        found["capacity"] = {"requests": {"memory": chance.choice(("5Gi", "7Gi", "10Gi", "30Gi"))}}
    return found


def claim(chance: random.Random, name: str) -> Document:
    requests: list[Document] = []
    for index in range(chance.choice((1, 1, 2, 3))):
        if chance.random() < 0.25:
            listed = [exact(chance) | {"name": f"s{i}"} for i in range(chance.choice((1, 2, 3)))]
            for each in listed:
                each.pop("adminAccess", None)
            requests.append({"name": f"r{index}", "firstAvailable": listed})
        else:
            requests.append({"name": f"r{index}", "exactly": exact(chance)})
    devices: Document = {"requests": requests}
    if chance.random() < 0.4:
        attribute = chance.choice(("numa", "model", "index", "ready"))
        constraint: Document = {"matchAttribute": f"{DRIVER}/{attribute}"}
        if chance.random() < 0.4:
            constraint["requests"] = [chance.choice(requests)["name"]]
        devices["constraints"] = [constraint]
    return document("ResourceClaim", name, {"devices": devices})


def document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod(name: str, node: str, claims: list[str]) -> Document:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    named = [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(claims)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "resourceClaims": named,
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"claims": [{"name": each["name"]} for each in named]},
                }
            ],
        },
    }


async def ask_kube_scheduler(
    cluster: Cluster, view: View, claims: list[Document], asked: Document, *, keep: bool = False
) -> tuple[bool, str]:
    """Whether the pod found its node, and else why not; it is gone afterwards, with its claims."""
    await cluster.submit(*claims, asked)
    path = f"{view.path('pods')}/{asked['metadata']['name']}"

    async def verdict() -> tuple[bool, str] | None:
        try:
            found = await cluster.api.get(path)
        except ApiError as error:
            if error.code == 404:  # the device taint eviction controller ends what was bound
                return True, "evicted"
            raise
        said = scheduled_condition(found)
        bound, refused = bool(found["spec"].get("nodeName")), said.get("status") == "False"
        return (bound, str(said.get("message"))) if bound or refused else None

    answer = await eventually(verdict, what=f"a verdict on {asked['metadata']['name']}")
    if keep and answer[0]:
        return answer
    with contextlib.suppress(ApiError):  # device taints may have ended it
        await cluster.api.delete(path, {"gracePeriodSeconds": 0})
    for each in claims:
        await cluster.api.delete(f"{CLAIMS}/{each['metadata']['name']}")
    names = {each["metadata"]["name"] for each in claims}

    async def gone() -> bool:
        left = {each["metadata"]["name"] for each in await cluster.api.items(CLAIMS)}
        return not names & left

    await eventually(gone, what="claims that are gone")
    return answer


def ask_ours(standing: list[Any], claims: list[Document], asked: Document) -> tuple[bool, str]:
    """Whether our scheduler places the pod, and else why not."""
    meta = asked["metadata"] | {"namespace": "default", "uid": "asked"}
    meta["annotations"] = {QUEUE: "team"}
    spec = asked["spec"] | {"schedulerName": "kai-scheduler", "priority": 0}
    names = [each["metadata"]["name"] for each in claims]
    metas = [{"name": each, "namespace": "default", "uid": f"uid-{each}"} for each in names]
    made = [
        from_json(ResourceClaim, each | {"metadata": new})
        for each, new in zip(claims, metas, strict=True)
    ]
    waiting = from_json(Pod, asked | {"metadata": meta, "spec": spec})
    plan = planned(*standing, *made, queue("team", 1000), waiting).plan()
    return bool(placed(plan)), "".join(each.message for each in plan.unplaced)


def questions(
    chance: random.Random, names: list[str], allocated: list[str]
) -> Iterator[tuple[list[Document], Document]]:
    """Claims and the pod that uses them, on every node; some pods join a claim that stands."""
    for number in range(QUESTIONS):
        name = f"asked-{number}"
        claims = [claim(chance, f"{name}-{i}") for i in range(chance.choice((1, 1, 2)))]
        joined = [chance.choice(allocated)] if allocated and chance.random() < 0.2 else []
        for node in names:
            renamed = [
                each | {"metadata": {"name": f"{each['metadata']['name']}-{node}"}}
                for each in claims
            ]
            used = [each["metadata"]["name"] for each in renamed] + joined
            yield renamed, pod(f"{name}-{node}", node, used)


@pytest.mark.usefixtures("kube_scheduler")
async def test_both_schedulers_find_devices_for_the_same_claims(real: Cluster):
    chance, view = random.Random(SEED), View(real.api)
    names = [f"n{i}" for i in range(NODES)]
    made = [FakeNode(name=name, labels={ZONE: chance.choice("xxy")}) for name in names]
    async with real.run_nodes(made):
        await real.submit(*documents(chance, names))
        marked = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await real.api.patch("/api/v1/namespaces/default", marked)
        for number in range(STANDING):
            claims = [claim(chance, f"standing-{number}")]
            asked = pod(f"standing-{number}", chance.choice(names), [f"standing-{number}"])
            await ask_kube_scheduler(real, view, claims, asked, keep=True)

        async def settled() -> bool:
            return all(each["status"]["phase"] == "Running" for each in await view.pods())

        await eventually(settled, what="running pods")
        standing = [
            from_json(kind, each)
            for kind, path in (
                (Node, "/api/v1/nodes"),
                (ResourceSlice, SLICES),
                (DeviceClass, CLASSES),
                (ResourceClaim, CLAIMS),
                (Pod, "/api/v1/namespaces/default/pods"),
            )
            for each in await real.api.items(path)
        ]
        allocated = sorted(
            each["metadata"]["name"]
            for each in await real.api.items(CLAIMS)
            if each.get("status", {}).get("allocation")
        )
        differ, refusals, asked_pods = [], [], 0
        for claims, asked in questions(chance, names, allocated):
            theirs, why = await ask_kube_scheduler(real, view, claims, asked)
            ours, our_why = ask_ours(standing, claims, asked)
            asked_pods += 1
            refusals += [] if theirs else [why]
            if ours != theirs and not any(each in why for each in ON_PURPOSE):
                specs = [each["spec"] for each in claims]
                differ.append((asked["metadata"]["name"], theirs, why, our_why, specs))
    assert not differ, f"{len(differ)} of {asked_pods}: {differ[0]}"
    assert 0.1 < len(refusals) / asked_pods < 0.9, f"{len(refusals)} of {asked_pods}: too one-sided"
