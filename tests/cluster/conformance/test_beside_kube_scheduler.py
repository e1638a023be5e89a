"""kai-py and kube-scheduler side by side: the same objects, the same outcome and allocation.

Each case is played by both schedulers on the real API server, one after the other, and, where pods
share claims, by each of them joining the claim of the other. ``DIFFERENCES`` lists where they do
not agree, with the reason; a difference that has gone fails, too.
"""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.cluster.conformance.both_schedulers import OURS, THEIRS, Case, Outcome, play
from tests.cluster.conformance.place import Json
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import install_definitions, scheduling

NUMBERS = itertools.count()
MEMORY = "memory"


def exactly(name: str = "one", **fields: object) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "CASE", **fields}}


def sub(name: str, **fields: object) -> Json:
    return {"name": name, "deviceClassName": "CASE", **fields}


def opaque(**parameters: object) -> Json:
    return {"opaque": {"driver": "CASE.example.com", "parameters": parameters}}


def device(name: str, **fields: object) -> Json:
    return {"name": name, **fields}


def model(name: str, model: str) -> Json:
    return device(name, attributes={"model": {"string": model}})


def partition(name: str, slices: int) -> Json:
    draw = {"counterSet": "gpu", "counters": {"slices": {"value": str(slices)}}}
    return device(name, consumesCounters=[draw])


def only_model(wanted: str) -> list[Json]:
    expression = f"device.attributes['CASE.example.com'].model == '{wanted}'"
    return [{"cel": {"expression": expression}}]


ODD = {
    "kind": "Config",
    "text": "<a> & b",
    "large": 12345678901234567,
    "half": 0.5,
    "nothing": None,
}
"""Parameters that Go writes with other bytes than Python, and a null, which merge patches drop."""

ONE = {"=t": [exactly()]}
SHARED = {"c": [exactly()]}
TAINT = {"key": "example.com/ill", "value": "yes", "effect": "NoSchedule"}
MODELS = {"a": [model("d0", "small"), model("d1", "large")]}
SHAREABLE = {
    "a": [device("d0", allowMultipleAllocations=True, capacity={MEMORY: {"value": "80Gi"}})]
}
PARTITIONS = {"a": [partition("p4", 4), partition("p3", 3), partition("p2", 2)]}
COUNTERS = [{"name": "gpu", "counters": {"slices": {"value": "7"}}}]


def memory(amount: str) -> Json:
    return exactly(capacity={"requests": {MEMORY: amount}})


CASES = [
    Case("template", requests=ONE, pods={"p": ["=t"]}),
    Case("two-templates", requests=ONE, pods={"p": ["=t"], "q": ["=t"]}),
    Case("claim", requests=SHARED, pods={"p": ["c"]}),
    Case("shared-claim", requests=SHARED, pods={"p": ["c"], "q": ["c"]}),
    Case("two-claims", requests={"c": [exactly()], "d": [exactly()]}, pods={"p": ["c", "d"]}),
    Case("count", requests={"=t": [exactly(count=2)]}, pods={"p": ["=t"]}),
    Case(
        "too-many", waits=frozenset(["p"]), requests={"=t": [exactly(count=3)]}, pods={"p": ["=t"]}
    ),
    Case("all", requests={"=t": [exactly(allocationMode="All")]}, pods={"p": ["=t"]}),
    Case(
        "all-of-none",
        waits=frozenset(["p"]),
        devices=MODELS,
        requests={"=t": [exactly(allocationMode="All", selectors=only_model("huge"))]},
        pods={"p": ["=t"]},
    ),
    Case(
        "selector",
        waits=frozenset(["q"]),
        devices=MODELS,
        requests={"=t": [exactly(selectors=only_model("large"))]},
        pods={"p": ["=t"], "q": ["=t"]},
    ),
    Case(
        "match-attribute",
        waits=frozenset(["p"]),
        devices=MODELS,
        requests={"=t": [exactly("x"), exactly("y")]},
        constraints=[{"matchAttribute": "CASE.example.com/model"}],
        pods={"p": ["=t"]},
    ),
    Case(
        "first-available",
        waits=frozenset(["r"]),
        devices=MODELS,
        requests={
            "=t": [
                {
                    "name": "any",
                    "firstAvailable": [
                        sub("big", selectors=only_model("large")),
                        sub("rest", selectors=only_model("small")),
                    ],
                }
            ]
        },
        pods={"p": ["=t"], "q": ["=t"], "r": ["=t"]},
    ),
    Case(
        "first-available-of-counts",
        requests={
            "=t": [{"name": "any", "firstAvailable": [sub("three", count=3), sub("two", count=2)]}]
        },
        pods={"p": ["=t"], "q": ["=t"]},
    ),
    Case(
        "admin-access",
        admin=True,
        requests={
            "=t": [exactly(allocationMode="All")],
            "=w": [exactly(allocationMode="All", adminAccess=True)],
        },
        pods={"p": ["=t"], "q": ["=t"], "watch": ["=w"]},
    ),
    Case(
        "tainted",
        waits=frozenset(["p"]),
        devices={"a": [device("d0", taints=[TAINT])]},
        requests=ONE,
        pods={"p": ["=t"]},
    ),
    Case(
        "tolerated",
        devices={"a": [device("d0", taints=[TAINT])]},
        requests={"=t": [exactly(tolerations=[{"operator": "Exists", "key": "example.com/ill"}])]},
        pods={"p": ["=t"]},
    ),
    Case(
        "shares",
        waits=frozenset(["r"]),
        devices=SHAREABLE,
        requests={"=t": [memory("30Gi")]},
        pods={"p": ["=t"], "q": ["=t"], "r": ["=t"]},
    ),
    Case(
        "share-of-everything",
        waits=frozenset(["q"]),
        devices=SHAREABLE,
        requests={"=t": [exactly()]},
        pods={"p": ["=t"], "q": ["=t"]},
    ),
    Case(
        "partitions",
        waits=frozenset(["r"]),
        devices=PARTITIONS,
        counters=COUNTERS,
        requests={"=t": [exactly()]},
        pods={"p": ["=t"], "q": ["=t"], "r": ["=t"]},
    ),
    Case("config", requests=ONE, config=[opaque(**ODD)], pods={"p": ["=t"]}),
    Case("config-of-class", requests=ONE, class_config=[opaque(**ODD)], pods={"p": ["=t"]}),
    Case(
        "config-of-a-request",
        requests={"=t": [exactly("x"), exactly("y")]},
        config=[{**opaque(**ODD), "requests": ["x"]}],
        class_config=[opaque(mode="class")],
        pods={"p": ["=t"]},
    ),
    Case(
        "shared-config",
        requests=SHARED,
        config=[opaque(**ODD)],
        class_config=[opaque(**ODD)],
        pods={"p": ["c"], "q": ["c"]},
    ),
    Case(
        "extended-resource",
        waits=frozenset(["r"]),
        extended_resource="2",
        pods={"p": [], "q": [], "r": []},
    ),
]
JOINING = [each for each in CASES if each.name in {"shared-claim", "shared-config"}]
DIFFERENCES: dict[str, str] = {}
"""By name of a case, why kai-py decides otherwise."""


@pytest.fixture
async def api(real: Cluster, kube_scheduler: object) -> AsyncIterator[Api]:
    await install_definitions(real.api)
    await real.submit(queue(maxGPUs=1000, deservedGPUs=1000))
    nodes = [FakeNode(name=name) for name in ("a", "b")]
    async with FakeKubelet(real.api, nodes), scheduling(real):
        yield real.api


def namespace_of(case: Case) -> str:
    return f"{case.name}-{next(NUMBERS)}"


async def both(api: Api, case: Case) -> tuple[Outcome, Outcome]:
    theirs = await play(api, case, THEIRS, namespace_of(case))
    ours = await play(api, case, OURS, namespace_of(case))
    return ours, theirs


@pytest.mark.slow
async def test_the_same_objects_have_the_same_outcome(api: Api):
    different = {}
    for case in CASES:
        ours, theirs = await both(api, case)
        assert theirs.allocations or not theirs.started, case.name
        if ours != theirs:
            different[case.name] = (ours, theirs)
    assert different.keys() == DIFFERENCES.keys(), different


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(OURS, THEIRS), (THEIRS, OURS)])
async def test_pods_of_one_scheduler_join_claims_of_the_other(api: Api, first: str, second: str):
    for case in JOINING:
        namespace = namespace_of(case)
        mixed = Case(**{**vars(case), "schedulers": {"p": first, "q": second}})
        outcome = await play(api, mixed, first, namespace)
        assert outcome.started == {"p", "q"}, (case.name, outcome)
        (held,) = outcome.allocations.values()
        assert held["reservedFor"] == ["p", "q"], (case.name, held)
