"""Extended resources of the DRA plugin's own tests in kube-scheduler."""

import pytest

from tests.dra.upstream.objects import A2, device, device_class
from tests.dra.upstream.play import Scenario, differences, scenario

EXTENDED = "CASE.example.com/device"


def implicit(count: str) -> dict:
    name = "deviceclass.resource.kubernetes.io/case"
    main = {"name": "main", "image": "none", "resources": {"limits": {name: count}}}
    return {"p": {"containers": [main]}}


def containers(*counts: str) -> dict:
    listed = [
        {
            "name": f"c{i}",
            "image": "none",
            "resources": {"limits": {"case.example.com/device": count}},
        }
        for i, count in enumerate(counts)
    ]
    return {"p": {"containers": listed}}


SCENARIOS = [
    scenario(
        "TestPlugin/empty-with-extended-resources-enabled",
        {"p": "0"},
        pods={"p": []},
        objects=[device_class("served", extended="example.com/other")],
    ),
    scenario(
        "TestPlugin/extended-resource-name-with-node-resource",
        {"p": "a: "},
        extended_resource="1",
        devices={"a": []},
        plugin=2,
        pods={"p": []},
    ),
    scenario(
        "TestPlugin/extended-resource-one-device-plugin-one-dra",
        {"p": "0", "q": "1"},
        extended_resource="1",
        devices={"b": [device("d0")]},
        plugin=1,
        pods={"p": [], "q": []},
    ),
    scenario(
        "TestPlugin/extended-resource-name-with-zero-allocatable",
        {"p": "b: d0"},
        extended_resource="1",
        devices={"a": [], "b": [device("d0")]},
        pods={"p": []},
    ),
    scenario(
        "TestPlugin/extended-resource-name-no-resource",
        {"p": "!cannot allocate"},
        extended_resource="1",
        devices={"a": []},
        pods={"p": []},
    ),
    scenario(
        "TestPlugin/extended-resource-name-with-resources",
        {"p": "a: d0 d1"},
        extended_resource="2",
        devices=A2,
        pods={"p": []},
    ),
    scenario(
        "TestPlugin/implicit-extended-resource-name-with-resources",
        {"p": "a: d0 d1"},
        devices=A2,
        pods={"p": []},
        pod_fields=implicit("2"),
    ),
    scenario(
        "TestPlugin/implicit-extended-resource-name-two-containers-with-resources",
        {"p": "a: d0 d1"},
        extended_resource="1",
        devices=A2,
        pods={"p": []},
        pod_fields=containers("1", "1"),
    ),
    scenario(
        "TestPlugin/extended-resource-name-with-resources-has-claim",
        {"p": "a: d0 d1"},
        extended_resource="1",
        devices=A2,
    ),
    scenario(
        "TestPlugin/extended-resource-name-with-resources-delete-claim",
        {"q": "a: d0 d1"},
        extended_resource="2",
        devices=A2,
        pods={"p": [], "-p": [], "q": []},
    ),
    scenario(
        "TestPlugin/extended-resource-name-skip-bind",
        {"p": "1", "q": "1", "r": "!insufficient"},
        extended_resource="1",
        devices=A2,
        pods={"p": [], "q": [], "r": []},
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
