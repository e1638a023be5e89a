"""Host ports that several pods of a node use."""

import pytest

from tests.audit.objects import NOW, node, pod
from tests.support.audits import audit


def found(*objects):
    return audit((node(), node("node-b"), *objects), now=NOW)


def port(number, address="", protocol="TCP"):
    return {
        "containerPort": 80,
        "hostPort": number,
        "protocol": protocol,
        **({"hostIP": address} if address else {}),
    }


def test_a_host_port_that_two_pods_use():
    users = pod("a", ports=[port(8080), port(9090)]), pod("b", ports=[port(8080)])
    [finding] = found(*users)
    assert finding.kind.value == "node-over-capacity"
    assert finding.objects == (
        "Node node-a",
        "Port 8080/TCP",
        "Pod default/a",
        "Pod default/b",
    )
    assert finding.message == (
        "host port 8080/TCP of node node-a is used by 2 pods: default/a, default/b"
    )


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (port(80), port(80, "10.0.0.1"), True),
        (port(80, "0.0.0.0"), port(80, "10.0.0.1"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.1"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.2"), False),
        (port(80), port(80, protocol="UDP"), False),
        (port(80), port(81), False),
        (port(0), port(0), False),
    ],
)
def test_ports_conflict_by_number_protocol_and_address(one, other, conflict):
    assert bool(found(pod("a", ports=[one]), pod("b", ports=[other]))) == conflict


def test_a_pod_may_use_a_port_at_several_addresses():
    assert found(pod("a", ports=[port(80), port(80, "127.0.0.1")])) == []


def test_only_pods_with_the_same_address_are_named():
    addresses = {"a": "10.0.0.1", "b": "10.0.0.1", "c": "10.0.0.2"}
    [finding] = found(*(pod(name, ports=[port(80, at)]) for name, at in addresses.items()))
    assert finding.objects[2:] == ("Pod default/a", "Pod default/b")


@pytest.mark.parametrize(
    "other",
    [
        {"leaving": True},
        {"phase": "Failed"},
        {"bound": NOW - 10},
        {"node": ""},
        {"node": "node-b"},
    ],
)
def test_a_port_may_pass_from_pod_to_pod(other):
    assert found(pod("a", ports=[port(80)]), pod("b", ports=[port(80)], **other)) == []
