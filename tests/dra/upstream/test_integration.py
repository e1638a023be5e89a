"""test/integration/dra of Kubernetes, as objects and outcomes."""

import pytest

from tests.dra.upstream.objects import (
    A1,
    A2,
    PQ,
    SHARED,
    attribute,
    device,
    device_class,
    exactly,
    first,
    memory,
    of_class,
    on,
    selecting,
    shareable,
    sub,
    taint,
    taint_rule,
)
from tests.dra.upstream.play import Scenario, differences, scenario

TWO_NODES = on("a", "d0") | on("b", "d1")
ALL = exactly(allocationMode="All")


def listed(values: list[str]) -> dict:
    return {"attributes": {"roots": {"strings": values}}}


SCENARIOS = [
    scenario("integration/Pod", {"p": "0"}, pods={"p": []}),
    scenario(
        "integration/AdminAccess",
        {"p": "1", "w": "1"},
        admin=True,
        devices=A1,
        requests={"=t": [exactly()], "=w": [exactly(adminAccess=True)]},
        pods={"p": ["=t"], "w": ["=w"]},
    ),
    scenario(
        "integration/AdminAccess two observers",
        {"v": "1", "w": "1"},
        admin=True,
        devices=A1,
        requests={"=w": [exactly(adminAccess=True)]},
        pods={"v": ["=w"], "w": ["=w"]},
    ),
    scenario(
        "integration/PrioritizedList",
        {"p": "a: d0"},
        devices={"a": [device("d0", model="small")]},
        requests={"=t": [first(sub("x", selectors=attribute("model", "huge")), sub("y"))]},
    ),
    scenario(
        "integration/PrioritizedList none fits",
        {"p": "!cannot allocate"},
        devices=A1,
        requests={"=t": [first(sub("x", count=2), sub("y", count=3))]},
    ),
    scenario(
        "integration/PrioritizedListScoring",
        {"p": "b: d0 d1"},
        devices=on("a", "d0") | on("b", "d0", "d1"),
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
    ),
    scenario(
        "integration/PrioritizedListScoring second of both",
        {"p": "1", "q": "1"},
        devices=TWO_NODES,
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
        pods=PQ,
    ),
    scenario(
        "integration/ExtendedResource explicit",
        {"p": "a: d0"},
        devices=A1,
        extended_resource="1",
        pods={"p": []},
    ),
    scenario(
        "integration/ExtendedResource two pods",
        {"p": "1", "q": "1"},
        devices=TWO_NODES,
        extended_resource="1",
        pods={"p": [], "q": []},
    ),
    scenario(
        "integration/ExtendedResource exhausted",
        {"p": "1", "q": "!insufficient"},
        devices=A1,
        extended_resource="1",
        pods={"p": [], "q": []},
    ),
    scenario(
        "integration/ExtendedResource freed",
        {"q": "a: d0"},
        devices=A1,
        extended_resource="1",
        pods={"p": [], "-p": [], "q": []},
    ),
    scenario(
        "integration/FilterTimeout identical devices",
        {"p": "!"},
        devices={"a": [device(f"d{i}") for i in range(20)]},
        requests={"=t": [exactly(count=21)]},
    ),
    scenario(
        "integration/UsesAllResources",
        {f"p{i}": "1" for i in range(8)},
        devices={
            "a": [device(f"d{i}") for i in range(4)],
            "b": [device(f"e{i}") for i in range(4)],
        },
        pods={f"p{i}": ["=t"] for i in range(8)},
    ),
    scenario(
        "integration/UsesAllResources and no more",
        {**{f"p{i}": "1" for i in range(4)}, "p4": "!insufficient"},
        devices=on("a", "d0", "d1") | on("b", "e0", "e1"),
        pods={f"p{i}": ["=t"] for i in range(5)},
    ),
    scenario(
        "integration/ShareResourceClaimSequentially",
        {"p": "1", "q": "1", "r": "1"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"], "r": ["c"]},
    ),
    scenario(
        "integration/ShareResourceClaimSequentially after the first",
        {"q": "a: d0", "r": "a: d0"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"], "-p": [], "r": ["c"]},
    ),
    scenario(
        "integration/EvictCluster NoExecute",
        {"p": "!tainted"},
        devices=A1,
        objects=[taint_rule("NoExecute", driver="CASE.example.com")],
    ),
    scenario(
        "integration/EvictCluster tolerated",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint("NoExecute")])]},
        requests={"=t": [exactly(tolerations=[{"operator": "Exists"}])]},
    ),
    scenario(
        "integration/EvictCluster tolerated key and value",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint("NoExecute")])]},
        requests={
            "=t": [
                exactly(
                    tolerations=[{"key": "example.com/ill", "operator": "Equal", "value": "yes"}]
                )
            ]
        },
    ),
    scenario(
        "integration/EvictCluster other value",
        {"p": "!tainted"},
        devices={"a": [device("d0", taints=[taint("NoExecute")])]},
        requests={
            "=t": [
                exactly(
                    tolerations=[{"key": "example.com/ill", "operator": "Equal", "value": "no"}]
                )
            ]
        },
    ),
    scenario(
        "integration/NoScheduleRule",
        {"p": "!tainted"},
        devices=A1,
        objects=[taint_rule(device="d0")],
    ),
    scenario(
        "integration/NoScheduleRule other pool",
        {"p": "a: d0"},
        devices=A1,
        objects=[taint_rule(pool="b")],
    ),
    scenario(
        "integration/NoScheduleRule other device",
        {"p": "a: d1"},
        devices=A2,
        objects=[taint_rule(device="d0", pool="a", driver="CASE.example.com")],
    ),
    scenario(
        "integration/ConsumableCapacity",
        {"p": "a: s", "q": "a: s", "r": "!insufficient"},
        devices={"a": [shareable("s", "80Gi")]},
        requests={"=t": [memory("40Gi")]},
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "integration/ConsumableCapacity default",
        {"p": "a: s", "q": "a: s"},
        devices={
            "a": [
                shareable("s", "80Gi", default="10Gi", validRange={"min": "10Gi", "step": "10Gi"})
            ]
        },
        pods=PQ,
    ),
    scenario(
        "integration/ConsumableCapacity rounded up",
        {"p": "a: s", "q": "!insufficient"},
        devices={"a": [shareable("s", "40Gi", default="30Gi", validRange={"min": "30Gi"})]},
        requests={"=t": [memory("1Gi")]},
        pods=PQ,
    ),
    scenario(
        "integration/ConsumableCapacity distinct devices",
        {"p": "a: s t"},
        devices={
            "a": [
                {**shareable("s"), "attributes": {"id": {"string": "s"}}},
                {**shareable("t"), "attributes": {"id": {"string": "t"}}},
            ]
        },
        requests={"=t": [memory("1Gi", "x"), memory("1Gi", "y")]},
        constraints=[{"distinctAttribute": "CASE.example.com/id"}],
    ),
    scenario(
        "integration/ConsumableCapacity too few distinct devices",
        {"p": "!"},
        devices={"a": [{**shareable("s"), "attributes": {"id": {"string": "s"}}}]},
        requests={"=t": [memory("1Gi", "x"), memory("1Gi", "y")]},
        constraints=[{"distinctAttribute": "CASE.example.com/id"}],
    ),
    scenario(
        "integration/ListTypeAttributes",
        {"p": "a: d0 d1"},
        devices={
            "a": [
                {**device("d0"), **listed(["r0", "r1"])},
                {**device("d1"), **listed(["r1", "r2"])},
            ]
        },
        requests={"=t": [exactly(count=2)]},
        constraints=[{"matchAttribute": "CASE.example.com/roots"}],
    ),
    scenario(
        "integration/ListTypeAttributes nothing in common",
        {"p": "!"},
        devices={"a": [{**device("d0"), **listed(["r0"])}, {**device("d1"), **listed(["r2"])}]},
        requests={"=t": [exactly(count=2)]},
        constraints=[{"matchAttribute": "CASE.example.com/roots"}],
    ),
    scenario(
        "integration/DeviceClass selectors",
        {"p": "a: d1"},
        devices={"a": [device("d0", model="x"), device("d1", model="y")]},
        requests={"=t": [of_class("narrow")]},
        objects=[device_class("narrow", "device.attributes['CASE.example.com'].model == 'y'")],
    ),
    scenario(
        "integration/DeviceClass and request",
        {"p": "!"},
        devices={"a": [device("d0", model="x"), device("d1", model="y")]},
        requests={"=t": [of_class("narrow", selectors=attribute("model", "x"))]},
        objects=[device_class("narrow", "device.attributes['CASE.example.com'].model == 'y'")],
    ),
    scenario(
        "integration/All waits for all",
        {"p": "1", "q": "!"},
        devices=A2,
        requests={"=t": [exactly()], "=u": [ALL]},
        pods={"p": ["=t"], "q": ["=u"]},
    ),
    scenario(
        "integration/All after the other has ended",
        {"q": "2"},
        devices=A2,
        requests={"=t": [exactly()], "=u": [ALL]},
        pods={"p": ["=t"], "-p": [], "q": ["=u"]},
    ),
    scenario(
        "integration/Selector of capacity",
        {"p": "a: s"},
        devices={"a": [device("d0"), shareable("s", "80Gi")]},
        requests={
            "=t": [exactly(selectors=selecting("'memory' in device.capacity['CASE.example.com']"))]
        },
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
