"""Requests of pods as Kubernetes computes them.

Pods that are resized in place count with what they have, and with what they are going to get.
"""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import (
    Condition,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from kai_py.relevance import affects_plan
from kai_py.snapshot.requests import as_resized, excessive_request, pod_requests
from kai_py.snapshot.resources import largest_amount
from tests.support.scenario import cluster, node, placed, pod, queue


def container(cpu="", sidecar=False, **limits):
    requests = {"cpu": cpu} if cpu else {}
    return Container(
        resources=ResourceRequirements(requests=requests, limits=limits),
        restart_policy="Always" if sidecar else "",
    )


def requests(**spec):
    return pod_requests(Pod(spec=PodSpec(**spec)))


def test_containers_add_up_and_every_pod_takes_a_slot():
    assert requests(containers=(container("1"), container("500m"))) == {"cpu": 1500, "pods": 1}


def test_a_limit_without_a_request_is_a_request():
    assert requests(containers=(container(memory="1Gi"),)) == {"memory": 2**30, "pods": 1}


def test_plain_init_containers_count_by_the_largest():
    spec = {"containers": (container("1"),), "init_containers": (container("3"), container("2"))}
    assert requests(**spec)["cpu"] == 3000


def test_sidecars_run_beside_what_starts_after_them():
    sidecar, start, main = container("1", sidecar=True), container("3"), container("1")
    assert requests(containers=(main,), init_containers=(sidecar, start))["cpu"] == 4000
    assert requests(containers=(main,), init_containers=(start, sidecar))["cpu"] == 3000
    assert requests(containers=(main,), init_containers=(sidecar, sidecar))["cpu"] == 3000


def test_pod_level_requests_replace_the_sum_and_overhead_comes_on_top():
    found = requests(
        containers=(container("1"),),
        resources=ResourceRequirements(requests={"cpu": "8"}),
        overhead={"cpu": "250m"},
    )
    assert found["cpu"] == 8250


@pytest.mark.parametrize("text", ["9223372036854775807", "1e19", "1e30", "100E", "1e1000000000"])
@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "example.com/vram"])
def test_an_absurd_amount_counts_as_the_ceiling(name, text):
    wanted = requests(
        containers=(Container(resources=ResourceRequirements(requests={name: text})),)
    )
    assert wanted[name] == largest_amount(name)
    assert name in excessive_request(wanted)


def test_the_ceiling_holds_for_the_sum_of_containers():
    gpus = container(**{"nvidia.com/gpu": str(2**31 - 1)})
    assert requests(containers=(gpus,) * 1000)["nvidia.com/gpu"] == 2**31 - 1


@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "pods"])
def test_pods_of_a_node_do_not_lose_their_amounts_to_an_absurd_one(name):
    """Amounts are added and taken away in float64."""
    held = 4 * (1000 if name == "cpu" else 1)
    absurd = [largest_amount(name)] * 100
    total = float(held)
    for amount in absurd:
        total += amount
    for amount in absurd:
        total -= amount
    assert total == held if name != "memory" else abs(total - held) < 64


INFEASIBLE = Condition(type="PodResizePending", status="True", reason="Infeasible")
DEFERRED = replace(INFEASIBLE, reason="Deferred")


def resized(
    each: Pod, *, allocated: str, actual: str = "", condition: Condition | None = None
) -> Pod:
    """``each`` as its kubelet reports it: the CPU it has, and what became of its resize."""
    shown = ContainerStatus(
        name="main",
        resources=ResourceRequirements(requests={"cpu": actual or allocated}),
        allocated_resources={"cpu": allocated},
    )
    conditions = () if condition is None else (condition,)
    status = replace(each.status, container_statuses=(shown,), conditions=conditions)
    return replace(each, status=status)


def running(cpu: str, **shown) -> Pod:
    each = pod("tenant", gpus=0, queue="tenant", node="n0", requests={"cpu": cpu})
    return resized(each, **shown) if shown else each


def counted(each: Pod) -> str:
    return as_resized(each).spec.containers[0].resources.requests["cpu"]


@pytest.mark.parametrize(
    ("spec", "shown", "counts"),
    [
        ("1", {"allocated": "60"}, "60"),
        ("1", {"allocated": "1", "actual": "60"}, "60"),
        ("60", {"allocated": "1"}, "60"),
        ("60", {"allocated": "1", "condition": DEFERRED}, "60"),
        ("60", {"allocated": "1", "condition": INFEASIBLE}, "1"),
        ("1", {"allocated": "2", "actual": "3", "condition": INFEASIBLE}, "3"),
        ("1", {"allocated": "nonsense"}, "1"),
    ],
)
def test_the_larger_of_what_it_has_and_what_it_gets_counts(spec, shown, counts):
    assert counted(running(spec, **shown)) == counts


@pytest.mark.parametrize("allocated", ["1", "1000m"])
def test_a_pod_that_has_what_it_asks_for_is_the_same_object(allocated):
    each = running("1", allocated=allocated)
    assert as_resized(each) is each


def test_a_pod_on_no_node_has_nothing():
    waiting = pod("tenant", gpus=0, requests={"cpu": "1"})
    each = resized(waiting, allocated="60")
    assert as_resized(each) is each


def test_requests_of_the_whole_pod_count_alike():
    each = running("1")
    whole = replace(each.spec, resources=ResourceRequirements(requests={"cpu": "2"}))
    given = replace(each.status, resources=ResourceRequirements(requests={"cpu": "60"}))
    found = as_resized(replace(each, spec=whole, status=given))
    assert found.spec.resources.requests == {"cpu": "60"}


def world(tenant: Pod):
    """A node of 64 cores with a pod of a tenant; a pod of another one needs half of the node."""
    neighbour = pod("neighbour", queue="team", requests={"cpu": "32"})
    return cluster(node("n0"), queue("tenant"), queue("team", 8), tenant, neighbour)


def test_what_can_never_be_given_closes_no_node():
    found = world(running("1", allocated="1"))
    found.add(running("64", allocated="1", condition=INFEASIBLE))
    assert placed(found.plan()) == {"neighbour": "n0"}
    assert found.snapshot().queue_allocated["tenant"]["cpu"] == 1000


def test_what_was_not_given_back_yet_is_not_free():
    found = world(running("60", allocated="60"))
    found.add(running("1", allocated="60"))
    assert not placed(found.plan())
    assert found.snapshot().queue_allocated["tenant"]["cpu"] == 60_000
    found.add(running("1", allocated="1"))
    assert placed(found.plan()) == {"neighbour": "n0"}


def test_a_report_of_the_kubelet_that_comes_late_counts():
    found = world(running("1"))
    found.add(running("1", allocated="60"))
    assert not placed(found.plan())


def test_a_resize_that_ends_or_fails_is_reason_for_a_cycle():
    reported = running("1", allocated="1")
    assert not affects_plan(reported, running("1", allocated="1000m"))
    assert affects_plan(reported, running("1", allocated="60"))
    waits = running("60", allocated="1", condition=DEFERRED)
    assert affects_plan(waits, running("60", allocated="1", condition=INFEASIBLE))
