"""Beside Kueue: its quota counts and its choice of nodes; ours does neither get in the way."""

import pytest

from kai_py.config import KueueConfig
from tests.dialects.feeding import Cluster, node, placed, pod

RACK = "example.com/rack"
NODES = [node("a1", labels={RACK: "a"}), node("b1", labels={RACK: "b"})]
BESIDE = {"kueue": KueueConfig(coexistence=True)}
GROUP = "kueue.x-k8s.io/pod-group-name"
COUNT = "kueue.x-k8s.io/pod-group-total-count"


def queue(name, **spec):
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def member(name, gpus=8, count="2", labels=None, **spec):
    marks = {GROUP: "train", "kueue.x-k8s.io/managed": "true"} | (labels or {})
    return pod(name, gpus, labels=marks, annotations={COUNT: count}, **spec)


def test_no_queue_is_needed_and_none_is_in_the_way():
    pods = [member("one"), member("two")]
    assert placed(Cluster(NODES, pods, **BESIDE).plan()) == {"one": "a1", "two": "b1"}
    assert placed(Cluster(NODES, pods).plan()) == {}


def test_work_that_may_not_be_preempted_is_let_in_too():
    pods = [member("one", priority=1000), member("two", priority=1000)]
    assert len(placed(Cluster(NODES, pods, rules="kai", **BESIDE).plan())) == 2


def test_a_group_is_still_placed_as_a_whole():
    assert placed(Cluster(NODES[:1], [member("one"), member("two")], **BESIDE).plan()) == {}
    assert placed(Cluster(NODES, [member("one")], **BESIDE).plan()) == {}


def test_gates_are_respected_and_selectors_read_when_they_are_gone():
    gated = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    cluster = Cluster(NODES, [member("one", 4, "1", **gated)], **BESIDE)
    assert placed(cluster.plan()) == {}
    cluster.add(member("one", 4, "1", nodeSelector={RACK: "b"}))
    assert placed(cluster.plan()) == {"one": "b1"}


def test_an_object_of_the_name_is_taken_instead():
    cluster = Cluster(NODES, queue("kueue", maxGPUs=8), member("one"), member("two"), **BESIDE)
    assert placed(cluster.plan()) == {}
    cluster.remove(queue("kueue", maxGPUs=8))
    assert len(placed(cluster.plan())) == 2


@pytest.mark.parametrize("beside", [True, False])
def test_nothing_is_reclaimed_between_queues(beside):
    settings = {"kueue": KueueConfig(coexistence=beside)} | (
        {} if beside else {"default_queue": "rest"}
    )
    rest = [] if beside else [queue("rest")]
    entitled = {"annotations": {"scheduling.kai.io/queue-name": "entitled"}}
    cluster = Cluster(
        NODES[:1],
        queue("entitled", deservedGPUs=8),
        rest,
        pod("runs", 8, nodeName="a1"),
        pod("waits", 8, **entitled),
        **settings,
    )
    assert bool(cluster.plan().evictions) is not beside


@pytest.mark.parametrize("beside", [True, False])
def test_domains_that_kueue_chose_are_not_searched_again(beside):
    level = {"kai.scheduler/topology-required-placement": RACK}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": level},
        "spec": {"parallelism": 2, "completions": 2},
    }
    chosen = {"labels": {"kueue.x-k8s.io/tas": "true"}, "owner": job}
    pods = [
        pod("one", 8, nodeSelector={RACK: "a"}, **chosen),
        pod("two", 8, nodeSelector={RACK: "b"}, **chosen),
    ]
    settings = {"kueue": KueueConfig(coexistence=beside), "default_queue": "all"}
    cluster = Cluster(NODES, queue("all"), job, pods, **settings)
    assert len(placed(cluster.plan())) == (2 if beside else 0)


def test_of_pods_that_kueue_did_not_place_the_domain_is_ours_to_choose():
    level = {"kai.scheduler/topology-required-placement": RACK}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": level},
        "spec": {"parallelism": 2, "completions": 2},
    }
    cluster = Cluster(NODES, job, pod("one", 8, owner=job), pod("two", 8, owner=job), **BESIDE)
    assert placed(cluster.plan()) == {}
