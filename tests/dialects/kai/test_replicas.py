"""Deployments and StatefulSets with KAI's minMember; cases of KAI's groupers of both kinds."""

import pytest

from tests.dialects.feeding import Cluster, node, placed
from tests.dialects.kai.objects import KAI, QUEUE, with_pods

KEY = "kai.scheduler/min-member"
BATCH_KEY = "kai.scheduler/batch-min-member"
GANG = "default/StatefulSet/workers"


def workload(kind="StatefulSet", annotations=None, queue="q", **spec):
    labels = {KAI: queue} if queue else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "workers", "labels": labels, "annotations": annotations or {}},
        "spec": {"replicas": 4, **spec},
    }


def cluster(owner, *, gpus=4, pods=4):
    return Cluster(QUEUE, node("n", gpus), with_pods(owner, pods))


@pytest.mark.parametrize(("text", "starts"), [("4", False), ("3", True), ("1", True)])
def test_a_stateful_set_starts_with_as_many_pods_as_it_says(text, starts):
    world = cluster(workload(annotations={KEY: text}, podManagementPolicy="Parallel"), gpus=3)
    assert world.gang(GANG).tree.min_members == int(text)
    assert len(placed(world.plan())) == (3 if starts else 0)


def test_its_pods_wait_for_those_that_do_not_exist_yet():
    owner = workload(annotations={KEY: "4"}, podManagementPolicy="Parallel")
    assert not placed(cluster(owner, pods=3).plan())
    assert len(placed(cluster(owner, pods=4).plan())) == 4


@pytest.mark.parametrize("text", ["abc", "1.5", "0", "-1", "2147483648"])
def test_an_invalid_number_is_told(text):
    world = cluster(workload(annotations={KEY: text}, podManagementPolicy="Parallel"))
    assert world.gang(GANG).problem.startswith(f"StatefulSet default/workers: {KEY} must be")
    assert not placed(world.plan())


@pytest.mark.parametrize("spec", [{}, {"podManagementPolicy": "OrderedReady"}])
def test_pods_that_are_created_one_by_one_cannot_wait_for_each_other(spec):
    world = cluster(workload(annotations={KEY: "4"}, **spec))
    assert "needs spec.podManagementPolicy Parallel: with OrderedReady" in world.gang(GANG).problem
    one = cluster(workload(annotations={KEY: "1"}, **spec))
    assert len(placed(one.plan())) == 4


def test_more_pods_than_there_will_be_are_told():
    world = cluster(workload(annotations={KEY: "5"}, podManagementPolicy="Parallel"))
    assert "minMember 5 can never be reached: spec.replicas is 4" in world.gang(GANG).problem


def test_the_key_of_jobs_says_nothing_about_a_stateful_set():
    world = cluster(workload(annotations={BATCH_KEY: "4"}))
    assert (world.gang(GANG).tree.min_members, world.gang(GANG).problem) == (1, "")


@pytest.mark.parametrize(("gpus", "started"), [(2, 0), (3, 3), (4, 4)])
def test_a_deployment_starts_with_as_many_pods_as_it_says(gpus, started):
    world = cluster(workload("Deployment", {BATCH_KEY: "3"}), gpus=gpus)
    assert len(placed(world.plan())) == started


def test_pods_of_a_deployment_that_says_nothing_start_one_by_one():
    assert len(placed(cluster(workload("Deployment"), gpus=2).plan())) == 2
