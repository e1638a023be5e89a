"""Volcano's PodGroup: floors of tasks, and tiers of its network as levels of ours."""

import pytest

from kai_py.config import VolcanoConfig
from kai_py.dialects import volcano
from tests.dialects.feeding import Cluster, node, placed, pod

RACK = "example.com/rack"
NODES = [node("a1", labels={RACK: "a"}), node("b1", labels={RACK: "b"})]
QUEUE = """
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: team}
spec: {deservedGPUs: 16}
"""


def group(**spec):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"queue": "team", **spec},
    }


def member(name, task, gpus=4):
    marks = {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": task}
    return pod(name, gpus, annotations=marks)


def test_every_task_needs_its_floor():
    wanted = group(minMember=2, minTaskMember={"ps": 1, "worker": 1})
    workers = [member("w0", "worker"), member("w1", "worker")]
    cluster = Cluster(NODES, QUEUE, wanted, workers)
    assert placed(cluster.plan()) == {}
    cluster.add(member("ps", "ps"))
    assert set(placed(cluster.plan())) == {"ps", "w0", "w1"}


def test_pods_of_other_tasks_do_not_count_for_min_member():
    wanted = group(minMember=1, minTaskMember={"ps": 1})
    cluster = Cluster(NODES, QUEUE, wanted, member("m", "monitor"))
    assert placed(cluster.plan()) == {}
    assert set(placed(cluster.add(member("ps", "ps")).plan())) == {"m", "ps"}


def test_a_task_floor_that_is_no_number_is_told():
    cluster = Cluster(NODES, QUEUE, group(minTaskMember={"ps": "many"}), member("ps", "ps"))
    ((_, text),) = cluster.why().values()
    assert "spec.minTaskMember.ps must be a whole number of at least 0, is 'many'" in text


@pytest.mark.parametrize(
    ("topology", "tiers", "started"),
    [
        ({"mode": "hard", "highestTierAllowed": 1}, {"1": RACK}, False),
        ({"highestTierName": "rack"}, {"rack": RACK}, False),
        ({"mode": "soft", "highestTierAllowed": 1}, {"1": RACK}, True),
        ({"mode": "soft", "highestTierAllowed": 1}, {}, True),
    ],
)
def test_a_hard_tier_is_required_and_a_soft_one_preferred(topology, tiers, started):
    wanted = group(minMember=2, networkTopology=topology)
    pods = [member("w0", "worker", 8), member("w1", "worker", 8)]
    cluster = Cluster(NODES, QUEUE, wanted, pods, volcano=VolcanoConfig(tiers=tiers))
    assert bool(placed(cluster.plan())) is started


def test_an_unknown_hard_tier_is_reported_with_the_setting():
    wanted = group(minMember=1, networkTopology={"mode": "hard", "highestTierAllowed": 2})
    cluster = Cluster(NODES, QUEUE, wanted, member("w0", "worker"))
    ((_, text),) = cluster.why().values()
    assert "no node label is known for tier 2; name it in volcano.tiers" in text


def priority_class(name, value):
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


@pytest.mark.parametrize(
    ("named", "pods_priority", "expected"), [("high", 0, 1000), ("gone", 7, 7), ("", 7, 7)]
)
def test_the_groups_class_is_its_priority(named, pods_priority, expected):
    one = member("w0", "worker")
    one["spec"]["priority"] = pods_priority
    wanted = group(minMember=1, priorityClassName=named)
    cluster = Cluster(NODES, QUEUE, priority_class("high", 1000), wanted, one)
    [found] = cluster.snapshot().gangs.values()
    assert found.priority == expected


def test_a_group_names_no_class_of_the_system():
    system = priority_class("system-node-critical", 2_000_001_000)
    wanted = group(minMember=1, priorityClassName="system-node-critical")
    [found] = (
        Cluster(NODES, QUEUE, system, wanted, member("w0", "worker")).snapshot().gangs.values()
    )
    assert found.priority == 0


@pytest.mark.parametrize(
    ("on_pod", "on_group", "expected"),
    [
        ({}, {}, True),
        ({"annotations": "false"}, {}, False),
        ({"labels": "false"}, {}, False),
        ({"annotations": "True", "labels": "false"}, {}, True),
        ({"annotations": "no"}, {}, False),
        ({}, {"labels": "0"}, False),
        ({"labels": "1"}, {"annotations": "false"}, True),
    ],
)
def test_what_is_not_preemptable_is_not_preemptible(on_pod, on_group, expected):
    one, wanted = member("w0", "worker"), group(minMember=1)
    for document, marks in ((one, on_pod), (wanted, on_group)):
        for place, value in marks.items():
            document["metadata"].setdefault(place, {})["volcano.sh/preemptable"] = value
    [found] = Cluster(NODES, QUEUE, wanted, one).snapshot().gangs.values()
    assert found.preemptible is expected


def test_our_own_word_on_preemption_goes_before_volcanos():
    one = member("w0", "worker")
    one["metadata"]["annotations"] |= {
        "volcano.sh/preemptable": "false",
        "scheduling.kai.io/preemptibility": "preemptible",
    }
    [found] = Cluster(NODES, QUEUE, group(minMember=1), one).snapshot().gangs.values()
    assert found.preemptible is True


def test_a_policy_of_subgroups_is_said_to_be_ignored():
    policy = [{"name": "workers", "subGroupSize": 2, "matchLabelKeys": ["volcano.sh/partition-id"]}]
    plan = Cluster(NODES, QUEUE, group(subGroupPolicy=policy), member("w0", "worker")).plan()
    (problem,) = plan.problems
    ignored = "ignored: spec.subGroupPolicy of PodGroup.scheduling.volcano.sh train"
    assert ignored in problem.message


def test_the_tree_of_a_group_is_computed_once_for_all_of_its_pods(monkeypatch):
    """A group may have thousands of tasks, and thousands of pods."""
    read = []

    def counted(found):
        read.append(found)
        return min_task_members(found)

    min_task_members = volcano._min_task_members
    monkeypatch.setattr(volcano, "_min_task_members", counted)
    pods = [member(f"p{i}", "a") for i in range(5)]
    cluster = Cluster(group(minMember=5, minTaskMember={"a": 2, "b": 3}), pods)
    key = "default/PodGroup.scheduling.volcano.sh/train"
    assert cluster.snapshot().gangs[key].tree.min_pods() == 5
    assert len(read) == 1
    cluster.add(group(minMember=4, minTaskMember={"a": 4}))
    assert cluster.snapshot().gangs[key].tree.min_pods() == 4
    assert len(read) == 2
