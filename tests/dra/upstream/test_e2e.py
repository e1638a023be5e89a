"""test/e2e/dra of Kubernetes as far as a scheduler decides it, as objects and outcomes."""

import pytest

from tests.dra.upstream.objects import (
    A1,
    A2,
    PQ,
    SHARED,
    attribute,
    container,
    counters,
    device,
    device_class,
    exactly,
    first,
    memory,
    of_class,
    on,
    partition,
    resource_slice,
    selecting,
    shareable,
    sub,
    taint,
    taint_rule,
)
from tests.dra.upstream.play import Scenario, differences, scenario

SCENARIOS = [
    scenario("e2e/supports simple pod referencing inline resource claim", {"p": "1"}),
    scenario(
        "e2e/supports inline claim referenced by multiple containers",
        {"p": "1"},
        pod_fields={"p": {"containers": [container("x", ("t",)), container("y", ("t",))]}},
    ),
    scenario(
        "e2e/supports simple pod referencing external resource claim",
        {"p": "1"},
        requests=SHARED,
        pods={"p": ["c"]},
    ),
    scenario(
        "e2e/supports external claim referenced by multiple pods",
        {"p": "a: d0", "q": "a: d0"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
    ),
    scenario(
        "e2e/supports external claim referenced by multiple containers of multiple pods",
        {"p": "a: d0", "q": "a: d0"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"]},
        pod_fields={
            name: {"containers": [container("x", ("c",)), container("y", ("c",))]} for name in "pq"
        },
    ),
    scenario(
        "e2e/supports init containers",
        {"p": "1"},
        pod_fields={"p": {"initContainers": [container("init", ("t",))]}},
    ),
    scenario(
        "e2e/supports init containers with external claims",
        {"p": "1"},
        requests=SHARED,
        pods={"p": ["c"]},
        pod_fields={"p": {"initContainers": [container("init", ("c",))]}},
    ),
    scenario(
        "e2e/supports reusing resources",
        {"q": "a: d0"},
        devices=A1,
        pods={"p": ["=t"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "e2e/supports sharing a claim concurrently",
        {"p": "1", "q": "1", "r": "1"},
        devices=A1,
        requests=SHARED,
        pods={"p": ["c"], "q": ["c"], "r": ["c"]},
    ),
    scenario(
        "e2e/must deallocate after use",
        {"q": "a: d0"},
        devices=A1,
        requests={"c": [exactly()], "=t": [exactly()]},
        pods={"p": ["c"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "e2e/removes reservation from claim when pod is done",
        {"q": "1"},
        requests=SHARED,
        pods={"p": ["c"], "-p": [], "q": ["c"]},
    ),
    scenario(
        "e2e/deletes generated claims when pod is done",
        {"q": "a: d0 d1"},
        devices=A2,
        requests={"=t": [exactly(count=2)]},
        pods={"p": ["=t"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "e2e/retries pod scheduling after creating device class",
        {"p": "1"},
        devices=A1,
        requests={"=t": [of_class("later")]},
        pods={"p": ["=t"], "+c": []},
        late={"c": [device_class("later")]},
    ),
    scenario(
        "e2e/retries pod scheduling after updating device class",
        {"p": "1"},
        devices=A1,
        requests={"=t": [of_class("later")]},
        pods={"p": ["=t"], "+c": []},
        objects=[device_class("later", "false")],
        late={"c": [device_class("later", "true")]},
    ),
    scenario("e2e/runs a pod without a generated resource claim", {"p": "0"}, pods={"p": []}),
    scenario(
        "e2e/runs pod after driver starts",
        {"p": "a: late"},
        devices={"a": []},
        pods={"p": ["=t"], "+s": []},
        late={"s": [resource_slice("late", device("late"))]},
    ),
    scenario(
        "e2e/requests an already allocated and a new claim for a pod",
        {"p": "a: d0", "q": "a: d0 d1"},
        devices=A2,
        requests={"c": [exactly()], "d": [exactly()]},
        pods={"p": ["c"], "q": ["c", "d"]},
    ),
    scenario(
        "e2e/keeps pod pending because of CEL runtime errors",
        {"p": "!no such key"},
        devices=A1,
        requests={"=t": [exactly(selectors=attribute("nope", "x"))]},
    ),
    scenario(
        "e2e/uses all resources",
        {f"p{i}": "1" for i in range(6)},
        devices=on("a", "d0", "d1", "d2") | on("b", "e0", "e1", "e2"),
        pods={f"p{i}": ["=t"] for i in range(6)},
    ),
    scenario(
        "e2e/selects the first subrequest that can be satisfied",
        {"p": "a: d1"},
        devices={"a": [device("d0", model="m0"), device("d1", model="m1")]},
        requests={
            "=t": [
                first(
                    sub("x", selectors=attribute("model", "m7")),
                    sub("y", selectors=attribute("model", "m1")),
                    sub("z"),
                )
            ]
        },
    ),
    scenario(
        "e2e/uses the config for the selected subrequest",
        {"p": "a: d0"},
        devices=A1,
        requests={"=t": [first(sub("x", count=2), sub("y"))]},
        config=[
            {
                "requests": ["any/y"],
                "opaque": {"driver": "CASE.example.com", "parameters": {"kind": "y"}},
            }
        ],
    ),
    scenario(
        "e2e/chooses the correct subrequest subject to constraints",
        {"p": "a: d1 d2"},
        devices={
            "a": [
                device("d0", model="x", size="big"),
                device("d1", model="y", size="small"),
                device("d2", model="y", size="fixed"),
            ]
        },
        requests={
            "=t": [
                exactly("fixed", selectors=attribute("size", "fixed")),
                first(
                    sub("big", selectors=attribute("size", "big")),
                    sub("small", selectors=attribute("size", "small")),
                ),
            ]
        },
        constraints=[{"requests": ["fixed", "any"], "matchAttribute": "CASE.example.com/model"}],
    ),
    scenario(
        "e2e/chooses the correct subrequest for each pod",
        {"p": "2", "q": "1", "r": "!"},
        devices=on("a", "d0", "d1", "d2"),
        requests={"=t": [first(sub("two", count=2), sub("one"))]},
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "e2e/filters config correctly for multiple devices",
        {"p": "2"},
        requests={"=t": [exactly("x"), exactly("y")]},
        config=[
            {
                "requests": ["x"],
                "opaque": {"driver": "CASE.example.com", "parameters": {"kind": "x"}},
            }
        ],
    ),
    scenario(
        "e2e/supports requests with alternatives",
        {"p": "1"},
        devices={"a": [device("d0", model="small")]},
        requests={
            "=t": [
                first(
                    sub("x", allocationMode="All", selectors=attribute("model", "none")), sub("y")
                )
            ]
        },
    ),
    scenario(
        "e2e/must consume and free up counters",
        {"p": "a: p4", "r": "a: p4"},
        devices={"a": [partition("p4", 4)]},
        counters=counters(4),
        requests={"c": [exactly()], "=t": [exactly()]},
        pods={"p": ["c"], "r": ["c"]},
    ),
    scenario(
        "e2e/must consume and free up counters again",
        {"q": "a: p7"},
        devices={
            "a": [partition("p7", 7), partition("p4", 4, attributes={"size": {"string": "four"}})]
        },
        counters=counters(7),
        requests={
            "=f": [exactly(selectors=selecting("'size' in device.attributes['CASE.example.com']"))],
            "=t": [
                exactly(selectors=selecting("!('size' in device.attributes['CASE.example.com'])"))
            ],
        },
        pods={"p": ["=f"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "e2e/must consume counters of one set only",
        {"p": "2", "q": "!insufficient"},
        devices={"a": [partition("p3", 3), partition("p4", 4)]},
        counters=counters(7),
        requests={"=t": [exactly(allocationMode="All")], "=u": [exactly()]},
        pods={"p": ["=t"], "q": ["=u"]},
    ),
    scenario(
        "e2e/must allow multiple allocations and consume capacity",
        {"p": "a: s", "q": "a: s", "r": "!insufficient"},
        devices={"a": [shareable("s", "60Gi")]},
        requests={"=t": [memory("30Gi")]},
        pods={**PQ, "r": ["=t"]},
    ),
    scenario(
        "e2e/must allow multiple allocations freed",
        {"q": "a: s"},
        devices={"a": [shareable("s", "60Gi")]},
        requests={"=t": [memory("60Gi")]},
        pods={"p": ["=t"], "-p": [], "q": ["=t"]},
    ),
    scenario(
        "e2e/must allow multiple allocations valid values",
        {"p": "a: s", "q": "!insufficient"},
        devices={"a": [shareable("s", "60Gi", default="40Gi", validValues=["10Gi", "40Gi"])]},
        requests={"=t": [memory("20Gi")]},
        pods=PQ,
    ),
    scenario(
        "e2e/must allow multiple allocations too much",
        {"p": "!"},
        devices={"a": [shareable("s", "60Gi")]},
        requests={"=t": [memory("61Gi")]},
    ),
    scenario(
        "e2e/NoSchedule keeps pod pending",
        {"p": "!tainted"},
        devices={"a": [device("d0", taints=[taint()])]},
    ),
    scenario(
        "e2e/NoSchedule can be tolerated",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint()])]},
        requests={"=t": [exactly(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])]},
    ),
    scenario(
        "e2e/NoSchedule tolerated for another effect",
        {"p": "!tainted"},
        devices={"a": [device("d0", taints=[taint()])]},
        requests={"=t": [exactly(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])]},
    ),
    scenario(
        "e2e/NoExecute keeps pod pending",
        {"p": "!tainted"},
        devices={"a": [device("d0", taints=[taint("NoExecute")])]},
    ),
    scenario(
        "e2e/NoExecute can be tolerated",
        {"p": "a: d0"},
        devices={"a": [device("d0", taints=[taint("NoExecute")])]},
        requests={"=t": [exactly(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])]},
    ),
    scenario(
        "e2e/DeviceTaintRule keeps later pods away",
        {"p": "a: d0", "q": "!"},
        devices=A2,
        pods={"p": ["=t"], "+r": [], "q": ["=t"]},
        late={"r": [taint_rule(driver="CASE.example.com")]},
    ),
    scenario("e2e/work", {"p": "1"}),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
