"""Plans of random clusters until rest, judged by a checker that shares no code with the planner."""

import random

import msgspec
import pytest

from kai_py.config import Configuration
from kai_py.simulate.files.object_files import ObjectsInFiles
from kai_py.simulate.offline_plan import plan_objects
from tests.simulate.cluster_model import QUEUE, RACK, SIZE
from tests.simulate.plan_checker import PlanChecker
from tests.simulate.random_clusters import KAI, MAIN, NOW, at, made, random_cluster


def planned(documents):
    found = plan_objects(ObjectsInFiles(documents), Configuration(), until_rest=True, now=NOW)
    return msgspec.to_builtins(found)


@pytest.mark.parametrize("seed", range(16))
def test_plans_of_random_clusters_are_right(seed):
    documents = random_cluster(seed)
    plan = planned(documents)
    assert PlanChecker(documents, plan).check() == []
    shuffled = random.Random(seed).sample(documents, len(documents))
    assert msgspec.json.encode(planned(shuffled)) == msgspec.json.encode(plan)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(16, 1000))
def test_plans_of_many_random_clusters_are_right(seed):
    test_plans_of_random_clusters_are_right(seed)


@pytest.mark.parametrize("cpu", ["6", "10"])
def test_a_gang_is_not_relocated_for_its_own_pod_into_two_domains(cpu):
    """The pod would wait for ever in a rack that the others do not leave."""
    marks = {"scheduling.kai.io/pod-group": "g", SIZE: "5"}
    marks["kai.scheduler/topology-required-placement"] = RACK
    meta = {"labels": {QUEUE: "q"}, "annotations": marks}
    container = {**MAIN, "resources": {"requests": {"cpu": "2"}}}
    waits = {"schedulerName": "kai-scheduler", "containers": [container]}
    runs = {"status": {"phase": "Running", "startTime": at(5000)}}
    pods = [made("Pod", f"g-{i}", waits | {"nodeName": "a"}, metadata=meta, **runs) for i in "0123"]
    nodes = [
        made(
            "Node",
            name,
            {},
            metadata={"labels": {RACK: name}},
            status={"allocatable": {"cpu": amount, "memory": "64Gi", "pods": "9"}},
        )
        for name, amount in (("a", "8"), ("b", cpu))
    ]
    queue = made("Queue", "q", {"deservedGPUs": 1}, KAI)
    found = planned([*nodes, queue, *pods, made("Pod", "g-4", waits, metadata=meta)])
    assert found["rest"]
    assert not found["nominations"]
    assert [each["stage"] for each in found["pending"]] == ["Topology"]
