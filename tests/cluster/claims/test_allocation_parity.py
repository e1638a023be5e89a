"""Which devices do claims get? Random questions, asked of kube-scheduler's allocator and of ours.

The allocator is compiled from the release that the control plane has; no API server takes part.
With first fit ours gives the same devices, or an error where that gives one. Left out is what
Kubernetes 1.37, which ours follows, decides otherwise: distinct attributes of several devices of
one request, requests for all devices if some are shared, counters of pools with equal names or
without devices for the node, fractions of bytes, configuration, and the words of errors.
"""

import json
import random
from typing import Any

import pytest

from kai_py.api.records.node import Node
from kai_py.api.records.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from kai_py.api.records.resource_versions import allocation_document
from kai_py.dra.allocator import Allocation, allocate
from kai_py.dra.device_state import DeviceState
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import Inventory
from tests.cluster.controlplane.oracles import allocation_program, ask
from tests.support.records import from_json

Document = dict[str, Any]
Answer = list[Document] | str | None
"""Allocations, None where the claims do not fit, or one of two texts."""

QUESTIONS = 10_000
FEATURES = Features.only(
    "admin_access",
    "consumable_capacity",
    "device_binding_and_status",
    "device_taints",
    "partitionable_devices",
    "prioritized_list",
)
NODE = {"metadata": {"name": "n", "labels": {"zone": "x", "slot": "5"}}}
ERROR, SKIPPED = "error", "not decided in time"
EXPRESSIONS = (
    'device.driver == "a.test"',
    "device.attributes[device.driver].ready",
    "device.attributes[device.driver].?ready.orValue(false)",
    'device.attributes["a.test"].?index.orValue(1) >= 1',
    'device.capacity[device.driver].memory.compareTo(quantity("2Gi")) >= 0',
    "device.allowMultipleAllocations",
)
RANGES: tuple[Document, ...] = (
    {"default": "1Gi", "validValues": ["1Gi", "2Gi"]},
    {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}},
    {"default": "0", "validRange": {"min": "0", "max": "2Gi"}},
)
SELECTORS: tuple[Document, ...] = (
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]},
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y", "x"]}]},
    {"matchExpressions": [{"key": "slot", "operator": "Gt", "values": ["4"]}]},
    {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
)


class Question:
    """A node, what is published, and claims; ``chance`` decides about all of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.shared, self.tainted, self.careful = self.one_in(2), self.one_in(2), self.one_in(2)
        self.faulty = self.one_in(5)
        self.counters = not self.faulty and self.one_in(2)
        self.slices: list[Document] = []
        for driver in "ab"[: self.chance.choice((1, 2))]:
            for number in range(self.chance.choice((1, 1, 2))):
                self.add_pool(f"{driver}.test", f"{driver}{number}")
        self.chance.shuffle(self.slices)

    def one_in(self, number: int) -> bool:
        return not self.chance.randrange(number)

    def document(self) -> Document:
        return {
            "node": NODE,
            "slices": self.slices,
            "classes": [
                {"metadata": {"name": name}, "spec": {"selectors": self.selectors(odds)}}
                for name, odds in (("any", 10), ("some", 2))
            ],
            "allocated": self.allocated(),
            "claims": [self.claim(number) for number in range(self.chance.choice((1, 1, 2)))],
        }

    def reach(self) -> Document:
        terms = [self.chance.choice(SELECTORS)]
        local = {"nodeName": "o" if self.one_in(8) else "n"}
        selected = {"nodeSelector": {"nodeSelectorTerms": terms}}
        return self.chance.choice((local, local, {"allNodes": True}, selected))

    def add_pool(self, driver: str, name: str) -> None:
        each_device = self.one_in(5)
        where = {"perDeviceNodeSelection": True} if each_device else self.reach()
        parts: list[Document] = []
        if self.counters:
            counters = {each: {"value": self.chance.choice("1234")} for each in "cd"}
            parts.append({"sharedCounters": [{"name": "s", "counters": counters}]})
        for part in range(self.chance.choice((1, 1, 2))):
            devices = [self.device(f"d{part}-{i}") for i in range(self.chance.randrange(5))]
            for number, each in enumerate(devices[1:], start=1):
                if self.one_in(2):  # devices are often alike
                    devices[number] = devices[0] | {"name": each["name"]}
            if each_device:
                devices = [each | self.reach() for each in devices]
            parts.append({"devices": devices})
        missing = self.faulty and self.one_in(2)
        about = {"name": name, "generation": 2, "resourceSliceCount": len(parts) + missing}
        order = self.chance.sample(range(len(parts)), len(parts))
        for place, part in zip(order, parts, strict=True):
            reach = {"allNodes": True} if each_device and "devices" not in part else where
            spec = {"driver": driver, "pool": about, **reach, **part}
            self.slices.append({"metadata": {"name": f"{name}-{place}"}, "spec": spec})
        if self.faulty and self.one_in(2):
            old = about | {"generation": self.chance.choice((1, 1, 3))}
            spec = {"driver": driver, "pool": old, **self.reach(), "devices": [self.device("d")]}
            self.slices.append({"metadata": {"name": f"{name}-old"}, "spec": spec})

    def device(self, name: str) -> Document:
        attributes: Document = {
            "index": {"int": self.chance.randrange(3)},
            "model": {"string": self.chance.choice("xy")},
            "ready": {"bool": not self.one_in(4)},
        }
        if self.one_in(5):
            del attributes[self.chance.choice(list(attributes))]
        memory: Document = {"value": self.chance.choice(("1Gi", "2Gi", "4Gi", "3G"))}
        found: Document = {"name": name, "attributes": attributes, "capacity": {"memory": memory}}
        if self.shared and self.one_in(2):
            found["allowMultipleAllocations"] = True
            if self.one_in(2):
                memory["requestPolicy"] = self.chance.choice(RANGES)
        if self.counters and not self.one_in(4):
            drawn = {each: {"value": self.chance.choice(("1", "2", "500m"))} for each in "cd"}
            found["consumesCounters"] = [{"counterSet": "s", "counters": drawn}]
        if self.tainted and self.one_in(2):
            effect = self.chance.choice(("NoSchedule", "NoExecute", "None"))
            found["taints"] = [{"key": "k", "value": self.chance.choice("vw"), "effect": effect}]
        if self.one_in(15):
            found |= {"bindingConditions": ["b"], "bindingFailureConditions": ["f"]}
        return found

    def allocated(self) -> list[Document]:
        found = []
        for each in self.slices:
            spec = each["spec"]
            for device in spec.get("devices", ()) if spec["pool"]["generation"] == 2 else ():
                if not self.one_in(7):
                    continue
                result = {"driver": spec["driver"], "pool": spec["pool"]["name"]}
                result |= {"request": "r", "device": device["name"]}
                if "allowMultipleAllocations" in device:
                    result |= {"shareID": "s", "consumedCapacity": {"memory": "512Mi"}}
                found.append(result)
        return found

    def selectors(self, odds: int) -> list[Document]:
        if not self.one_in(odds):
            return []
        expressions = EXPRESSIONS[2:4] if self.careful else EXPRESSIONS
        return [{"cel": {"expression": self.chance.choice(expressions)}}]

    def claim(self, number: int) -> Document:
        requests, names = [], []
        for position in range(self.chance.choice((1, 1, 2, 3))):
            name = f"r{position}"
            names.append(name)
            if self.one_in(3):
                options = [{"name": each, **self.request()} for each in "xyz"[: self.few()]]
                names += [f"{name}/{each['name']}" for each in options]
                requests.append({"name": name, "firstAvailable": options})
            else:
                admin = {"adminAccess": True} if self.one_in(6) else {}
                requests.append({"name": name, "exactly": self.request() | admin})
        devices = {"requests": requests, "constraints": self.constraints(requests, names)}
        return {"metadata": {"name": f"claim-{number}"}, "spec": {"devices": devices}}

    def few(self) -> int:
        return self.chance.choice((1, 1, 2, 3))

    def request(self) -> Document:
        found: Document = {"deviceClassName": self.chance.choice(("any", "any", "some"))}
        found |= {"selectors": self.selectors(4), "tolerations": []}
        if not self.shared and self.one_in(6):
            found["allocationMode"] = "All"
        else:
            found |= {"allocationMode": "ExactCount", "count": self.few()}
        if self.tainted and self.one_in(2):
            toleration = {"key": "k", "operator": self.chance.choice(("Exists", "Equal"))}
            if toleration["operator"] == "Equal":
                toleration["value"] = self.chance.choice("vw")
            found["tolerations"] = [toleration]
        if self.shared and self.one_in(3):
            amount = self.chance.choice(("0", "512Mi", "1Gi", "1200Mi", "1e9"))
            found["capacity"] = {"requests": {"memory": amount}}
        return found

    def constraints(self, requests: list[Document], names: list[str]) -> list[Document]:
        options = [o for r in requests for o in r.get("firstAvailable") or [r["exactly"]]]
        kinds = ["matchAttribute"] * 2
        if all(each.get("count") == 1 for each in options):
            kinds.append("distinctAttribute")
        found = []
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            attribute = self.chance.choice(("a.test/index", "a.test/model", "b.test/index"))
            constraint: Document = {self.chance.choice(kinds): attribute}
            if self.one_in(2):
                constraint["requests"] = self.chance.sample(names, min(2, len(names)))
            found.append(constraint)
        return found


def theirs(questions: list[Document]) -> list[Answer]:
    return [_answer(each) for each in ask(allocation_program(), questions)]


def _answer(given: Document) -> Answer:
    if "error" in given:
        return SKIPPED if "deadline exceeded" in given["error"] else ERROR
    allocations = given["allocations"]
    return None if allocations is None else [comparable(each) for each in allocations]


def ours(question: Document) -> Answer:
    inventory = Inventory.of(
        [from_json(ResourceSlice, each) for each in question["slices"]],
        features=FEATURES,
        strategy=AllocationStrategy.FIRST_FIT,
    )
    allocated = from_json(AllocationResult, {"devices": {"results": question["allocated"]}})
    outcome = allocate(
        [from_json(ResourceClaim, each) for each in question["claims"]],
        from_json(Node, question["node"]),
        inventory,
        DeviceState.of(inventory.device, [allocated]),
        {each["metadata"]["name"]: from_json(DeviceClass, each) for each in question["classes"]},
    )
    if isinstance(outcome, Allocation):
        return [comparable(allocation_document(each)) for each in outcome.allocations]
    return ERROR if isinstance(outcome, AllocationError) else None


def comparable(allocation: Document) -> Document:
    """Devices and node selector, without what is empty; share ids are random."""
    results = [
        {name: value for name, value in each.items() if value}
        | ({"shareID": "any"} if each.get("shareID") else {})
        for each in allocation["devices"]["results"]
    ]
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms", [])
    plain = {"results": results, "terms": [{k: v for k, v in t.items() if v} for t in terms]}
    return json.loads(json.dumps(plain))


def judge(seeds: range) -> None:
    questions = [Question(seed).document() for seed in seeds]
    answers = theirs(questions)
    found = [each for each in answers if isinstance(each, list)]
    assert min(len(found), answers.count(None)) > len(seeds) / 6, "too few are of one kind"
    assert answers.count(ERROR) > len(seeds) / 30, "too few errors"
    assert answers.count(SKIPPED) < len(seeds) / 30, "too few are decided"
    differ = [
        seed
        for seed, question, wanted in zip(seeds, questions, answers, strict=True)
        if wanted != SKIPPED and ours(question) != wanted
    ]
    assert not differ, f"{len(differ)} questions, first {differ[:5]}"


@pytest.mark.slow
def test_devices_are_those_of_kube_schedulers_allocator():
    judge(range(1000))


@pytest.mark.nightly
def test_devices_are_those_of_kube_schedulers_allocator_on_many_clusters():
    judge(range(1000, 1000 + QUESTIONS))
