"""A node whose kubelet refused a pod of a gang is left out for that gang, for a while."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import ContainerState, ContainerStatus, ContainerTerminated, PodStatus
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.session.settings import CycleSettings
from tests.support.scenario import START, at, cluster, job, node, placed, pod, queue

ENDED = ContainerState(terminated=ContainerTerminated("Error", 137))


def refused(one, on, when, reason="OutOfcpu", **status):
    """The pod as the kubelet of a node leaves one that it refused."""
    status = PodStatus(phase="Failed", reason=reason, start_time=at(when), **status)
    return replace(one, spec=replace(one.spec, node_name=on), status=status)


def train(name="train", queue_name="q", namespace="default"):
    owner = job(name, 1, queue_name)
    owner = replace(owner, metadata=replace(owner.metadata, namespace=namespace))

    def made(number):
        one = pod(f"{name}-{number}", 1, owner=owner, created=float(number))
        return replace(one, metadata=replace(one.metadata, namespace=namespace))

    return owner, made


def world(*nodes):
    owner, made = train()
    return cluster(*nodes, queue("q", 8), queue("r", 8), owner), made


@pytest.mark.parametrize("reason", ["OutOfcpu", "UnexpectedAdmissionError", "NodeAffinity"])
def test_the_next_pod_goes_elsewhere(reason):
    made, pod_of = world(node("a", 1), node("b", 2))
    assert placed(made.add(pod_of(0)).plan(0)) == {"train-0": "a"}
    made.add(refused(pod_of(0), "a", 1.0, reason), pod_of(2))
    assert placed(made.plan(3)) == {"train-2": "b"}


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("DeadlineExceeded", {}),
        ("", {}),
        ("Evicted", {"container_statuses": (ContainerStatus(name="main", state=ENDED),)}),
    ],
)
def test_pods_that_end_otherwise_say_nothing_of_their_node(reason, status):
    made, pod_of = world(node("a", 1), node("b", 2))
    made.add(refused(pod_of(0), "a", 1.0, reason, **status), pod_of(2))
    assert placed(made.plan(3)) == {"train-2": "a"}


def test_the_only_node_is_tried_again_later_and_later():
    made, pod_of = world(node("a", 1))
    first = refused(pod_of(0), "a", 10.0, "UnexpectedAdmissionError")
    made.add(first, pod_of(11))
    plan = made.plan(12)
    assert not plan.placements
    said = "node a refused a pod of this gang (UnexpectedAdmissionError) and is not used for 60 s"
    assert said in plan.unplaced[0].message
    assert next_deadline(made.snapshot(12), CycleSettings()) == START + 70
    # Pods that are deleted, as those of StatefulSets, are remembered.
    made.remove(first)
    assert not made.plan(69).placements
    assert placed(made.plan(70)) == {"train-11": "a"}
    made.add(refused(pod_of(11), "a", 71.0), pod_of(72))
    assert "not used for 120 s" in made.plan(73).unplaced[0].message
    assert not made.plan(190).placements
    assert placed(made.plan(191)) == {"train-72": "a"}


def test_a_time_in_the_future_does_not_close_a_node_for_longer():
    made, pod_of = world(node("a", 1))
    made.add(refused(pod_of(0), "a", 10.0**8), pod_of(1))
    assert not made.plan(2).placements
    assert placed(made.plan(62)) == {"train-1": "a"}


@pytest.mark.parametrize(
    ("other", "avoided"),
    [(("r", "other"), True), (("q", "other"), False), (("r", "default"), False)],
)
def test_others_avoid_a_node_that_refused_pods_of_several_tenants(other, avoided):
    made, pod_of = world(node("a", 2), node("b", 8))
    owner, pod_of_other = train("eval", *other)
    made.add(owner, refused(pod_of(0), "a", 1.0), refused(pod_of_other(0), "a", 2.0))
    made.add(pod_of(3), pod_of_other(4), pod("free", 1, queue="q", created=5.0))
    plan = made.plan(6)
    assert placed(plan) == {"train-3": "b", "eval-4": "b", "free": "b" if avoided else "a"}
    assert [each.node for each in plan.avoided_nodes] == (["a"] if avoided else [])


def test_a_batch_of_gangs_heeds_the_refusals_of_each():
    owners = [train(f"t{number}") for number in range(12)]
    made = cluster(node("a", 6), node("b", 12), queue("q", 18), *(owner for owner, _ in owners))
    for number, (_, pod_of) in enumerate(owners):
        if number % 3 == 0:
            made.add(refused(pod_of(0), "a", 1.0))
        made.add(pod_of(2))
    where = placed(made.plan(3))
    assert len(where) == 12
    assert {where[f"t{number}-2"] for number in range(0, 12, 3)} == {"b"}
    assert list(where.values()).count("a") == 6
