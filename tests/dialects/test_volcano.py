"""Volcano's PodGroup: floors of tasks, and tiers of its network as levels of ours."""

import pytest

from kai_py.config import VolcanoConfig
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


def test_pods_of_other_tasks_are_nobody_s_floor():
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


def test_a_hard_tier_that_nobody_knows_is_told_with_the_setting():
    wanted = group(minMember=1, networkTopology={"mode": "hard", "highestTierAllowed": 2})
    cluster = Cluster(NODES, QUEUE, wanted, member("w0", "worker"))
    ((_, text),) = cluster.why().values()
    assert "no node label is known for tier 2; name it in volcano.tiers" in text
