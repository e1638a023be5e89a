"""Host ports: taken by pods on the node, free once the last holder leaves or must leave."""

from msgspec.structs import replace

from kai_py.api.records.core import ContainerPort
from tests.support.scenario import cluster, evicted, node, placed, pod, queue


def listening(name, port=80, *, ip="", protocol="TCP", **options):
    made = pod(name, 0, queue="q", **options)
    ports = (ContainerPort(host_port=port, host_ip=ip, protocol=protocol),)
    container = replace(made.spec.containers[0], ports=ports)
    return replace(made, spec=replace(made.spec, containers=(container,)))


def plan(*pods, nodes=1):
    return cluster([node(f"n{i}") for i in range(nodes)], queue("q", 8), *pods).plan()


def test_a_port_that_is_taken_is_told():
    found = plan(listening("old", node="n0"), listening("new"))
    assert placed(found) == {}
    assert "1 didn't have free ports for the requested pod ports" in found.unplaced[0].message


def test_pods_of_one_cycle_do_not_collide():
    found = plan([listening(f"p{i}") for i in range(3)], nodes=2)
    assert sorted(placed(found).values()) == ["n0", "n1"]


def test_other_protocols_and_addresses_do_not_collide():
    old = listening("old", ip="127.0.0.1", node="n0")
    assert placed(plan(old, listening("new", protocol="UDP")))
    assert placed(plan(old, listening("new", ip="127.0.0.2")))
    assert not placed(plan(old, listening("new", ip="0.0.0.0")))


def test_no_protocol_is_that_of_tcp():
    assert not placed(plan(listening("old", protocol="", node="n0"), listening("new")))


def test_ports_of_init_containers_count_if_they_go_on_running():
    old, new = listening("old", node="n0"), listening("new")
    for restart_policy, started in (("", True), ("Always", False)):
        [starting] = new.spec.containers
        starting = replace(starting, restart_policy=restart_policy)
        plain = replace(starting, name="plain", ports=(), restart_policy="")
        spec = replace(new.spec, init_containers=(starting,), containers=(plain,))
        assert bool(placed(plan(old, replace(new, spec=spec)))) == started


def test_the_port_of_a_pod_that_leaves_is_free_later():
    found = plan(listening("old", node="n0", leaving=True), listening("new"))
    assert placed(found) == {}
    assert [each.pod.name for each in found.nominations] == ["new"]


def test_a_port_is_free_only_when_its_last_holder_leaves():
    found = plan(
        listening("old", node="n0", leaving=True),
        listening("other", node="n0"),
        listening("new"),
    )
    assert found.nominations == ()


def test_only_the_pod_that_has_the_port_is_preempted():
    found = plan(
        [pod(f"bystander{i}", 0, queue="q", node="n0", created=i) for i in range(4)],
        listening("holder", node="n0"),
        listening("urgent", priority=10),
    )
    assert evicted(found) == ["holder"]
    assert [each.pod.name for each in found.nominations] == ["urgent"]
