"""ResourceSlices of test/integration/dra of Kubernetes: partitions, several hosts, faults."""

import pytest

from tests.dra.upstream.objects import (
    PQ,
    attribute,
    counters,
    device,
    exactly,
    on,
    partition,
    resource_slice,
)
from tests.dra.upstream.play import Scenario, differences, scenario

SCENARIOS = [
    scenario(
        "integration/PartitionableDevices",
        {"p": "1", "q": "1", "r": "!insufficient"},
        devices={"a": [partition("p4", 4), partition("p3", 3), partition("p1", 1)]},
        counters=counters(7),
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "integration/PartitionableDevices freed",
        {"q": "a: p7"},
        devices={"a": [partition("p7", 7)]},
        counters=counters(7),
        pods={"p": ["=t"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "integration/PerDeviceNodeSelection",
        {"p": "b: d1"},
        devices={"a": [], "b": []},
        requests={"=t": [exactly(selectors=attribute("model", "y"))]},
        objects=[
            resource_slice(
                "each",
                {**device("d0", model="x"), "nodeName": "a"},
                {**device("d1", model="y"), "nodeName": "b"},
                perDeviceNodeSelection=True,
                nodeName="",
            )
        ],
    ),
    scenario(
        "integration/MultiHostDevice",
        {"p": "net", "q": "!insufficient"},
        devices={"a": [], "b": []},
        pods=PQ,
        objects=[
            resource_slice(
                "net",
                device("net"),
                nodeSelector={
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": ["a", "b"],
                                }
                            ]
                        }
                    ]
                },
            )
        ],
    ),
    scenario(
        "integration/MultiHostDevice elsewhere",
        {"p": "b: net"},
        devices={"a": [], "b": []},
        objects=[
            resource_slice(
                "net",
                device("net"),
                nodeSelector={
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}
                            ]
                        }
                    ]
                },
            )
        ],
    ),
    scenario(
        "integration/InvalidResourceSlices invalid-one-node-and-valid-other",
        {"p": "b: d1"},
        devices={"a": []} | on("b", "d1"),
        objects=[resource_slice("bad", device("d0"), device("d0"))],
    ),
    scenario(
        "integration/InvalidResourceSlices only-invalid-for-one-node",
        {"p": "!"},
        devices={"a": []},
        objects=[resource_slice("bad", device("d0"), device("d0"))],
    ),
    scenario(
        "integration/InvalidResourceSlices invalid-for-all-nodes",
        {"p": "!"},
        devices={"a": [], "b": []},
        objects=[resource_slice("bad", device("d0"), device("d0"), allNodes=True)],
    ),
    scenario(
        "integration/MaxResourceSlice",
        {"p": "32"},
        devices={"a": [device(f"d{i}") for i in range(128)]},
        requests={"=t": [exactly(count=32)]},
    ),
    scenario(
        "integration/MaxResourceSlice too many",
        {"p": "!exceeds"},
        devices={"a": [device(f"d{i}") for i in range(128)]},
        requests={"=t": [exactly(count=33)]},
    ),
    scenario(
        "integration/Generation of a pool",
        {"p": "a: new"},
        devices={"a": []},
        objects=[
            resource_slice("pool-old", device("old"), pool={"name": "pool", "generation": 1}),
            resource_slice("pool-new", device("new"), pool={"name": "pool", "generation": 2}),
        ],
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
