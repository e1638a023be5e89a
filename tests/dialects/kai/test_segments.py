"""Segments of workloads that are one group of alike pods, and PodGroups that KAI left behind."""

import pytest

from kai_py.api.records.unstructured import unstructured
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.dialects.kai.objects import QUEUE, job, member, pod_group

KAI = {"kai.scheduler/queue": "q"}
INDEX = "batch.kubernetes.io/job-completion-index"
SIZE = "kai.scheduler/segment-size"
RACK = {
    "kai.scheduler/segment-topology-required-placement": "rack",
    "kai.scheduler/batch-min-member": "4",
}


def indexed(count, marks, *, pods=None, **labels):
    owner = job("train", count, KAI, marks)
    made = [
        pod(f"train-{i}", owner=owner, labels={INDEX: str(i), **labels})
        for i in range(count if pods is None else pods)
    ]
    return [owner, *made]


def racks(**gpus):
    return [node(name, amount, {"rack": name}) for name, amount in gpus.items()]


def gang(*objects):
    return Cluster(QUEUE, *objects).gang("default/Job/train")


def test_each_segment_stays_in_a_domain_of_its_own():
    cluster = Cluster(QUEUE, racks(a=2, b=3, c=1), indexed(4, {SIZE: "2", **RACK}))
    at = placed(cluster.plan())
    assert len(at) == 4
    assert at["train-0"] == at["train-1"]
    assert at["train-2"] == at["train-3"]
    assert at["train-0"] != at["train-2"]
    nowhere = Cluster(QUEUE, racks(a=2, b=1, c=1), indexed(4, {SIZE: "2", **RACK}))
    assert placed(nowhere.plan()) == {}


def test_the_floor_fills_the_first_segments_and_the_rest_needs_no_pod():
    marks = {SIZE: "3", "kai.scheduler/batch-min-member": "4"}
    found = gang(*indexed(8, marks))
    assert [(leaf.name, leaf.min_members) for leaf in found.tree.leaves()] == [
        ("segment-0", 3),
        ("segment-1", 1),
        ("segment-2", 0),
    ]
    assert found.tree.min_pods() == 4
    assert [member.subgroup for member in found.members][2:4] == ["segment-0", "segment-1"]


def test_indexes_beyond_the_pods_that_run_at_once_go_round():
    found = gang(
        *indexed(4, {SIZE: "2"}, pods=0),
        pod("x", owner=job("train", 4, KAI, {SIZE: "2"}), labels={INDEX: "6"}),
    )
    assert [member.subgroup for member in found.members] == ["segment-1"]


@pytest.mark.parametrize(
    ("size", "labels", "problem"),
    [
        ("none", {}, 'must be a whole number of at least 1, is "none"'),
        ("0", {}, 'must be a whole number of at least 1, is "0"'),
        ("2", {INDEX: ""}, "pods need an index"),
    ],
)
def test_segments_that_make_no_sense_are_told(size, labels, problem):
    found = gang(*indexed(4, {SIZE: size}, **labels))
    assert "Job default/train: kai.scheduler/segment-size" in found.problem
    assert problem in found.problem


def test_too_many_segments_are_told():
    marks = {SIZE: "1", "kai.scheduler/batch-min-member": "10001"}
    assert "results in 10001 segments" in gang(*indexed(10001, marks, pods=1)).problem


def left_behind(**spec):
    """The PodGroup that KAI's grouper made for the Job train."""
    return pod_group("pg-train-uid-Job-train", **spec)


def test_new_pods_of_an_owner_join_the_group_that_kai_made_for_it():
    owner = job("train", 3, KAI)
    old = member("old", "pg-train-uid-Job-train", nodeName="n")
    new = [pod(f"new-{i}", owner=owner) for i in range(2)]
    cluster = Cluster(QUEUE, node("n", 2), left_behind(minMember=3), owner, old, new)
    found = cluster.gang("default/PodGroup.scheduling.run.ai/pg-train-uid-Job-train")
    assert sorted(each.pod.name for each in found.members) == ["new-0", "new-1", "old"]
    assert found.tree.min_members == 3
    assert placed(cluster.plan()) == {}, "the floor is that of the group, and one GPU is free"
    assert sorted(placed(cluster.add(node("m")).plan())) == ["new-0", "new-1"]


def test_groups_of_a_leader_worker_set_are_told_apart_by_their_index():
    owner = leader_worker_set("llm")
    label = "leaderworkerset.sigs.k8s.io/group-index"
    new = [pod(f"llm-{i}", owner=owner, labels={label: str(i)}) for i in range(2)]
    name = "pg-llm-uid-LeaderWorkerSet-llm-group-1"
    cluster = Cluster(QUEUE, pod_group(name, minMember=1), new)
    kind = "leaderworkersets.leaderworkerset.x-k8s.io"
    cluster.planner.builder.apply(kind, None, unstructured(owner, ["spec"]))
    assert sorted(cluster.snapshot().gangs) == [
        "default/LeaderWorkerSet/llm/0",
        f"default/PodGroup.scheduling.run.ai/{name}",
    ]


def leader_worker_set(name):
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-LeaderWorkerSet-{name}",
            "labels": KAI,
        },
        "spec": {"leaderWorkerTemplate": {"size": 1}},
    }


def test_a_group_of_another_owner_of_that_name_is_not_joined():
    other = pod_group("pg-train-another-uid", minMember=3)
    owner = job("train", 3, KAI)
    assert gang(other, owner, pod("p", owner=owner)).tree.min_members == 1


def test_a_group_that_appears_later_takes_the_pods_over():
    owner = job("train", 2, KAI)
    cluster = Cluster(QUEUE, owner, pod("p", owner=owner))
    assert cluster.gang("default/Job/train")
    cluster.add(left_behind(minMember=2))
    assert "default/Job/train" not in cluster.snapshot().gangs
