"""Extended resources of test/e2e/dra of Kubernetes, as objects and outcomes."""

import pytest

from tests.dra.upstream.objects import A1, A2, container, device, device_class
from tests.dra.upstream.play import Scenario, differences, scenario

EXTENDED = "case.example.com/device"

IMPLICIT = "deviceclass.resource.kubernetes.io/case"


def requesting(*amounts: dict) -> dict:
    """A pod whose containers request extended resources."""
    return {"p": {"containers": [container(f"c{i}", **each) for i, each in enumerate(amounts)]}}


def served(name: str, number: int) -> list:
    """Classes that serve ``case.example.com/NAME-I``, one device each."""
    return [
        device_class(
            f"{name}-{i}",
            f"device.attributes['CASE.example.com'].model == 'm{i}'",
            f"case.example.com/{name}-{i}",
        )
        for i in range(number)
    ]


MODELS = {"a": [device(f"d{i}", model=f"m{i}") for i in range(3)]}

OF_EACH = {f"case.example.com/x-{i}": "1" for i in range(3)}


SCENARIOS = [
    scenario(
        "e2e/supports extended resources together with ResourceClaim",
        {"p": "2"},
        devices=A2,
        extended_resource="1",
    ),
    scenario(
        "e2e/must run a pod with explicit extended resource with one container one resource",
        {"p": "1"},
        devices=A2,
        extended_resource="1",
        pods={"p": []},
    ),
    scenario(
        "e2e/must run a pod with implicit extended resource with one container one resource",
        {"p": "1"},
        devices=A2,
        pods={"p": []},
        pod_fields=requesting({IMPLICIT: "1"}),
    ),
    scenario(
        "e2e/must run a pod with both implicit and explicit extended resource",
        {"p": "2"},
        devices=A2,
        extended_resource="1",
        pods={"p": []},
        pod_fields=requesting({EXTENDED: "1", IMPLICIT: "1"}),
    ),
    scenario(
        "e2e/must run a pod with explicit extended resource with one container three resources",
        {"p": "a: d0 d1 d2"},
        devices=MODELS,
        objects=served("x", 3),
        pods={"p": []},
        pod_fields=requesting(OF_EACH),
    ),
    scenario(
        "e2e/must run a pod with explicit extended resource with three containers",
        {"p": "a: d0 d1 d2"},
        devices=MODELS,
        objects=served("x", 3),
        pods={"p": []},
        pod_fields=requesting(*({key: "1"} for key in OF_EACH)),
    ),
    scenario(
        "e2e/must run a pod with explicit extended resource, three containers, multiple resources",
        {"p": "6"},
        devices={"a": [device(f"d{i}") for i in range(6)]},
        extended_resource="1",
        pods={"p": []},
        pod_fields=requesting({EXTENDED: "1"}, {EXTENDED: "2"}, {EXTENDED: "3"}),
    ),
    scenario(
        "e2e/must cleanup extended resource claims when pods complete",
        {"q": "2"},
        devices=A2,
        extended_resource="2",
        pods={"p": [], "-p": [], "q": []},
    ),
    scenario(
        "e2e/must prevent overcommitment of extended resources",
        {"p": "2", "q": "!insufficient"},
        devices=A2,
        extended_resource="2",
        pods={"p": [], "q": []},
    ),
    scenario(
        "e2e/must run a pod with extended resource requesting zero",
        {"p": "0"},
        devices=A1,
        extended_resource="1",
        pods={"p": []},
        pod_fields=requesting({EXTENDED: "0"}),
    ),
    scenario(
        "e2e/must process extended resource after Device Class creation",
        {"p": "1"},
        devices=A1,
        pods={"p": [], "+c": []},
        pod_fields=requesting({"case.example.com/later": "1"}),
        late={"c": [device_class("later", "true", "case.example.com/later")]},
    ),
    scenario(
        "e2e/must run pods with extended resource on dra nodes and device plugin nodes",
        {"p": "0", "q": "1", "r": "!"},
        extended_resource="1",
        devices={"b": [device("d0")]},
        plugin=1,
        pods={"p": [], "q": [], "r": []},
    ),
    scenario(
        "e2e/must reject pod with invalid extended resource name",
        {"p": "!"},
        devices=A1,
        pods={"p": []},
        pod_fields=requesting({"deviceclass.resource.kubernetes.io/unknown": "1"}),
    ),
]


@pytest.mark.parametrize("given", SCENARIOS, ids=lambda each: each.source)
def test_outcome(given: Scenario) -> None:
    assert differences(given) == {}
