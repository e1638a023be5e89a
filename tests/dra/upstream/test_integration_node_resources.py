"""Devices that take a node's own resources, of test/integration/dra of Kubernetes."""

import pytest

from tests.dra.upstream.objects import PQ, SHARED, device, exactly
from tests.dra.upstream.play import Scenario, differences, scenario

CPU = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}}

POOL = {
    "name": "pool",
    "allowMultipleAllocations": True,
    "capacity": {"cpu": {"value": "8"}},
    "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cpu"}},
}


def plain(cpu: str, **pod: object) -> dict:
    main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [main], **pod}


def with_claim(cpu: str, name: str = "t", **pod: object) -> dict:
    resources = {"requests": {"cpu": cpu}, "claims": [{"name": name}]}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}], **pod}


def drawing(amount: str) -> dict:
    return {"=t": [exactly(capacity={"requests": {"cpu": amount}})]}


SCENARIOS = [
    scenario(
        "integration/NodeAllocatableResources ConsumablePool",
        {"p": "a: pool", "q": "a: pool", "r": "!insufficient capacity"},
        cpu="6",
        devices={"a": [POOL]},
        requests=drawing("3"),
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "integration/NodeAllocatableResources IndividualDevices",
        {"p": "1", "q": "1", "r": "!Insufficient cpu"},
        cpu="11",
        devices={"a": [{**device(f"d{i}"), **CPU} for i in range(3)]},
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "integration/NodeAllocatableResources ClaimSharing",
        {"p": "1", "q": "!cannot be shared across pods"},
        cpu="20",
        devices={"a": [{**device("d0"), **CPU}]},
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
    ),
    scenario(
        "integration/PodLevelResourceValidation SufficientPodLevelRequest",
        {"p": "1"},
        cpu="20",
        devices={"a": [{**device("d0"), **CPU}]},
        pod_fields={"p": with_claim("1", resources={"requests": {"cpu": "6"}})},
    ),
    scenario(
        "integration/PodLevelResourceValidation InsufficientPodLevelRequest",
        {"p": "!pod level request for cpu is insufficient"},
        cpu="20",
        devices={"a": [{**device("d0"), **CPU}]},
        pod_fields={"p": with_claim("1", resources={"requests": {"cpu": "4"}})},
    ),
    scenario(
        "integration/InsufficientNodeResources ExceedNodeResourceCapacityMultiplier",
        {"p": "!Insufficient cpu"},
        cpu="3",
        devices={"a": [{**device("d0"), **CPU}]},
    ),
    scenario(
        "integration/InsufficientNodeResources ExceedNodeCapacityWithCapacityKey",
        {"p": "!Insufficient cpu"},
        cpu="4",
        devices={"a": [POOL]},
        requests=drawing("5"),
    ),
    scenario(
        "integration/StandardPodFailsDueToInsufficientResourcesAfterDRAConsumption",
        {"p": "1", "q": "!Insufficient cpu"},
        cpu="6",
        devices={"a": [{**device("d0"), **CPU}]},
        pods={"p": ["=t"], "q": []},
        pod_fields={"q": plain("3")},
    ),
    scenario(
        "integration/InsufficientNodeResources StandardPodSucceedsAfterDRA",
        {"p": "1", "q": "0"},
        cpu="7",
        devices={"a": [{**device("d0"), **CPU}]},
        pods={"p": ["=t"], "q": []},
        pod_fields={"q": plain("3")},
    ),
    scenario(
        "integration/NodeAllocatableResources ClaimTemplateBasedAllocation",
        {"p": "1", "q": "1"},
        cpu="8",
        devices={"a": [{**device("d0"), **CPU}, {**device("d1"), **CPU}]},
        pods=PQ,
    ),
    scenario(
        "integration/NodeAllocatableResources UnreferencedClaimInPod",
        {"p": "!no container refers to it"},
        cpu="20",
        devices={"a": [{**device("d0"), **CPU}]},
        pod_fields={"p": plain("1")},
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
