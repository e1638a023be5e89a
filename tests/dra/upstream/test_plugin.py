"""TestPlugin of pkg/scheduler/framework/plugins/dynamicresources, as objects and outcomes.

Rows of the plugin's own mechanics (informer caches, in-flight claims, patches that fail) are in
``tests/commit``; here is what users see of each.
"""

import pytest

from tests.dra.upstream.objects import (
    A1,
    A2,
    PQ,
    SHARED,
    attribute,
    device,
    exactly,
    first,
    of_class,
    on,
    partition,
    resource_slice,
    shareable,
    sub,
    taint,
    taint_rule,
)
from tests.dra.upstream.play import Scenario, differences, scenario

TOLERATE = [{"key": "example.com/ill", "operator": "Exists"}]
NODE_CPU = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}}
CORES = {
    "name": "cores",
    "allowMultipleAllocations": True,
    "capacity": {"cores": {"value": "64"}},
}


def cores(**mapping: str) -> dict:
    return {"a": [{**CORES, "nodeAllocatableResourceMappings": {"cpu": mapping}}]}


def using(count: str) -> dict:
    return {"=t": [exactly(capacity={"requests": {"cores": count}})]}


SCENARIOS = [
    scenario("TestPlugin/empty", {"p": "0"}, pods={"p": []}),
    scenario(
        "TestPlugin/claim-reference", {"p": "a: d0"}, devices=A1, requests=SHARED, pods={"p": ["c"]}
    ),
    scenario("TestPlugin/claim-template", {"p": "a: d0"}, devices=A1),
    scenario("TestPlugin/missing-claim", {"p": "!not found"}, pods={"p": ["absent"]}),
    scenario(
        "TestPlugin/missing-claim template", {"p": "!not created yet"}, pods={"p": ["=absent"]}
    ),
    scenario("TestPlugin/no-resources", {"p": "!cannot allocate all claims"}, devices={"a": []}),
    scenario("TestPlugin/with-resources", {"p": "a: d0"}, devices=A2),
    scenario("TestPlugin/with-resources two pods", {"p": "1", "q": "1"}, devices=A2, pods=PQ),
    scenario(
        "TestPlugin/exhausted-resources-in-informer-cache",
        {"p": "1", "q": "!insufficient allocatable devices"},
        devices=A1,
        pods=PQ,
    ),
    scenario(
        "TestPlugin/exhausted-resources-in-flight-claim",
        {"p": "2", "q": "!insufficient"},
        devices=A2,
        requests={"=t": [exactly(count=2)]},
        pods=PQ,
    ),
    scenario(
        "TestPlugin/other-resources-in-flight-claim",
        {"p": "1", "q": "1"},
        devices=on("a", "d0") | on("b", "d1"),
        pods=PQ,
    ),
    scenario(
        "TestPlugin/skip-bind",
        {"p": "a: d0", "q": "a: d0"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
    ),
    scenario(
        "TestPlugin/reserved-okay",
        {"p": "a: d0", "q": "a: d0", "r": "a: d0"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"], "r": ["c"]},
    ),
    scenario(
        "TestPlugin/tainted-device-enabled",
        {"p": "!tainted"},
        devices={"a": [device("d0", taints=[taint()])]},
    ),
    scenario(
        "TestPlugin/tainted-device-enabled tolerated",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint()])]},
        requests={"=t": [exactly(tolerations=TOLERATE)]},
    ),
    scenario(
        "TestPlugin/tainted-device-enabled by rule",
        {"p": "!tainted"},
        devices=A1,
        objects=[taint_rule(driver="CASE.example.com")],
    ),
    scenario(
        "TestPlugin/tainted-device-enabled other device",
        {"p": "a: d1"},
        devices={"a": [device("d0", taints=[taint()]), device("d1")]},
    ),
    scenario(
        "TestPlugin/tainted-device-enabled other effect",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint("None")])]},
    ),
    scenario(
        "TestPlugin/structured-ignore-allocated-admin-access",
        {"w": "a: d0", "p": "a: d0"},
        admin=True,
        devices=A1,
        requests={"=t": [exactly()], "=w": [exactly(adminAccess=True)]},
        pods={"w": ["=w"], "p": ["=t"]},
    ),
    scenario(
        "TestPlugin/structured-ignore-allocated-admin-access all",
        {"p": "2", "w": "2"},
        admin=True,
        devices=A2,
        requests={
            "=t": [exactly(allocationMode="All")],
            "=w": [exactly(allocationMode="All", adminAccess=True)],
        },
        pods={"p": ["=t"], "w": ["=w"]},
    ),
    scenario("TestPlugin/missing-class", {"p": "!not found"}, devices=A1, without_class=True),
    scenario(
        "TestPlugin/claim-with-request-with-unknown-device-class",
        {"p": "!not found"},
        devices=A1,
        requests={"=t": [of_class("unknown")]},
    ),
    scenario(
        "TestPlugin/claim-with-prioritized-list-unknown-device-class",
        {"p": "!not found"},
        devices=A1,
        requests={
            "=t": [{"name": "any", "firstAvailable": [{"name": "x", "deviceClassName": "unknown"}]}]
        },
    ),
    scenario(
        "TestPlugin/claim-with-prioritized-list",
        {"p": "a: d0"},
        devices=A1,
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
    ),
    scenario(
        "TestPlugin/claim-with-prioritized-list first",
        {"p": "2"},
        devices=A2,
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
    ),
    scenario(
        "TestPlugin/wrong-topology",
        {"p": "a: d0", "q": "!allocated on another node"},
        devices=on("a", "d0") | {"b": []},
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
        pod_fields={"q": {"nodeSelector": {"kubernetes.io/hostname": "b"}}},
    ),
    scenario(
        "TestPlugin/good-topology",
        {"p": "a: d0", "q": "a: d0"},
        devices=on("a", "d0") | {"b": []},
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
    ),
    scenario(
        "TestPlugin/bind-failure",
        {"q": "a: d0"},
        devices=A1,
        pods={"p": ["=t"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "TestPlugin/single-claim-prioritized-list-scoring",
        {"p": "b: d0 d1"},
        devices=on("a", "d0") | on("b", "d0", "d1"),
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
    ),
    scenario(
        "TestPlugin/multiple-claims-prioritized-list-scoring",
        {"p": "b: d0 d1 d2 d3"},
        devices=on("a", "d0", "d1") | on("b", "d0", "d1", "d2", "d3"),
        requests={
            "=t": [first(sub("x", count=2), sub("y"))],
            "=u": [first(sub("x", count=2), sub("y"))],
        },
        pods={"p": ["=t", "=u"]},
    ),
    scenario(
        "TestPlugin/multiple-requests-prioritized-list-scoring",
        {"p": "b: d0 d1 d2 d3"},
        devices=on("a", "d0", "d1", "d2") | on("b", "d0", "d1", "d2", "d3"),
        requests={
            "=t": [
                first(sub("x", count=2), sub("y"), name="r"),
                first(sub("x", count=2), sub("y"), name="s"),
            ]
        },
    ),
    scenario(
        "TestPlugin/single-request-last-subrequest-allocated",
        {"p": "a: d0"},
        devices=A1,
        requests={"=t": [first(sub("x", count=3), sub("y", count=2), sub("z"))]},
    ),
    scenario(
        "TestPlugin/multiple-requests-with-middle-subrequests-allocated",
        {"p": "a: d0 d1 d2 d3"},
        devices=on("a", "d0", "d1", "d2", "d3"),
        requests={
            "=t": [
                first(sub("x", count=3), sub("y", count=2), sub("z"), name="r"),
                first(sub("x", count=3), sub("y", count=2), sub("z"), name="s"),
            ]
        },
    ),
    scenario(
        "TestPlugin/node-allocatable-resource-multiplier",
        {"p": "a: d0", "q": "!Insufficient cpu"},
        cpu="6",
        devices={"a": [{**device("d0"), **NODE_CPU}, {**device("d1"), **NODE_CPU}]},
        pods=PQ,
    ),
    scenario(
        "TestPlugin/node-allocatable-resource-capacitykey",
        {"p": "a: cores", "q": "!Insufficient cpu"},
        cpu="10",
        devices=cores(capacityKey="cores"),
        requests=using("6"),
        pods=PQ,
    ),
    scenario(
        "TestPlugin/node-allocatable-resource-capacitykey-and-multiplier",
        {"p": "a: cores", "q": "a: cores", "r": "!Insufficient cpu"},
        cpu="10",
        devices=cores(capacityKey="cores", allocationMultiplier="2"),
        requests=using("2"),
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "TestPlugin/node-allocatable-resource-insufficient-resources-with-multiplier",
        {"p": "!Insufficient cpu"},
        cpu="3",
        devices={"a": [{**device("d0"), **NODE_CPU}]},
    ),
    scenario(
        "TestPlugin/claim-deallocate",
        {"q": "b: d1"},
        devices=on("a", "d0") | on("b", "d1"),
        requests=SHARED,
        pods={"p": ["c"], "-p": [], "q": ["c"]},
        pod_fields={
            "q": {"nodeSelector": {"kubernetes.io/hostname": "b"}},
            "p": {"nodeSelector": {"kubernetes.io/hostname": "a"}},
        },
    ),
    scenario("TestPlugin/queue-on-add", {"p": "a: d0"}, devices=A1, pods={"p": ["=t"]}),
    scenario(
        "TestPlugin/queue-on-status-change", {"p": "1", "q": "!insufficient"}, devices=A1, pods=PQ
    ),
    scenario(
        "TestPlugin/complete",
        {"p": "a: d0"},
        devices=A1,
        requests={"=t": [exactly()], "c": [exactly("r", selectors=attribute("model", "x"))]},
        pods={"p": ["=t"]},
    ),
    scenario(
        "TestPlugin/mix-of-allocated-and-unallocated-claims",
        {"p": "a: d0", "q": "a: d0 d1"},
        devices=A2,
        requests={"c": [exactly()], "=t": [exactly()]},
        pods={"p": ["c"], "q": ["c", "=t"]},
    ),
    scenario(
        "TestPlugin/single-allocated-claim-with-shared-device",
        {"p": "a: s", "q": "a: s"},
        devices={"a": [shareable("s")]},
        requests={"=t": [exactly(capacity={"requests": {"memory": "40Gi"}})]},
        pods=PQ,
    ),
    scenario(
        "TestPlugin/single-allocated-claim-with-capacity",
        {"p": "a: s", "q": "!insufficient"},
        devices={"a": [shareable("s")]},
        requests={"=t": [exactly(capacity={"requests": {"memory": "50Gi"}})]},
        pods=PQ,
    ),
    scenario(
        "TestPlugin/mixed-allocated-claim",
        {"p": "1", "q": "1"},
        devices={"a": [shareable("s"), device("d0")]},
        pods=PQ,
    ),
    scenario(
        "TestPlugin/pool-incomplete",
        {"p": "!"},
        devices={"a": []},
        objects=[resource_slice("part", device("d0"), pool={"resourceSliceCount": 2})],
    ),
    scenario(
        "TestPlugin/pool-of-all-nodes",
        {"p": "net"},
        devices={"a": []},
        objects=[resource_slice("net", device("net"), allNodes=True)],
    ),
    scenario(
        "TestPlugin/partition-of-shared-counters",
        {"p": "1", "q": "1", "r": "!insufficient"},
        devices={"a": [partition("p4", 4), partition("p3", 3), partition("p2", 2)]},
        counters=[{"name": "gpu", "counters": {"slices": {"value": "7"}}}],
        pods={**PQ, "r": ["=t"]},
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
