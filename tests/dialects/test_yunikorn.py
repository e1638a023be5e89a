"""YuniKorn's task groups: an application starts when its other groups would fit as well."""

import json

import msgspec
import pytest

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.record import convert_record
from kai_py.dialects import yunikorn
from tests.dialects.feeding import Cluster, node, placed, pod

GROUP, GROUPS = (f"yunikorn.apache.org/task-group{each}" for each in ("-name", "s"))
GPU = "nvidia.com/gpu"
QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "q"},
    "spec": {"deservedGPUs": 8},
}
KEY = "default/Application.yunikorn.apache.org/app"
EXECUTORS = {"name": "executor", "minMember": 2, "minResource": {"cpu": 1, GPU: "2"}}


def member(name, group, gpus, listed=None, **parts):
    annotations = {GROUP: group} | ({} if listed is None else {GROUPS: json.dumps(listed)})
    labels = {"scheduling.kai.io/queue-name": "q", "applicationId": "app"}
    return pod(name, gpus, annotations=annotations, labels=labels, **parts)


def driver(executors=EXECUTORS):
    return member("driver", "driver", 0, [{"name": "driver", "minMember": 1}, executors])


def executor(number, **parts):
    return member(f"executor-{number}", "executor", 2, owner=driver(), **parts)


def test_a_driver_starts_once_there_is_capacity_for_the_executors_that_it_will_create():
    assert placed(Cluster(QUEUE, node("n", 3), driver()).plan()) == {}
    assert placed(Cluster(QUEUE, node("n", 4), driver()).plan()) == {"driver": "n"}


def test_where_executors_may_run_is_that_of_their_group():
    there = {**EXECUTORS, "nodeSelector": {"zone": "a"}}
    cluster = Cluster(QUEUE, node("n", 8), driver(there))
    assert placed(cluster.plan()) == {}
    cluster.add(node("m", 4, {"zone": "a"}))
    assert [*placed(cluster.plan())] == ["driver"]


def test_executors_start_together_by_the_list_of_the_driver_that_owns_them():
    running = {**driver(), "status": {"phase": "Running"}}
    running["spec"] = {**running["spec"], "nodeName": "n"}
    cluster = Cluster(QUEUE, node("n", 4), running, executor(0))
    assert placed(cluster.plan()) == {}
    cluster.add(executor(1))
    assert placed(cluster.plan()) == {"executor-0": "n", "executor-1": "n"}
    assert cluster.gang(KEY).tree.min_pods() == 3


def test_groups_all_of_whose_pods_exist_start_together():
    listed = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    pods = [member(f"{group}-{i}", group, 1, listed) for group, i in (("a", 0), ("b", 0), ("b", 1))]
    cluster = Cluster(QUEUE, node("n", 2), pods)
    assert placed(cluster.plan()) == {}
    cluster.add(node("n", 3))
    assert len(placed(cluster.plan())) == 3


PLACED = {
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}


def test_pods_to_come_are_as_their_group_describes_them():
    marks = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    amounts = {"minResource": {"cpu": 1, GPU: "2"}}
    full = {"name": "full", "minMember": 3} | PLACED | marks | amounts
    others = [{"name": name, "minMember": count} for name, count in (("no", 0), ("own", 1))]
    bare = {"name": "bare", "minMember": 1}
    listed = json.dumps([full, *others, bare])
    meta = {"namespace": "n", "name": "driver"}
    groups = msgspec.json.decode(listed, type=list[yunikorn._TaskGroup])
    found = [*yunikorn._expected(groups, "own", ObjectMeta(**meta), "groups")]
    assert [(each.subgroup, each.count) for each in found] == [("full", 3), ("bare", 1)]
    requests = {"cpu": "1", GPU: "2"}
    assert found[0].pod == convert_record(
        {
            "metadata": meta | marks,
            "spec": {"containers": [{"resources": {"requests": requests}}]} | PLACED,
        },
        Pod,
    )
    plain = {"metadata": meta, "spec": {"containers": [{"resources": {}}]}}
    assert found[1].pod == convert_record(plain, Pod)


@pytest.mark.parametrize(
    ("executors", "problem"),
    [
        ({**EXECUTORS, "affinity": [1]}, "task-groups[executor]: "),
        ({**EXECUTORS, "minResource": {"cpu": None}}, "task-groups: "),
        ({**EXECUTORS, "minMember": 2**31 - 1}, "more than 10000 pods"),
    ],
)
def test_a_list_that_cannot_be_read_is_told(executors, problem):
    assert problem in Cluster(QUEUE, node("n"), driver(executors)).gang(KEY).problem
