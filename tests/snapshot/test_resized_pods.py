"""Pods that are resized in place count with what they have, and with what they are going to get."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Condition, ContainerStatus, Pod, ResourceRequirements
from kai_py.relevance import affects_plan
from kai_py.snapshot.resized_pods import as_resized
from tests.support.scenario import cluster, node, placed, pod, queue

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
